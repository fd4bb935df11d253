/**
 * Requests to an authorization server: its metadata, its keys, its introspection endpoint. What comes back is limited in
 * bytes and in time, and no redirect is followed: the operator named a host, and nobody else may name another.
 */

import { misuse } from '../errors.ts'
import { isLoopback, isPublic } from '../lib/address.ts'
import { readWebBody } from '../lib/body.ts'
import { isRecord, parseGuarded } from '../lib/json.ts'
import { defineOptions, number, type OptionsOf, text, unchecked } from '../options.ts'
import { type ClaimCheck, findProblem } from './claims.ts'
import type { JwtSetup, Verified } from './jwt.ts'

/** The reason why something could not be fetched, for the operator. */
export class RemoteFault extends Error {}

export type Fetch = (url: string, init: RequestInit) => Promise<Response>

export interface RemoteLimits {
  readonly timeoutMs: number
  readonly maxBytes: number
}

const REMOTE_LIMITS: RemoteLimits = { timeoutMs: 5_000, maxBytes: 256 * 1024 }

/** Rejects with a `RemoteFault`. */
async function fetchJson(
  fetch: Fetch,
  url: string,
  limits: RemoteLimits = REMOTE_LIMITS,
  init: RequestInit = {},
): Promise<Record<string, unknown>> {
  const signal = AbortSignal.timeout(limits.timeoutMs)
  const late = new Promise<never>((_resolve, reject) => {
    signal.addEventListener('abort', () =>
      reject(new RemoteFault(`${url} did not answer within ${limits.timeoutMs} ms`)),
    )
  })
  late.catch(() => {})
  const headers = { accept: 'application/json', ...(init.headers as Record<string, string> | undefined) }
  const read = async (): Promise<Record<string, unknown>> => {
    const response = await request(fetch, url, { ...init, headers, signal, redirect: 'manual' })
    return toRecord(url, await readText(url, response, limits.maxBytes))
  }
  return Promise.race([read(), late])
}

async function request(fetch: Fetch, url: string, init: RequestInit): Promise<Response> {
  let response: Response
  try {
    response = await fetch(url, init)
  } catch (cause) {
    const { code } = ((cause instanceof Error && cause.cause) || {}) as { code?: unknown }
    throw new RemoteFault(`${url} cannot be reached${typeof code === 'string' ? ` (${code})` : ''}`, {
      cause,
    })
  }
  if (response.status === 200) return response
  await response.body?.cancel().catch(() => {})
  const redirects = response.type === 'opaqueredirect' || (response.status >= 300 && response.status < 400)
  throw new RemoteFault(
    redirects
      ? `${url} redirects elsewhere, which is not followed: name the final address`
      : `${url} responded with status ${response.status}`,
  )
}

async function readText(url: string, response: Response, maxBytes: number): Promise<string> {
  const body = await readWebBody(response.body, { limit: maxBytes })
  if (body.kind === 'whole') return new TextDecoder().decode(body.bytes)
  if (body.kind === 'broken')
    throw new RemoteFault(`The response of ${url} is incomplete`, { cause: body.error })
  throw new RemoteFault(`The response of ${url} is longer than ${maxBytes} bytes`)
}

function toRecord(url: string, text: string): Record<string, unknown> {
  const parsed = parseGuarded(text)
  if (parsed.kind === 'ok' && isRecord(parsed.value)) return parsed.value
  throw new RemoteFault(`The response of ${url} is not a JSON object`)
}

/** Reads the metadata of an authorization server, as RFC 8414 and OpenID Connect Discovery place it. */
async function discover(
  fetch: Fetch,
  issuer: string,
  limits?: RemoteLimits,
): Promise<Record<string, unknown>> {
  let first: unknown
  for (const url of metadataUrls(issuer)) {
    try {
      const metadata = await fetchJson(fetch, url, limits)
      if (metadata.issuer === issuer) return metadata
      throw new RemoteFault(`${url} is the metadata of another issuer than "${issuer}"`)
    } catch (error) {
      first ??= error
    }
  }
  throw first
}

function metadataUrls(issuer: string): readonly string[] {
  const { origin, pathname } = new URL(issuer)
  const path = pathname.replace(/\/$/, '')
  return [
    `${origin}${path}/.well-known/openid-configuration`,
    `${origin}/.well-known/oauth-authorization-server${path}`,
  ]
}

/** True for https, and for http on this machine. */
export function isSecure(url: URL): boolean {
  return url.protocol === 'https:' || (url.protocol === 'http:' && isLoopback(url.hostname))
}

/** Returns why the metadata of an issuer may not point there: it is not secure, or it leads into a network that the issuer is not in. */
function addressProblem(issuer: string, address: unknown, member: string): string | undefined {
  if (typeof address !== 'string' || !URL.canParse(address)) return `The metadata has no ${member}`
  const [from, to] = [new URL(issuer), new URL(address)]
  if (to.protocol !== 'https:' && !(isSecure(from) && from.protocol === 'http:' && isSecure(to)))
    return `The ${member} of "${issuer}" is not an https address`
  if (to.hostname !== from.hostname && !isPublic(to.hostname))
    return `The ${member} of "${issuer}" leads to an internal address`
  return undefined
}

// The public keys of one issuer. They are fetched when a token needs them, and at most once per cooldown: a token with an
// unknown key id, or any number of them, cannot cause a storm of requests. Requests share one fetch that is under way.
//
// keys 1: At most one fetch per cooldown; while there are no keys at all, one per `RETRY_MS`.
// keys 2: Keys that are older than `maxAgeMs` are fetched again. If that fails, they serve on for `staleMs`.
//   A token whose key is not among them is undecided then: it may be signed with a newer one.
// keys 3: Only public keys for signatures count. A private key in the set is a leak, and whoever reads it can sign.

/** A key as it is published, narrowed to what is looked at here. */
export type PublishedKey = Readonly<Record<string, unknown>>

export interface KeySetOptions {
  readonly issuer: string
  /** Where the keys are, or the keys themselves. Default: the `jwks_uri` of the issuer's metadata. */
  readonly jwks?: string | { readonly keys: readonly PublishedKey[] }
  readonly fetch: Fetch
  readonly now: () => number
  readonly cooldownMs: number
  readonly maxAgeMs: number
  readonly limits?: RemoteLimits
}

export interface KeySet {
  /**
   * Returns the keys, as fresh as the cooldown allows if `isKnown` finds none among those that are held. Rejects with a `RemoteFault` if
   * they cannot be fetched.
   */
  keys(isKnown: (keys: readonly PublishedKey[]) => boolean): Promise<readonly PublishedKey[]>
}

const RETRY_MS = 5_000
const STALE_MS = 60 * 60_000

interface Held {
  readonly keys: readonly PublishedKey[]
  readonly at: number
}

export function createKeySet(options: KeySetOptions): KeySet {
  const { jwks, now, cooldownMs, maxAgeMs } = options
  if (typeof jwks === 'object') return { keys: async () => jwks.keys }
  let held: Held | undefined
  let triedAt: number | undefined
  let fault: unknown
  let fetching: Promise<void> | undefined
  let address = jwks

  const load = async (): Promise<void> => {
    try {
      address ??= await findAddress(options)
      const set = await fetchJson(options.fetch, address, options.limits)
      if (!Array.isArray(set.keys)) throw new RemoteFault(`${address} is not a set of keys`)
      held = { keys: set.keys.filter(isRecord), at: now() }
      fault = undefined
    } catch (error) {
      fault = error
      // The metadata may have changed.
      address = jwks
    } finally {
      fetching = undefined
    }
  }
  const mayTry = (): boolean =>
    triedAt === undefined ||
    now() - triedAt >= (held === undefined ? Math.min(RETRY_MS, cooldownMs) : cooldownMs)

  const heldFor = (ms: number): Held | undefined => (held && now() - held.at < ms ? held : undefined)

  return {
    async keys(isKnown) {
      const fresh = heldFor(maxAgeMs)
      if (fresh === undefined || !isKnown(fresh.keys)) {
        if (fetching === undefined && mayTry()) {
          triedAt = now()
          fetching = load()
        }
        await fetching
      }
      const usable = heldFor(maxAgeMs + STALE_MS)
      if (usable !== undefined && (fault === undefined || isKnown(usable.keys))) return usable.keys
      throw fault ?? new RemoteFault(`The keys of "${options.issuer}" are not known yet`)
    },
  }
}

async function findAddress({ issuer, fetch, limits }: KeySetOptions): Promise<string> {
  const { jwks_uri: address } = await discover(fetch, issuer, limits)
  const problem = addressProblem(issuer, address, 'jwks_uri')
  if (problem !== undefined) throw new RemoteFault(problem)
  return address as string
}

// Access tokens that only their issuer can read (RFC 7662): each is sent to the introspection endpoint, with the server's own
// credentials. Whoever sends made-up tokens causes such requests, so their number at a time is limited.

export interface IntrospectionOptions {
  /** `{ id, secret }`: this server's credentials at the authorization server. */
  client: { readonly id: string; readonly secret: string }
  /** The introspection endpoint. Default: from the issuer's metadata. */
  endpoint?: string
  /** How many tokens are introspected at the same time; beyond that, requests with others get 503. Default: 64. */
  maxConcurrent?: number
}

const OPTIONS = defineOptions('introspection', {
  client: unchecked(),
  endpoint: text(),
  maxConcurrent: number(64, { min: 1 }),
} satisfies OptionsOf<IntrospectionOptions>)

export function assertIntrospectionOptions(given: IntrospectionOptions): void {
  const { client, endpoint }: { client?: unknown; endpoint?: string } = OPTIONS.read(given)
  if (endpoint !== undefined && !(URL.canParse(endpoint) && isSecure(new URL(endpoint))))
    throw misuse(
      `introspection: endpoint must be an https URL (http only on this machine); got ${JSON.stringify(endpoint)}.`,
    )
  if (isRecord(client) && typeof client.id === 'string' && typeof client.secret === 'string') return
  throw misuse("introspection needs this server's credentials: introspection({ client: { id, secret } })")
}

export function createIntrospection(
  options: IntrospectionOptions,
  { issuers: [issuer], rules, fetch, now }: JwtSetup,
  checks: readonly ClaimCheck[],
  limits?: RemoteLimits,
): (token: string) => Promise<Verified> {
  const { client, endpoint, maxConcurrent } = OPTIONS.read(options)
  const iss = issuer?.issuer ?? ''
  const authorization = `Basic ${Buffer.from(`${encode(client.id)}:${encode(client.secret)}`).toString('base64')}`
  let address = endpoint
  let running = 0

  const ask = async (token: string): Promise<Record<string, unknown>> => {
    address ??= await findEndpoint(fetch, iss, limits)
    return fetchJson(fetch, address, limits, {
      method: 'POST',
      headers: { authorization, 'content-type': 'application/x-www-form-urlencoded' },
      body: new URLSearchParams({ token, token_type_hint: 'access_token' }).toString(),
    })
  }

  return async (token) => {
    if (running >= maxConcurrent) {
      return undecided('Too many tokens are being introspected (introspection({ maxConcurrent })).')
    }
    running += 1
    try {
      const response = await ask(token)
      if (response.active !== true) {
        return refused('The issuer says that the token is not active: unknown, expired or revoked.')
      }
      const type = response.token_type
      if (type !== undefined && !isTokenType(type, isRecord(response.cnf))) {
        return refused(
          'The issuer says that the token is no bearer token (token_type), nor bound to a key (cnf).',
        )
      }
      const { active: _active, ...rest } = response
      const claims = { iss, ...rest }
      const problem = findProblem(checks, claims, rules, now() / 1000)
      return problem === undefined ? { kind: 'claims', claims } : refused(problem)
    } catch (error) {
      if (!(error instanceof RemoteFault)) throw error
      return undecided(`The token cannot be introspected: ${error.message}.`)
    } finally {
      running -= 1
    }
  }
}

/** `DPoP` for a token that is bound to a key, `Bearer` for any other; with mutual TLS both are in use. */
function isTokenType(type: unknown, isBound: boolean): boolean {
  const name = typeof type === 'string' ? type.toLowerCase() : ''
  return name === 'bearer' || (name === 'dpop' && isBound)
}

async function findEndpoint(
  fetch: JwtSetup['fetch'],
  issuer: string,
  limits: RemoteLimits | undefined,
): Promise<string> {
  const { introspection_endpoint: address } = await discover(fetch, issuer, limits)
  const problem = addressProblem(issuer, address, 'introspection_endpoint')
  if (problem !== undefined) throw new RemoteFault(problem)
  return address as string
}

/** RFC 6749, 2.3.1: both parts are form-encoded. */
function encode(text: string): string {
  return new URLSearchParams([['', text]]).toString().slice(1)
}

function refused(problem: string): Verified {
  return { kind: 'refused', problem }
}

function undecided(problem: string): Verified {
  return { kind: 'undecided', problem }
}
