/**
 * Tokens for an assertion instead of a login (RFC 7523): somebody whom the authorization server trusts vouches for the caller.
 *
 * `workload`: the platform on which the program runs. `enterprise`: the identity provider of the company, which decides who
 * may use which server and issues an identity assertion for it (ID-JAG, by token exchange).
 *
 * assertion 1: An assertion is requested for each token and not kept, so a rotated one is used from then on.
 * assertion 2: An assertion of the identity provider is sent only to the authorization server, and only for the client and the
 *   resource, for which it was requested.
 * assertion 3: A person logs in again only after the identity provider has ended the login: until then its refresh token returns
 *   ID tokens.
 */

import { genericTokenEndpointRequest, processGenericTokenEndpointResponse } from 'oauth4webapi'
import { RondoError } from '../../errors.ts'
import { isRecord } from '../../lib/json.ts'
import { callable, defineOptions, number, type OptionsOf, text, unchecked } from '../../options.ts'
import { readIssuer } from './discovery.ts'
import {
  authentication,
  type GrantContext,
  type Granted,
  givenClient,
  grantByCode,
  grantByRefresh,
  requestOptions,
} from './grant.ts'
import type { AssertionGrant, AssertionRequest, GivenClient, LoginAttempt, StoredGrant } from './options.ts'
import { type AuthFetch, createSafeFetch, explain, oauthCode, unusable } from './safe-fetch.ts'

/** Where the token of a workload comes from. One of the three. */
export interface WorkloadOptions {
  /** A file that the platform rewrites, such as a projected service account token. Default: none. */
  readonly file?: string
  /** The name of an environment variable. Default: none. */
  readonly env?: string
  /** Returns the token. Default: none. */
  readonly token?: (request: AssertionRequest) => string | Promise<string>
}

const WORKLOAD = defineOptions('workload', {
  file: text(),
  env: text(),
  token: callable(),
} satisfies OptionsOf<WorkloadOptions>)

/**
 * Obtains tokens for the identity that the platform gives to a program (workload identity federation): pass it to `oauth` as
 * `grant`. The token is read each time, because platforms rotate it.
 *
 * @example
 * ```ts
 * const asWorkload = oauth({
 *   client: { id: 'reports', issuer: 'https://login.example.com' },
 *   grant: workload({ file: '/var/run/secrets/tokens/mcp' }),
 * })
 * ```
 */
export function workload(options: WorkloadOptions): AssertionGrant {
  const { file, env, token } = WORKLOAD.read(options)
  if ([file, env, token].filter((one) => one !== undefined).length !== 1)
    throw new TypeError('workload needs exactly one of file, env and token')
  return {
    kind: 'jwt-bearer',
    async assertion(request) {
      const found = token
        ? await token(request)
        : file !== undefined
          ? await readFile(file)
          : globalThis.process?.env[env ?? '']
      const assertion = found?.trim() ?? ''
      if (COMPACT.test(assertion)) return assertion
      const where = token
        ? 'The function token of workload'
        : file !== undefined
          ? `The file ${file}`
          : `The variable ${env}`
      throw unusable(`${where} has no JSON Web Token`)
    },
    stored: () => (token === undefined ? { kind: 'workload', file, env } : undefined),
  }
}

/** A signed JSON Web Token. */
const COMPACT = /^[\w-]+\.[\w-]+\.[\w-]+$/

async function readFile(path: string): Promise<string> {
  const fs = globalThis.process?.getBuiltinModule?.('node:fs')
  if (fs === undefined) throw new TypeError('workload({ file }) needs Node')
  return fs.promises.readFile(path, 'utf8').catch((error: NodeJS.ErrnoException) => {
    throw unusable(`The file ${path} cannot be read (${error.code})`)
  })
}

export interface EnterpriseOptions {
  /** The identity provider of the company, as it calls itself. */
  readonly issuer: string
  /** This program as the identity provider knows it. */
  readonly client: Pick<GivenClient, 'id' | 'secret' | 'privateKey'>
  /** Returns an ID token of the person, from a login of your own. Default: `login` obtains one. */
  readonly idToken?: () => string | Promise<string>
  /** Called when a person has to log in at the identity provider, such as `loopback({ … })`. Default: none. */
  readonly login?: () => Promise<LoginAttempt> | LoginAttempt
  /** The scopes of that login. Default: `openid`, and `offline_access` where the identity provider offers it. */
  readonly scopes?: readonly string[]
  /** Sends the requests to the identity provider. Default: the platform's `fetch`. */
  readonly fetch?: AuthFetch
  /** The limit for one of those requests. Default: 20 s. */
  readonly timeoutMs?: number
}

const ENTERPRISE = defineOptions('enterprise', {
  issuer: text(''),
  client: unchecked<EnterpriseOptions['client']>({ id: '' }),
  idToken: callable(),
  login: callable(),
  scopes: unchecked<readonly string[]>(),
  fetch: callable(),
  timeoutMs: number(20_000),
} satisfies OptionsOf<EnterpriseOptions>)

const TOKEN_EXCHANGE = 'urn:ietf:params:oauth:grant-type:token-exchange'
const ID_JAG = 'urn:ietf:params:oauth:token-type:id-jag'
const ID_TOKEN = 'urn:ietf:params:oauth:token-type:id_token'

/**
 * Obtains tokens through the identity provider of a company (enterprise-managed authorization): pass it to `oauth` as `grant`. A
 * person logs in there once, and the company decides which servers that person may use.
 *
 * @example
 * ```ts
 * const asEmployee = oauth({
 *   client: { id: 'desk', secret, issuer: 'https://login.example.com' },
 *   grant: enterprise({
 *     issuer: 'https://id.company.example',
 *     client: { id: 'desk-at-company', secret: companySecret },
 *     login: loopback({ onLink: ({ url }) => console.log(url.href) }),
 *   }),
 * })
 * ```
 */
export function enterprise(options: EnterpriseOptions): AssertionGrant {
  const { issuer, client, idToken, login } = ENTERPRISE.read(options)
  if (!URL.canParse(issuer) || client.id === '')
    throw new TypeError('enterprise needs the issuer of the identity provider, and the client that it knows')
  if ((idToken === undefined) === (login === undefined))
    throw new TypeError('enterprise needs either idToken or login')
  return createEnterprise(options)
}

/** Recreates a grant of another process, which a token store has kept. */
export function restoreGrant(
  stored: StoredGrant,
  { fetch, timeoutMs }: Pick<EnterpriseOptions, 'fetch' | 'timeoutMs'>,
): AssertionGrant {
  if (stored.kind === 'workload') return workload({ file: stored.file, env: stored.env })
  return createEnterprise({ issuer: stored.issuer, client: stored.client, fetch, timeoutMs })
}

function createEnterprise(options: EnterpriseOptions): AssertionGrant {
  const { issuer, client: given, idToken, login, ...rest } = ENTERPRISE.read(options)
  const server = new URL(issuer)
  const reach = { server, trusted: issuer, fetch: rest.fetch, timeoutMs: rest.timeoutMs }
  const request = createSafeFetch(reach)
  let held: { readonly idToken: string; readonly until: number } | undefined
  let refreshToken: string | undefined

  const keep = ({ idToken, tokens }: Granted): string => {
    refreshToken = tokens.refreshToken
    if (idToken === undefined) throw unusable(`${issuer} issued no ID token; request the scope openid`)
    held = { idToken, until: expiryOf(idToken) - EARLY_MS }
    return idToken
  }
  const contextOf = async ({ now }: AssertionRequest): Promise<GrantContext> => {
    const as = await readIssuer({ ...reach, request }, issuer)
    return { as, server, client: givenClient(as, given), given, request, now }
  }
  /** Returns an ID token for the refresh token; undefined if there is none, or the identity provider has ended the login. */
  const refresh = async (asked: AssertionRequest): Promise<string | undefined> => {
    const { stored } = asked
    // Another process may have replaced it.
    if (stored?.kind === 'enterprise' && stored.issuer === issuer && stored.client.id === given.id)
      refreshToken = stored.refreshToken
    if (refreshToken === undefined) return undefined
    try {
      return keep(await grantByRefresh(await contextOf(asked), refreshToken))
    } catch (error) {
      if (oauthCode(error) !== 'invalid_grant') throw error
      refreshToken = undefined
      return undefined
    }
  }
  const logIn = async (asked: AssertionRequest): Promise<string> => {
    if (held !== undefined && held.until > asked.now()) return held.idToken
    const refreshed = await refresh(asked)
    if (refreshed !== undefined) return refreshed
    if (login === undefined || !asked.attended)
      throw new RondoError('PEER_LOGIN', `The login at ${issuer} has ended`, {
        data: { server: issuer, scopes: [] },
      })
    const attempt = await login()
    try {
      const context = await contextOf(asked)
      const { redirectUri, visit } = attempt
      const scopes =
        rest.scopes ?? OFFLINE.filter((one) => one === 'openid' || context.as.scopes_supported?.includes(one))
      const signal = asked.signal
      return keep(await grantByCode(context, { redirectUri, scopes, signal, visit: (link) => visit(link) }))
    } finally {
      await attempt.close?.()
    }
  }

  return {
    kind: 'jwt-bearer',
    async assertion(asked) {
      const subject = idToken ? await idToken() : await logIn(asked)
      const as = await readIssuer({ ...reach, request }, issuer)
      const client = givenClient(as, given)
      const parameters = {
        requested_token_type: ID_JAG,
        subject_token: subject,
        subject_token_type: ID_TOKEN,
        audience: asked.issuer,
        resource: asked.resource,
        ...(asked.scopes.length > 0 && { scope: asked.scopes.join(' ') }),
      }
      return explain(issuer, 'obtain an identity assertion', [subject, given.secret], async () => {
        const known = { client_id: client.id }
        const method = await authentication(as, client, given)
        const response = await genericTokenEndpointRequest(
          as,
          known,
          method,
          TOKEN_EXCHANGE,
          parameters,
          requestOptions({ request }),
        )
        const issued = await processGenericTokenEndpointResponse(as, known, response, {
          recognizedTokenTypes: { n_a: () => {} },
        })
        if (issued.issued_token_type !== ID_JAG || issued.token_type !== 'n_a')
          throw unusable(`${issuer} issued another token than an identity assertion (${ID_JAG})`)
        checkAssertion(issued.access_token, asked, issuer)
        return issued.access_token
      })
    },
    stored() {
      const { id, secret } = given
      // A private key stays in the process that was given it.
      if (refreshToken === undefined || given.privateKey !== undefined) return undefined
      return { kind: 'enterprise', issuer, client: { id, ...(secret && { secret }) }, refreshToken }
    },
  }
}

const OFFLINE: readonly string[] = ['openid', 'offline_access']

/** An ID token is replaced this long before it expires. */
const EARLY_MS = 30_000

/** Refuses an assertion for anybody or anything else. Its signature is for the authorization server to verify. */
function checkAssertion(assertion: string, asked: AssertionRequest, issuer: string): void {
  const header = partOf(assertion, 0)
  const claims = partOf(assertion, 1)
  const audiences = [claims?.aud].flat()
  const problem =
    header?.typ !== 'oauth-id-jag+jwt'
      ? 'that is not of the type oauth-id-jag+jwt'
      : claims?.iss !== undefined && !isSameUrl(claims.iss, issuer)
        ? 'of another issuer'
        : audiences.length !== 1 || !isSameUrl(audiences[0], asked.issuer)
          ? `for another authorization server than ${asked.issuer}`
          : claims?.resource !== undefined && ![claims.resource].flat().every((one) => one === asked.resource)
            ? `for another resource than ${asked.resource}`
            : claims?.client_id !== undefined && claims.client_id !== asked.client
              ? `for another client than ${asked.client}`
              : undefined
  if (problem !== undefined) throw unusable(`${issuer} issued an identity assertion ${problem}`)
}

function isSameUrl(one: unknown, other: string): boolean {
  return typeof one === 'string' && URL.canParse(one) && new URL(one).href === new URL(other).href
}

function partOf(token: string, index: number): Readonly<Record<string, unknown>> | undefined {
  try {
    const part = (token.split('.')[index] ?? '').replaceAll('-', '+').replaceAll('_', '/')
    const bytes = Uint8Array.from(atob(part), (one) => one.charCodeAt(0))
    const value: unknown = JSON.parse(new TextDecoder().decode(bytes))
    return isRecord(value) ? value : undefined
  } catch {
    return undefined
  }
}

function expiryOf(idToken: string): number {
  const exp = partOf(idToken, 1)?.exp
  return typeof exp === 'number' ? exp * 1_000 : 0
}
