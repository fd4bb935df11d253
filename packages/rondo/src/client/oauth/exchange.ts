/**
 * Token exchange (RFC 8693): a program that serves callers and calls other servers for them gets, for each caller and server, a
 * token of its own. The token of the caller is never passed on.
 *
 * exchange 1: A caller without a token is refused. This program's own credentials never stand in for those of a known caller.
 * exchange 2: A token is kept for one token of a caller and one server, in memory, until shortly before it expires.
 */

import { genericTokenEndpointRequest, processGenericTokenEndpointResponse } from 'oauth4webapi'
import { RondoError } from '../../errors.ts'
import { tokenOf } from '../../lib/subject-token.ts'
import { callable, clock, defineOptions, number, type OptionsOf, text, unchecked } from '../../options.ts'
import type { Principal } from '../../protocol/call.ts'
import { readIssuer } from './discovery.ts'
import { authentication, givenClient, requestOptions } from './grant.ts'
import type { GivenClient } from './options.ts'
import { type AuthFetch, createSafeFetch, explain, unusable } from './safe-fetch.ts'

export interface ExchangeOptions {
  /** The authorization server that exchanges tokens, as it calls itself. */
  readonly issuer: string
  /** This program as that server knows it. */
  readonly client: Pick<GivenClient, 'id' | 'secret' | 'privateKey'>
  /** The URL of each server that is called, by the name under which it is called. */
  readonly resources: Readonly<Record<string, string>>
  /** The scopes to request. Default: those that the authorization server chooses. */
  readonly scopes?: readonly string[]
  /** Returns the token of a caller. Default: the one that `oauthResource` of `rondo/oauth` verified. */
  readonly subjectToken?: (principal: Principal) => string | undefined | Promise<string | undefined>
  /**
   * Returns the headers for requests that belong to no caller: a gateway reads lists with them. Anonymous callers would use them too,
   * so authenticate every caller. Default: such requests are refused.
   */
  readonly lists?: (
    server: string,
  ) => Readonly<Record<string, string>> | Promise<Readonly<Record<string, string>>>
  /** Sends the requests to the authorization server. Default: the platform's `fetch`. */
  readonly fetch?: AuthFetch
  /** The limit for one of those requests. Default: 20 s. */
  readonly timeoutMs?: number
  /** The clock, in ms since the epoch. Default: `Date.now`. */
  readonly now?: () => number
}

/** Returns the headers with which `server` is called for a caller. */
export type ExchangeToken = (
  principal: Principal | undefined,
  server: string,
) => Promise<Readonly<Record<string, string>>>

const OPTIONS = defineOptions('exchange', {
  issuer: text(''),
  client: unchecked<ExchangeOptions['client']>({ id: '' }),
  resources: unchecked<ExchangeOptions['resources']>({}),
  scopes: unchecked<readonly string[]>([]),
  subjectToken: callable(),
  lists: callable(),
  fetch: callable(),
  timeoutMs: number(20_000),
  now: clock,
} satisfies OptionsOf<ExchangeOptions>)

const TOKEN_EXCHANGE = 'urn:ietf:params:oauth:grant-type:token-exchange'
const ACCESS_TOKEN = 'urn:ietf:params:oauth:token-type:access_token'
/** A token is replaced this long before it expires. */
const EARLY_MS = 10_000
const MAX_KEPT = 10_000

interface Exchanged {
  readonly token: string
  readonly until: number
}

/**
 * Exchanges the token of a caller for one that is valid at another server: for `credentials` of a gateway.
 *
 * @example
 * ```ts
 * const credentials = exchange({
 *   issuer: 'https://login.example.com',
 *   client: { id: 'gateway', secret },
 *   resources: { tables: 'https://tables.example.com/mcp' },
 * })
 * ```
 */
export function exchange(options: ExchangeOptions): ExchangeToken {
  const {
    issuer,
    client,
    resources,
    scopes,
    subjectToken = tokenOf,
    lists,
    now,
    ...rest
  } = OPTIONS.read(options)
  if (!URL.canParse(issuer) || client.id === '' || Object.keys(resources).length === 0)
    throw new TypeError('exchange needs the issuer, the client that it knows, and the resources by name')
  const reach = { server: new URL(issuer), trusted: issuer, fetch: rest.fetch, timeoutMs: rest.timeoutMs }
  const request = createSafeFetch(reach)
  const kept = new Map<string, Promise<Exchanged>>()

  const obtain = async (subject: string, resource: string): Promise<Exchanged> => {
    const as = await readIssuer({ ...reach, request }, issuer)
    const known = { client_id: client.id }
    const parameters = {
      subject_token: subject,
      subject_token_type: ACCESS_TOKEN,
      requested_token_type: ACCESS_TOKEN,
      resource,
      ...(scopes.length > 0 && { scope: scopes.join(' ') }),
    }
    return explain(issuer, 'exchange the token of the caller', [subject, client.secret], async () => {
      const method = await authentication(as, givenClient(as, client), client)
      const sent = requestOptions({ request })
      const response = await genericTokenEndpointRequest(as, known, method, TOKEN_EXCHANGE, parameters, sent)
      const issued = await processGenericTokenEndpointResponse(as, known, response)
      if (issued.token_type !== 'bearer' || issued.issued_token_type !== ACCESS_TOKEN)
        throw unusable(`${issuer} issued another token than a bearer access token`)
      if (issued.access_token === subject)
        throw unusable(`${issuer} returned the token of the caller, which is not passed on`)
      const { access_token: token, expires_in: seconds = 0 } = issued
      return { token, until: now() + seconds * 1_000 - EARLY_MS }
    })
  }

  const obtainOnce = async (subject: string, resource: string): Promise<Exchanged> => {
    const key = JSON.stringify([resource, subject])
    const before = kept.get(key)
    const known = await before
    if (known !== undefined && known.until > now()) return known
    // Another may have begun while this one waited. Nothing is awaited from here to `kept.set`.
    const running = kept.get(key)
    if (running !== undefined && running !== before) return running
    const started = obtain(subject, resource)
    const [oldest] = kept.keys()
    if (kept.size >= MAX_KEPT && oldest !== undefined) kept.delete(oldest)
    kept.set(key, started)
    started.catch(() => kept.delete(key))
    return started
  }

  return async (principal, server) => {
    const resource = Object.hasOwn(resources, server) ? resources[server] : undefined
    if (resource === undefined) throw new RondoError('PEER_LOGIN', `exchange has no resource for "${server}"`)
    if (principal === undefined && lists !== undefined) return lists(server)
    const subject = principal && (await subjectToken(principal))
    if (!subject) throw new RondoError('PEER_LOGIN', `The caller has no token to exchange for "${server}"`)
    const { token } = await obtainOnce(subject, resource)
    return { Authorization: `Bearer ${token}` }
  }
}
