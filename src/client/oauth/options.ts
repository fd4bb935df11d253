/** What a program passes to `oauth`, and what it gets back. */

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
