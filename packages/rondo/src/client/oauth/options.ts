/** The options of `oauth`, the login that it returns and stores, and the way to log in that most programs use: `loopback`. */

import type { Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { RondoError } from '../../errors.ts'
import { isRecord } from '../../lib/json.ts'
import { callable, defineOptions, number, type OptionsOf, oneOf, text } from '../../options.ts'
import type { ClientAuth } from '../auth.ts'
import type { AuthFetch } from './safe-fetch.ts'

/** The algorithms with which a client may sign. */
export type SigningAlgorithm = 'ES256' | 'ES384' | 'PS256' | 'RS256' | 'Ed25519'

/** A client that was registered at an authorization server by hand. */
export interface GivenClient {
  readonly id: string
  readonly secret?: string
  /** Signs a JWT instead of sending a secret (`private_key_jwt`). */
  readonly privateKey?: {
    /** A `CryptoKey`, or the key as PKCS #8 in PEM form. */
    readonly key: CryptoKey | string
    /** Default ES256. */
    readonly algorithm?: SigningAlgorithm
    readonly keyId?: string
  }
  /**
   * The authorization server that knows the client. Required with a secret or a key: otherwise any server could name an
   * authorization server that collects it.
   */
  readonly issuer?: string
}

export interface IdentityOptions {
  /** A client that was registered by hand: `id`, and `secret` or `privateKey`, which need `issuer`. Default: none. */
  readonly client?: GivenClient
  /** The https URL of a client id metadata document, used where the authorization server supports it. Default: none. */
  readonly clientMetadataUrl?: string
  /** The name with which the client registers itself. Default: `Rondo`. */
  readonly clientName?: string
}

/** A login that a person has to complete. */
export interface LoginLink {
  /** To be opened in a browser. */
  readonly url: URL
  readonly server: URL
  readonly issuer: string
  readonly scopes: readonly string[]
  /** The redirect has this `state`; whoever receives redirects ignores those with another one. */
  readonly state: string
  /** Aborted when nobody waits for the login any more. */
  readonly signal: AbortSignal
}

/** One login of a person: where the authorization server redirects to, and how the redirect comes back. */
export interface LoginAttempt {
  readonly redirectUri: string
  /** Shows the link to a person. Resolves with the URL to which the browser was redirected. */
  visit(link: LoginLink): Promise<URL | string>
  /** Called when the login is over, also if it failed. */
  close?(): Promise<void> | void
}

/** The token request that an assertion is for. */
export interface AssertionRequest {
  /** The authorization server to which the assertion goes: its audience. */
  readonly issuer: string
  /** The client that presents it. */
  readonly client: string
  /** The server for which the token will be valid. */
  readonly resource: string
  readonly scopes: readonly string[]
  readonly signal: AbortSignal
  /** Milliseconds since the epoch. */
  readonly now: () => number
  /** Whether a person may be asked to log in. If not, the grant fails with `PEER_LOGIN` where that is necessary. */
  readonly attended: boolean
  /** The grant as it was stored last, maybe by another process. */
  readonly stored?: StoredGrant
}

/** A grant in which somebody else vouches for the caller: `workload({ … })` or `enterprise({ … })`. */
export interface AssertionGrant {
  readonly kind: 'jwt-bearer'
  /** Returns a signed JSON Web Token. Called for each token. */
  assertion(request: AssertionRequest): Promise<string>
  /** Returns what another process needs to obtain assertions, for the token store. Default: nothing; that process fails with `PEER_LOGIN`. */
  stored?(): StoredGrant | undefined
}

/** A grant in a token store: the place of a workload's token, or the login at an identity provider. */
export type StoredGrant =
  | { readonly kind: 'workload'; readonly file?: string; readonly env?: string }
  | {
      readonly kind: 'enterprise'
      readonly issuer: string
      readonly client: Pick<GivenClient, 'id' | 'secret'>
      readonly refreshToken: string
    }

export interface OAuthOptions extends IdentityOptions {
  /** Called when a person has to log in, such as `loopback({ onLink })`; without it such a request fails with `PEER_LOGIN`. Default: none. */
  readonly login?: () => Promise<LoginAttempt> | LoginAttempt
  /**
   * `client_credentials`: the client acts for itself, and nobody logs in; needs `client` with a secret or a key.
   * `workload({ … })` and `enterprise({ … })`: somebody else vouches for the caller; needs `client` with its issuer.
   * Default: `authorization_code`.
   */
  readonly grant?: 'authorization_code' | 'client_credentials' | AssertionGrant
  /** Scopes to request in addition to those that the server names. Default: none. */
  readonly scopes?: readonly string[]
  /** Requests `offline_access` where the authorization server offers it, for a refresh token. Default: `true`. */
  readonly offlineAccess?: boolean
  /** The authorization server to use, one of those that the server names. Default: the first of them. */
  readonly issuer?: string
  /** The identifier of the server, if its metadata names another one than its URL. Default: the URL. */
  readonly resource?: string
  /**
   * Binds tokens to a key, so nobody else can use them (DPoP). `true` creates a key that never leaves this process; tokens in a
   * store are then of no use to the next process, which logs in again. Default: only if the server requires it.
   */
  readonly dpop?: boolean | CryptoKeyPair
  /** Keeps the tokens: `load`, `save`, `remove`, and `exclusively` if processes share it. Default: memory. */
  readonly store?: TokenStore
  /** Sends the requests for metadata, registration and tokens. Default: the global `fetch`. */
  readonly fetch?: AuthFetch
  /** The time for each of these requests. Default: 20 s. */
  readonly timeoutMs?: number
  /** How long a person may take to log in. Default: 10 minutes. */
  readonly loginTimeoutMs?: number
  /** The clock, in ms since the epoch. Default: `Date.now`. */
  readonly now?: () => number
}

/** `oauth`, with logging in and out without a request. */
export interface OAuth extends ClientAuth {
  /** Logs in now, with the scopes of an earlier login and these. */
  login(server: URL | string, options?: { readonly signal?: AbortSignal }): Promise<StoredLogin>
  /** Forgets the login, and ends it at the authorization server if possible; returns whether that happened. */
  logout(server: URL | string): Promise<boolean>
}

// Receives the redirect of a login on a loopback port, as native applications do (RFC 8252). Needs Node; the module is found
// at run time, so that browsers can bundle this file.
//
// loopback 1: Only a redirect with the right `state` ends the wait. Anything else that reaches the port is refused, so that a
//   web page can neither inject a code nor end the login.

export interface LoopbackOptions {
  /** Shows the link to the person. */
  readonly onLink: (link: LoginLink) => void
  /**
   * The port to receive the redirect on. A client that was registered by hand may need the one it was registered with;
   * 0 picks a free one. Default: 0.
   */
  readonly port?: number
  /** The host of the redirect: `localhost` for authorization servers that accept no other. Default: `127.0.0.1`. */
  readonly host?: '127.0.0.1' | 'localhost'
  /** The path of the redirect. Default: `/callback`. */
  readonly path?: string
}

const LOOPBACK = defineOptions('loopback', {
  onLink: callable(),
  port: number(0, { max: 65_535 }),
  host: oneOf(['127.0.0.1', 'localhost'], '127.0.0.1'),
  path: text('/callback'),
} satisfies OptionsOf<LoopbackOptions>)

const DONE = 'You are logged in. You may close this window.'
const FAILED = 'The login failed. You may close this window.'
const STRANGE = 'This is not the redirect of the login that is going on.'

/**
 * Receives the redirect of a login on this machine: pass it to `oauth` as `login`.
 *
 * @example
 * ```ts
 * const onFixedPort = oauth({ login: loopback({ port: 8765, onLink: ({ url }) => console.log(url.href) }) })
 * ```
 */
export function loopback(options: LoopbackOptions) {
  const { onLink, port, host, path } = LOOPBACK.read(options)
  return async (): Promise<LoginAttempt> => {
    const http = globalThis.process?.getBuiltinModule?.('node:http')
    if (http === undefined)
      throw new TypeError('loopback needs Node; in a browser, pass a `login` of your own')
    let expected: string | undefined
    const arrived = resolvers<URL>()
    arrived.promise.catch(() => {})
    const server = http.createServer((request, response) => {
      const url = URL.canParse(request.url ?? '', origin) ? new URL(request.url ?? '', origin) : undefined
      const own = url?.pathname === path && request.method === 'GET'
      const fits = own && url.searchParams.get('state') === expected
      const text = fits ? (url.searchParams.has('error') ? FAILED : DONE) : STRANGE
      response.writeHead(fits ? 200 : 400, {
        'Content-Type': 'text/plain; charset=utf-8',
        'Cache-Control': 'no-store',
        'Referrer-Policy': 'no-referrer',
        Connection: 'close',
      })
      response.end(`${text}\n`)
      if (fits) arrived.resolve(url)
    })
    const origin = `http://${host}:${await listen(server, port)}`
    return {
      redirectUri: `${origin}${path}`,
      async visit(link) {
        expected = link.state
        link.signal.addEventListener('abort', () => arrived.reject(link.signal.reason))
        onLink(link)
        return arrived.promise
      },
      close() {
        server.close()
        server.closeIdleConnections()
      },
    }
  }
}

function listen(server: Server, port: number): Promise<number> {
  return new Promise((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) => {
      reject(new RondoError('PEER_LOGIN', `Port ${port} cannot be used for the redirect (${error.code})`))
    })
    server.listen(port, '127.0.0.1', () => resolve((server.address() as AddressInfo).port))
  })
}

/** `Promise.withResolvers`, which Node 20 lacks. */
function resolvers<T>() {
  let resolve: (value: T) => void = () => {}
  let reject: (reason: unknown) => void = () => {}
  const promise = new Promise<T>((yes, no) => {
    resolve = yes
    reject = no
  })
  return { promise, resolve, reject }
}

// The stored form of a login, and the port to its store. Tokens exist here and in the request headers, nowhere else.

/** The client that an authorization server knows. Valid at that server only. */
export interface StoredClient {
  readonly id: string
  readonly secret?: string
  /** The way in which the client authenticates at the token endpoint; chosen by what the server supports unless set. */
  readonly method?: string
  /** When the secret expires, in milliseconds since the epoch. */
  readonly expiresAt?: number
  /** The redirect URI with which it was registered dynamically. */
  readonly redirectUri?: string
}

export interface StoredTokens {
  readonly accessToken: string
  readonly refreshToken?: string
  /** When the access token expires, in milliseconds since the epoch; unknown unless set. */
  readonly expiresAt?: number
  /** The scopes that were granted, where the authorization server says so. */
  readonly granted?: readonly string[]
  /** The thumbprint of the key to which the tokens are bound. Without that key they are of no use. */
  readonly keyThumbprint?: string
}

/** A login at one server. It is plain JSON, and secret. */
export interface StoredLogin {
  readonly version: 1
  /** The URL of the server, which is also the key in the store. */
  readonly server: string
  /** The resource identifier for which the tokens are issued. */
  readonly resource: string
  readonly issuer: string
  readonly client: StoredClient
  /** Set if nobody needs to log in again: the client acts for itself, or somebody else vouches for the caller. */
  readonly grant?: 'client_credentials' | StoredGrant
  /** The scopes that were requested. */
  readonly scopes: readonly string[]
  /** Absent after a logout, or if the authorization server no longer accepts them. */
  readonly tokens?: StoredTokens
  /** The person who logged in, if the authorization server named one. For display only. */
  readonly user?: string
}

/** Keeps logins by the URL of the server. A host that stores them encrypts them or restricts who can read them. */
export interface TokenStore {
  load(server: string): Promise<StoredLogin | undefined> | StoredLogin | undefined
  save(server: string, login: StoredLogin): Promise<void> | void
  remove(server: string): Promise<void> | void
  /**
   * Runs `work` while nobody else runs theirs for the same server. A refresh token that is used twice may end the login, so
   * processes that share a store need this.
   */
  exclusively?<T>(server: string, work: () => Promise<T>): Promise<T>
}

/** The server's URL without what does not identify it: the key of its login. */
export function canonical(server: URL): string {
  return server.href.replace(/#.*/s, '').replace(/^(https?:\/\/[^/?]+)\/$/, '$1')
}

/**
 * Creates a token store that keeps logins in memory, as long as the process runs.
 *
 * @example
 * ```ts
 * const forgetful = oauth({ store: memoryTokenStore() })
 * ```
 */
export function memoryTokenStore(): TokenStore {
  const logins = new Map<string, StoredLogin>()
  const queues = new Map<string, Promise<unknown>>()
  return {
    load: (server) => logins.get(server),
    save: (server, login) => void logins.set(server, login),
    remove: (server) => void logins.delete(server),
    exclusively(server, work) {
      const turn = (queues.get(server) ?? Promise.resolve()).then(work, work)
      const settled = turn.catch(() => {})
      queues.set(server, settled)
      settled.then(() => {
        if (queues.get(server) === settled) queues.delete(server)
      })
      return turn
    },
  }
}

/**
 * Reads a login from a parsed JSON value, for a token store of your own. Returns undefined if the value is not a login.
 *
 * @example
 * ```ts
 * const login = parseLogin(JSON.parse(await readFile(file, 'utf8')))
 * ```
 */
export function parseLogin(value: unknown): StoredLogin | undefined {
  if (!isRecord(value) || value.version !== 1) return undefined
  const { server, resource, issuer, client, grant, scopes, tokens, user } = value
  const texts = [server, resource, issuer].every((one) => typeof one === 'string')
  if (!texts || !isStrings(scopes) || !isClient(client)) return undefined
  if (tokens !== undefined && !isTokens(tokens)) return undefined
  if (grant !== undefined && grant !== 'client_credentials' && !isGrant(grant)) return undefined
  if (user !== undefined && typeof user !== 'string') return undefined
  return value as unknown as StoredLogin
}

function isGrant(value: unknown): boolean {
  if (!isRecord(value)) return false
  if (value.kind === 'workload') return optional(value, ['file', 'env'], 'string')
  const { kind, issuer, client, refreshToken } = value
  return (
    kind === 'enterprise' &&
    typeof issuer === 'string' &&
    typeof refreshToken === 'string' &&
    isClient(client)
  )
}

function isClient(value: unknown): boolean {
  if (!isRecord(value) || typeof value.id !== 'string') return false
  return (
    optional(value, ['secret', 'method', 'redirectUri'], 'string') && optional(value, ['expiresAt'], 'number')
  )
}

function isTokens(value: unknown): boolean {
  if (!isRecord(value) || typeof value.accessToken !== 'string') return false
  if (value.granted !== undefined && !isStrings(value.granted)) return false
  return (
    optional(value, ['refreshToken', 'keyThumbprint'], 'string') && optional(value, ['expiresAt'], 'number')
  )
}

function optional(record: Record<string, unknown>, names: readonly string[], type: string): boolean {
  return names.every((name) => record[name] === undefined || typeof record[name] === type)
}

function isStrings(value: unknown): value is readonly string[] {
  return Array.isArray(value) && value.every((one) => typeof one === 'string')
}
