/** What is kept of a login, and the port to where it is kept. Tokens exist here and in the request headers, nowhere else. */

import { isRecord } from '../../lib/json.ts'

/** The client that an authorization server knows. Valid at that server only. */
export interface StoredClient {
  readonly id: string
  readonly secret?: string
  /** How the client authenticates at the token endpoint; chosen by what the server supports unless set. */
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
  /** Set if the client acts for itself: it needs nobody to log in again. */
  readonly grant?: 'client_credentials'
  /** The scopes that were requested. */
  readonly scopes: readonly string[]
  /** Absent after a logout, or if the authorization server no longer accepts them. */
  readonly tokens?: StoredTokens
  /** Who logged in, if the authorization server said so. For display only. */
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
  return server.href.replace(/#.*$/s, '').replace(/^(https?:\/\/[^/?]+)\/$/, '$1')
}

/** Keeps logins in memory, as long as the process runs. */
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

/** The login in a parsed JSON value; undefined if it is not one. */
export function parseLogin(value: unknown): StoredLogin | undefined {
  if (!isRecord(value) || value.version !== 1) return undefined
  const { server, resource, issuer, client, grant, scopes, tokens, user } = value
  const texts = [server, resource, issuer].every((one) => typeof one === 'string')
  if (!texts || !isStrings(scopes) || !isClient(client)) return undefined
  if (tokens !== undefined && !isTokens(tokens)) return undefined
  if (grant !== undefined && grant !== 'client_credentials') return undefined
  if (user !== undefined && typeof user !== 'string') return undefined
  return value as unknown as StoredLogin
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
  return optional(value, ['refreshToken'], 'string') && optional(value, ['expiresAt'], 'number')
}

function optional(record: Record<string, unknown>, names: readonly string[], type: string): boolean {
  return names.every((name) => record[name] === undefined || typeof record[name] === type)
}

function isStrings(value: unknown): value is readonly string[] {
  return Array.isArray(value) && value.every((one) => typeof one === 'string')
}
