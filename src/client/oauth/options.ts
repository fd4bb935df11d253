/** What a program passes to `oauth`, what it gets back, and the login that most programs pass: `loopback`. */

import type { Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { RondoError } from '../../errors.ts'
import type { ClientAuth } from '../auth.ts'
import type { StoredLogin, TokenStore } from './login-store.ts'
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
  readonly client?: GivenClient
  /** The https URL of a client id metadata document. */
  readonly clientMetadataUrl?: string
  /** The name with which the client registers itself. Default `Rondo`. */
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

export interface OAuthOptions extends IdentityOptions {
  /** Called when a person has to log in, such as `loopback({ … })`. Without it such a request fails with PEER_LOGIN. */
  readonly login?: () => Promise<LoginAttempt> | LoginAttempt
  /** `client_credentials`: the client acts for itself, and nobody logs in. Needs `client`. */
  readonly grant?: 'authorization_code' | 'client_credentials'
  /** Scopes to request in addition to those the server names. */
  readonly scopes?: readonly string[]
  /** Requests `offline_access` where the authorization server offers it, for a refresh token. Default true. */
  readonly offlineAccess?: boolean
  /** The authorization server to use; must be one of those the server names. Default: the first of them. */
  readonly issuer?: string
  /** Keeps the tokens. Default: memory. */
  readonly store?: TokenStore
  /** For metadata, registration and tokens. Default: the platform's. */
  readonly fetch?: AuthFetch
  /** The limit for one of those requests. Default 20 s. */
  readonly timeoutMs?: number
  /** How long a person may take to log in. Default 10 minutes. */
  readonly loginTimeoutMs?: number
  /** Milliseconds since the epoch. */
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
  /** Default: any free port. A client that was registered by hand may need the one it was registered with. */
  readonly port?: number
  /** Default 127.0.0.1. `localhost` for authorization servers that know no other. */
  readonly host?: '127.0.0.1' | 'localhost'
  /** The path of the redirect. Default `/callback`. */
  readonly path?: string
}

const DONE = 'You are logged in. You may close this window.'
const FAILED = 'The login failed. You may close this window.'
const STRANGE = 'This is not the redirect of the login that is going on.'

/** Waits for the redirect on this machine: pass it as `login`. */
export function loopback({ onLink, port = 0, host = '127.0.0.1', path = '/callback' }: LoopbackOptions) {
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
      const fits = own && expected !== undefined && url.searchParams.get('state') === expected
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
        link.signal.addEventListener('abort', () => arrived.reject(link.signal.reason), { once: true })
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
