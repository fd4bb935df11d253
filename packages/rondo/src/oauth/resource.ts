/**
 * `oauthResource`: an `authenticate` for servers that accept access tokens of an authorization server. It reads the token,
 * has it verified, remembers the outcome for a short time, and describes the server to clients (RFC 9728).
 *
 * resource 1: A client learns nothing from a refusal but that its token is not valid here; the reason is in the log.
 *             A token that cannot be verified at the moment is not refused: the client retries with it (503).
 * resource 2: A verified token is remembered by its SHA-256, for at most a minute and never beyond its expiry. What was
 *             refused is not remembered, so nobody can fill the cache without tokens that the issuer signed.
 */

import { misuse } from '../errors.ts'
import { isRecord } from '../lib/json.ts'
import { keepToken } from '../lib/subject-token.ts'
import { clock, defineOptions, flag, number, type OptionsOf, text, unchecked } from '../options.ts'
import type { Principal } from '../protocol/call.ts'
import type { Authenticate, AuthRefusal, AuthRequest, ProtectedResource } from '../serve/http/authenticate.ts'
import { assertScopes } from '../tool/target.ts'
import { type ClaimRules, clientOf, findProblem, grantedBy, type TokenClaims, toPrincipal } from './claims.ts'
import {
  assertJwtOptions,
  createJwtVerifier,
  type Issuer,
  JWT_CHECKS,
  type JwtChecks,
  type JwtOptions,
  type JwtSetup,
  type Verified,
} from './jwt.ts'
import {
  createPossession,
  DEFAULT_PROOFS,
  type DpopOptions,
  hashOf,
  PROOF_ALGORITHMS,
  type Presented,
} from './possession.ts'
import {
  assertIntrospectionOptions,
  createIntrospection,
  type Fetch,
  type IntrospectionOptions,
  isSecure,
} from './remote.ts'

/** A way to verify tokens. Create one with `jwt` or `introspection`, or pass a function. */
export type TokenCheck =
  | { readonly kind: 'jwt'; readonly options: JwtOptions }
  | { readonly kind: 'introspection'; readonly options: IntrospectionOptions }

/** Returns the claims of a valid token, `undefined` for any other. Issuer, audience and times are checked afterwards. */
export type VerifyToken = (token: string) => TokenClaims | undefined | Promise<TokenClaims | undefined>

export interface OAuthResourceOptions {
  /** The URL of the endpoint as clients know it: https, except on this machine. */
  resource: string
  /**
   * The authorization servers whose tokens are accepted, exactly as they write themselves in `iss`; `{ issuer, jwks }` for one
   * without metadata, where `jwks` is the address of its keys, or `{ keys }`.
   */
  issuers: readonly (string | Issuer)[]
  /** Scopes that every request needs, announced as `scopes_supported`. Default: none. */
  scopes?: readonly string[]
  /** The `aud` of tokens for this server: a string, or a list of which a token must contain one. Default: `resource`. */
  audience?: string | readonly string[]
  /** `jwt(…)`, `introspection(…)`, or a function from a token to its claims, or to `undefined`. Default: `jwt()`. */
  tokens?: TokenCheck | VerifyToken
  /** True if the scope `granted` includes the scope `required`; it is not called for equal scopes. Default: equal scopes only. */
  implies?: (granted: string, required: string) => boolean
  /**
   * The client that a token was issued to, from its claims; `undefined` leaves it out of the principal. Default: `client_id`,
   * `azp` or `appid`, and a token without any is refused.
   */
  client?: (claims: TokenClaims) => string | undefined
  /** The scopes of a token, from its claims. Default: `scope` or `scp`. */
  granted?: (claims: TokenClaims) => readonly string[]
  /** How far the clocks of issuer and server may differ. Default: 60 s. */
  clockSkewMs?: number
  /** How long a verified token is remembered, at most 60 s and never beyond its expiry; 0 for not at all. Default: 60 s. */
  cacheMs?: number
  /** How many verified tokens are remembered. Default: 10,000. */
  cacheEntries?: number
  /**
   * Accepts tokens that are bound to a key with DPoP, and checks the proof of every request. `{}` or `true` for the defaults.
   * Default: such tokens are refused.
   */
  dpop?: boolean | DpopOptions
  /**
   * The header in which your proxy passes the certificate of a client with mutual TLS, such as `client-cert`; accepts tokens that
   * are bound to a certificate. The proxy must remove this header from requests that it receives. Default: such tokens are refused.
   */
  certificateHeader?: string
  /** More members of the metadata document, such as `resource_name` and `resource_documentation`. Default: none. */
  metadata?: Readonly<Record<string, unknown>>
  /** Sends the requests to the authorization server. Default: the global `fetch`. */
  fetch?: Fetch
  /** The clock, in ms since the epoch. Default: `Date.now`. */
  now?: () => number
}

export interface OAuthResource extends Authenticate {
  readonly resource: ProtectedResource & {
    readonly metadataUrl: string
    readonly url: string
    /** The value of `WWW-Authenticate` for a proof that is not valid (RFC 9449, 7.1). */
    readonly proofChallenge: string
  }
  /**
   * Verifies a bearer token as a request would: for entrances of your own. A token that is bound to a key is refused; pass
   * such requests to `oauthResource` itself.
   */
  verify(token: string): Promise<Principal | RefusedToken>
}

export interface RefusedToken {
  /** For the operator. */
  readonly refused: string
  /** The seconds of `Retry-After` in a response with 503: whether the token is valid cannot be found out at the moment. */
  readonly retryAfter?: number
}

const MAX_CACHE_MS = 60_000

/** As long as keys that could not be fetched are not tried again. */
const RETRY_SECONDS = 5

const OPTIONS = defineOptions('oauthResource', {
  resource: unchecked(),
  issuers: unchecked(),
  scopes: unchecked(),
  audience: unchecked(),
  tokens: unchecked(),
  implies: unchecked(),
  client: unchecked(),
  granted: unchecked(),
  clockSkewMs: number(60_000, { finite: true }),
  cacheMs: number(MAX_CACHE_MS, { finite: true }),
  cacheEntries: number(10_000, { finite: true }),
  dpop: unchecked(),
  certificateHeader: text(),
  metadata: unchecked(),
  fetch: unchecked(),
  now: clock,
} satisfies OptionsOf<OAuthResourceOptions>)

/**
 * Verifies access tokens that are JSON Web Tokens, with the published keys of their issuer: pass it to `oauthResource` as `tokens`.
 *
 * @example
 * ```ts
 * const withJwt = oauthResource({
 *   resource: 'https://tables.example.com/mcp',
 *   issuers: ['https://login.example.com'],
 *   tokens: jwt({ algorithms: ['ES256'] }),
 * })
 * ```
 */
export function jwt(options: JwtOptions = {}): TokenCheck {
  assertJwtOptions(options)
  return { kind: 'jwt', options }
}

/**
 * Verifies access tokens by asking their issuer about each that is not remembered: pass it to `oauthResource` as `tokens`. For one issuer.
 *
 * @example
 * ```ts
 * const asking = oauthResource({
 *   resource: 'https://tables.example.com/mcp',
 *   issuers: ['https://login.example.com'],
 *   tokens: introspection({ client: { id: 'tables', secret } }),
 * })
 * ```
 */
export function introspection(options: IntrospectionOptions): TokenCheck {
  assertIntrospectionOptions(options)
  return { kind: 'introspection', options }
}

/**
 * Accepts access tokens: `createServer({ authenticate: oauthResource({ … }) })`.
 *
 * @example
 * ```ts
 * const authenticate = oauthResource({
 *   resource: 'https://tables.example.com/mcp',
 *   issuers: ['https://login.example.com'],
 * })
 * const server = createServer({ name: 'tables', version: '1.0.0', authenticate })
 * ```
 */
export function oauthResource(options: OAuthResourceOptions): OAuthResource {
  OPTIONS.assert(options)
  return createResource(options, JWT_CHECKS)
}

/** `checks` are parts of the verification that a test leaves out, one at a time. */
export function createResource(options: OAuthResourceOptions, checks: JwtChecks): OAuthResource {
  const { now, fetch = globalThis.fetch, clockSkewMs, cacheMs, cacheEntries } = OPTIONS.read(options)
  const dpop = readDpop(options)
  const resource = describe(options)
  const issuers = readIssuers(options)
  const possession = createPossession({
    dpop,
    certificateHeader: options.certificateHeader?.toLowerCase(),
    url: options.resource,
    now,
    checks: checks.proof,
  })
  const rules: ClaimRules = {
    issuers: issuers.map(({ issuer }) => issuer),
    audiences: audiencesOf(options),
    skew: clockSkewMs / 1000,
    client: options.client ?? clientOf,
    granted: options.granted ?? grantedBy,
    bindings: possession.members,
  }
  const verify = toVerifier(options.tokens ?? jwt(), { issuers, rules, fetch, now }, checks)
  const cache = createTokenCache(Math.min(cacheMs, MAX_CACHE_MS), cacheEntries, now)
  /** Requests with a token that is being verified wait for the same verification. */
  const verifying = new Map<string, Promise<Identity>>()

  const identify = async (token: string, key: string): Promise<Identity> => {
    try {
      const verified = await verify(token)
      if (verified.kind === 'refused') return { refused: verified.problem }
      if (verified.kind === 'undecided') return undecided(verified.problem)
      const principal = toPrincipal(verified.claims, rules)
      keepToken(principal, token)
      cache.set(key, principal, verified.claims.exp as number)
      return principal
    } catch (error) {
      return undecided(`Verifying the token failed unexpectedly (${nameOf(error)}).`)
    } finally {
      verifying.delete(key)
    }
  }
  const identifyOnce = async ({ token, digest }: Presented): Promise<Identity> => {
    const known = cache.get(digest) ?? verifying.get(digest)
    if (known !== undefined) return known
    const started = identify(token, digest)
    verifying.set(digest, started)
    return started
  }
  /** Identifies the caller who presents a token, which takes a proof for a token that is bound to a key. */
  const identifyCaller = async (
    presented: Presented,
    request: AuthRequest | undefined,
  ): Promise<Principal | (RefusedToken & { readonly isProof?: boolean })> => {
    const identity = await identifyOnce(presented)
    if ('refused' in identity) return identity
    try {
      const unproven = await possession.findProblem(presented, identity.claims?.cnf, request)
      if (unproven === undefined) return identity
      const { problem, blame } = unproven
      return blame === 'none' ? undecided(problem) : { refused: problem, isProof: blame === 'proof' }
    } catch (error) {
      return undecided(`The store of proofs (dpop.store) failed (${nameOf(error)}).`)
    }
  }
  const noToken: AuthRefusal = { status: 401, headers: challengeHeader(resource, undefined) }
  const badToken = challengeHeader(resource, 'invalid_token')
  const badProof = { 'WWW-Authenticate': resource.proofChallenge }

  const authenticate: Authenticate = async (request) => {
    const header = request.headers('authorization')
    if (header === undefined) return noToken
    const presented = readToken(header, dpop !== undefined)
    if (presented === undefined) {
      if (!BEARER.test(header)) return noToken
      return {
        status: 401,
        headers: badToken,
        reason: 'The Authorization header has no single bearer token.',
      }
    }
    const identity = await identifyCaller(presented, request)
    if (!('refused' in identity)) return identity
    const { refused: reason, retryAfter, isProof } = identity
    if (retryAfter !== undefined)
      return { status: 503, headers: { 'Retry-After': String(retryAfter) }, reason }
    return { status: 401, headers: isProof ? badProof : badToken, reason }
  }
  return Object.assign(authenticate, {
    resource,
    verify: (token: string) => identifyCaller({ scheme: 'bearer', token, digest: hashOf(token) }, undefined),
  })
}

type Identity = Principal | RefusedToken

function undecided(problem: string): RefusedToken {
  return { refused: problem, retryAfter: RETRY_SECONDS }
}

function nameOf(error: unknown): string {
  return error instanceof Error ? error.name : typeof error
}

const BEARER = /^bearer(?:[ \t]|$)/i
/** RFC 6750, 2.1, and RFC 9449, 7.1. */
const PRESENTED = /^(bearer|dpop) +([A-Za-z0-9._~+/-]+=*)[ \t]*$/i

function readToken(header: string, isBindable: boolean): Presented | undefined {
  const [, name = '', token = ''] = PRESENTED.exec(header) ?? []
  const scheme = name.toLowerCase()
  if (scheme !== 'bearer' && !(scheme === 'dpop' && isBindable)) return undefined
  return { scheme, token, digest: hashOf(token) }
}

function challengeHeader(
  resource: ProtectedResource,
  error: 'invalid_token' | undefined,
): Record<string, string> {
  return { 'WWW-Authenticate': resource.challenge(error, resource.scopes) }
}

interface TokenCache {
  get(key: string): Principal | undefined
  /** `exp` in seconds. */
  set(key: string, principal: Principal, exp: number): void
}

function createTokenCache(lifeMs: number, maxEntries: number, now: () => number): TokenCache {
  const entries = new Map<string, { readonly principal: Principal; readonly until: number }>()
  return {
    get(key) {
      const entry = entries.get(key)
      if (entry === undefined || now() < entry.until) return entry?.principal
      entries.delete(key)
      return undefined
    },
    set(key, principal, exp) {
      const until = Math.min(exp * 1000, now() + lifeMs)
      if (maxEntries < 1 || !(until > now())) return
      entries.delete(key)
      // The oldest goes first. It lives for a minute at most, so it hardly matters which one goes.
      for (const oldest of entries.keys()) {
        if (entries.size < maxEntries) break
        entries.delete(oldest)
      }
      entries.set(key, { principal, until })
    },
  }
}

function isCheck(tokens: unknown): boolean {
  return typeof tokens === 'function' || (isRecord(tokens) && isRecord(tokens.options))
}

function toVerifier(
  tokens: TokenCheck | VerifyToken,
  setup: JwtSetup,
  checks: JwtChecks,
): (token: string) => Promise<Verified> {
  if (tokens === (jwt as unknown) || tokens === (introspection as unknown) || !isCheck(tokens)) {
    throw misuse('tokens must be jwt(…), introspection(…), or a function from a token to its claims.')
  }
  if (typeof tokens === 'function') {
    return async (token) => {
      const claims = await tokens(token)
      if (claims === undefined)
        return { kind: 'refused', problem: 'The function tokens does not accept the token.' }
      const problem = findProblem(checks.claims, claims, setup.rules, setup.now() / 1000)
      return problem === undefined ? { kind: 'claims', claims } : { kind: 'refused', problem }
    }
  }
  if (tokens.kind === 'jwt') return createJwtVerifier(tokens.options, setup, checks)
  if (setup.issuers.length !== 1) throw misuse('introspection works with exactly one issuer.')
  return createIntrospection(tokens.options, setup, checks.claims, checks.remote)
}

function describe(options: OAuthResourceOptions): OAuthResource['resource'] {
  const { scopes = [], implies } = options
  const dpop = readDpop(options)
  const url = readUrl('resource', options.resource)
  assertScopes('The scopes of oauthResource', scopes)
  if (scopes.includes('offline_access')) {
    throw misuse(
      'A server does not ask for offline_access: whether to get refresh tokens is up to the client.',
    )
  }
  const path = url.pathname.replace(/\/$/, '')
  const metadataUrl = `${url.origin}${WELL_KNOWN}${path}`
  const document = {
    ...options.metadata,
    resource: options.resource,
    authorization_servers: readIssuers(options).map(({ issuer }) => issuer),
    ...(scopes.length > 0 && { scopes_supported: scopes }),
    bearer_methods_supported: ['header'],
    ...(dpop && {
      dpop_signing_alg_values_supported: PROOF_ALGORITHMS,
      dpop_bound_access_tokens_required: dpop.required === true,
    }),
    ...(options.certificateHeader && { tls_client_certificate_bound_access_tokens: true }),
  }
  const algs = `algs="${PROOF_ALGORITHMS.join(' ')}"`
  return {
    scopes,
    implies,
    url: options.resource,
    metadataUrl,
    paths: [...new Set([`${WELL_KNOWN}${path}`, WELL_KNOWN])],
    document: JSON.stringify(document),
    challenge(error, needed) {
      const parts = [
        ...(error === undefined ? [] : [`error="${error}"`]),
        ...(error === undefined ? [] : [`error_description="${DESCRIPTIONS[error]}"`]),
        ...(needed.length > 0 ? [`scope="${needed.join(' ')}"`] : []),
        `resource_metadata="${metadataUrl}"`,
      ].join(', ')
      if (dpop?.required) return `DPoP ${algs}, ${parts}`
      return dpop ? `Bearer ${parts}, DPoP ${algs}` : `Bearer ${parts}`
    },
    proofChallenge: `DPoP error="invalid_dpop_proof", ${algs}, resource_metadata="${metadataUrl}"`,
  }
}

function readDpop({ dpop }: OAuthResourceOptions): DpopOptions | undefined {
  if (dpop === undefined || dpop === false) return undefined
  const options = DPOP.read(dpop === true ? {} : dpop)
  if (options.store !== undefined && typeof options.store.once?.claim !== 'function')
    throw misuse('oauthResource: dpop.store must be a store, such as createSqliteStore({ … }).')
  return options
}

const DPOP = defineOptions('oauthResource: dpop', {
  required: flag(false),
  store: unchecked(),
  windowMs: number(60_000, { finite: true }),
  maxProofs: number(DEFAULT_PROOFS.maxProofs, { finite: true }),
  maxProofsPerKey: number(DEFAULT_PROOFS.maxProofsPerKey, { finite: true }),
} satisfies OptionsOf<DpopOptions>)

const WELL_KNOWN = '/.well-known/oauth-protected-resource'
const DESCRIPTIONS = {
  invalid_token: 'The access token is not valid for this server',
  insufficient_scope: 'The access token lacks a scope that this request needs',
} as const

function readIssuers({ issuers }: OAuthResourceOptions): readonly Issuer[] {
  if (!Array.isArray(issuers) || issuers.length === 0) {
    throw misuse(
      "oauthResource needs issuers: ['https://id.example.com'], the authorization servers it trusts.",
    )
  }
  return issuers.map((given: string | Issuer) => {
    const issuer = typeof given === 'string' ? { issuer: given } : given
    if (!isRecord(issuer) || issuer.issuer === undefined) {
      throw misuse('An entry of issuers must be a URL, or { issuer, jwks } with the URL as issuer.')
    }
    readUrl('issuers', issuer.issuer)
    if (typeof issuer.jwks === 'string') readUrl('jwks', issuer.jwks)
    return issuer
  })
}

/** The root of a server may be written with a slash or without: both are the same URL. Any other URL is what it is. */
function audiencesOf({ resource, audience }: OAuthResourceOptions): readonly string[] {
  if (audience === undefined) {
    const { origin, pathname, search } = new URL(resource)
    return pathname === '/' && search === '' ? [resource, origin, `${origin}/`] : [resource]
  }
  const audiences: readonly unknown[] = typeof audience === 'string' ? [audience] : audience
  if (audiences.length > 0 && audiences.every((one) => typeof one === 'string' && one !== '')) {
    return audiences as readonly string[]
  }
  throw misuse('audience must be a string, or a list of them: what the tokens for this server have in aud.')
}

function readUrl(option: string, value: unknown): URL {
  const url = typeof value === 'string' && URL.canParse(value) ? new URL(value) : undefined
  if (url !== undefined && isSecure(url) && url.hash === '' && url.username === '') return url
  throw misuse(
    `${option} of oauthResource must be an https URL without a fragment (http only on this machine); got ${JSON.stringify(value)}.`,
  )
}
