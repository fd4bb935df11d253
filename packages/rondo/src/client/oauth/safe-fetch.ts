/**
 * Requests to URLs that a server named: metadata, registration, tokens.
 *
 * fetch 1: https only. A server on loopback may name loopback addresses over http.
 * fetch 2: A server on a public address may not name private ones, nor names that resolve to private ones, so that it cannot
 *   make this client call what only this machine can reach. A name whose address changes between this check and the
 *   request gains nothing: whatever answers has to have a certificate for that name. Browsers cannot resolve names.
 * fetch 3: Redirects are not followed; size and time are limited.
 * fetch 4: Errors name the host, and nothing of the request or the response.
 */

import { AuthorizationResponseError, ResponseBodyError, WWWAuthenticateChallengeError } from 'oauth4webapi'
import { RondoError } from '../../errors.ts'
import { cleanText } from '../../form/clean-text.ts'
import { isLoopback, isPublic } from '../../lib/address.ts'
import { readWebBody } from '../../lib/body.ts'
import { isRecord } from '../../lib/json.ts'

/** The platform's `fetch`, or one with the same contract. */
export type AuthFetch = (url: string, init: RequestInit) => Promise<Response>

export interface SafeFetchOptions {
  /** The server that is called, which decides what it may name. */
  readonly server: URL
  /** An issuer that the caller named; its host is allowed wherever it is. */
  readonly trusted?: string
  readonly fetch?: AuthFetch
  /** Resolves names. Default: that of Node, unless `fetch` is given: then it decides what can be reached. */
  readonly network?: Network
  /** Default 20 s. */
  readonly timeoutMs?: number
}

export interface Network {
  /** The addresses of a name. Rejects if there are none. */
  lookup(name: string): Promise<readonly string[]>
  /** True if there is a server at the address with a certificate for the name. */
  holds(address: string, name: string, port: number): Promise<boolean>
}

const MAX_BYTES = 262_144
const TIMEOUT_MS = 20_000
const HANDSHAKE_MS = 5_000

export function createSafeFetch(options: SafeFetchOptions): AuthFetch {
  const { fetch = (url, init) => globalThis.fetch(url, init), timeoutMs = TIMEOUT_MS } = options
  const { network = options.fetch === undefined ? systemNetwork() : undefined } = options
  let inside: Promise<boolean> | undefined
  /** True if the server that is called is on a private address itself. */
  const isInside = (known: Network): Promise<boolean> => (inside ??= isOnPrivate(known, options.server))
  return async (text, init) => {
    const url = checkUrl(text, options)
    if (network !== undefined) await checkAddress(url, options, network, isInside)
    const timeout = AbortSignal.timeout(timeoutMs)
    const signal = init.signal ? AbortSignal.any([timeout, init.signal]) : timeout
    try {
      const response = await fetch(url.href, { ...init, redirect: 'manual', signal })
      if (response.type === 'opaqueredirect' || (response.status >= 300 && response.status < 400)) {
        await response.body?.cancel().catch(() => {})
        throw unusable(`${url.host} redirects ${url.pathname}, which is not followed`)
      }
      const body = await readBytes(response, url)
      return new Response(body.byteLength === 0 ? null : body, {
        status: response.status,
        headers: response.headers,
      })
    } catch (error) {
      if (error instanceof RondoError) throw error
      if (timeout.aborted) throw gone(`${url.host} did not respond within ${timeoutMs} ms`)
      if (signal.aborted) throw signal.reason
      throw gone(`${url.host} cannot be reached${codeOf(error)}`)
    }
  }
}

async function readBytes(response: Response, url: URL): Promise<Uint8Array<ArrayBuffer>> {
  const body = await readWebBody(response.body, { limit: MAX_BYTES })
  if (body.kind === 'whole') return body.bytes as Uint8Array<ArrayBuffer>
  if (body.kind === 'broken') throw body.error
  throw unusable(`The response of ${url.host} is longer than ${MAX_BYTES} bytes`)
}

/** Parses a URL that the server named, or throws why it may not be used. */
export function checkUrl(
  text: string,
  { server, trusted }: Pick<SafeFetchOptions, 'server' | 'trusted'>,
): URL {
  if (!URL.canParse(text)) throw unusable(`The metadata contains "${text.slice(0, 200)}", which is not a URL`)
  const url = new URL(text)
  const local = isLoopback(url.hostname)
  if (url.protocol !== 'https:' && !(url.protocol === 'http:' && local)) {
    throw unusable(`${url.protocol}//${url.host} must use https`)
  }
  if (url.username !== '' || url.password !== '')
    throw unusable(`The URL of ${url.host} contains credentials`)
  if (!isPublic(url.hostname) && isPublic(server.hostname) && !isNamed(url, trusted)) {
    throw unusable(`${server.host} names ${url.host}, a private address that only this machine may reach`)
  }
  return url
}

/** True if the caller named this host. */
function isNamed({ host }: URL, trusted: string | undefined): boolean {
  return trusted !== undefined && URL.canParse(trusted) && new URL(trusted).host === host
}

/** Throws if the name stands for a private address, and the server may not name those. */
async function checkAddress(
  url: URL,
  { server, trusted }: SafeFetchOptions,
  network: Network,
  isInside: (network: Network) => Promise<boolean>,
): Promise<void> {
  if (url.host === server.host || !isPublic(server.hostname) || isNamed(url, trusted)) return
  const found = await privateAddressOf(network, url.hostname)
  if (found === undefined || (await isInside(network))) return
  throw unusable(
    `${server.host} names ${url.host}, which is at the private address ${found}. If you trust it, name it as the issuer`,
  )
}

async function isOnPrivate(network: Network, server: URL): Promise<boolean> {
  const found = await privateAddressOf(network, server.hostname)
  if (found === undefined) return false
  // The owner of a name can let it stand for any address, but not respond there.
  return network.holds(found, server.hostname, Number(server.port || 443))
}

/** The first private address of a name. A name that cannot be resolved here is left to the request, which may have a proxy. */
async function privateAddressOf(network: Network, name: string): Promise<string | undefined> {
  const addresses = await network.lookup(name).catch(() => [])
  return addresses.find((one) => !isPublic(one))
}

/** The network of this machine; undefined where the runtime cannot resolve names. */
export function systemNetwork(handshakeMs: number = HANDSHAKE_MS): Network | undefined {
  const dns = globalThis.process?.getBuiltinModule?.('node:dns')
  const tls = globalThis.process?.getBuiltinModule?.('node:tls')
  if (dns === undefined || tls === undefined) return undefined
  return {
    async lookup(name) {
      const found = await dns.promises.lookup(name.replace(/[[\]]/g, ''), { all: true })
      return found.map(({ address }) => address)
    },
    holds: (host, servername, port) =>
      new Promise((resolve) => {
        const end = (held: boolean) => {
          socket.destroy()
          resolve(held)
        }
        const socket = tls.connect({ host, servername, port, timeout: handshakeMs }, () => end(true))
        socket.on('error', () => end(false))
        socket.on('timeout', () => end(false))
      }),
  }
}

/** The part of a failed request that says why, without what was sent. */
function codeOf(error: unknown): string {
  const cause = error instanceof Error ? (error.cause as { code?: unknown } | undefined) : undefined
  return typeof cause?.code === 'string' ? ` (${cause.code})` : ''
}

export function unusable(text: string, data?: unknown): RondoError {
  return new RondoError('PEER_AUTHORIZATION', cleanText(text, 1_000), { data })
}

function gone(text: string): RondoError {
  return new RondoError('PEER_UNREACHABLE', text)
}

// Turns what an authorization server refuses into one sentence. Errors of `oauth4webapi` hold the response, and so tokens;
// none of them leaves this file, and text of the authorization server only without the secrets that were sent.

/** Runs a request to an authorization server. `what` completes "could not …". */
export async function explain<T>(
  issuer: string,
  what: string,
  secrets: readonly (string | undefined)[],
  work: () => Promise<T>,
): Promise<T> {
  try {
    return await work()
  } catch (error) {
    if (error instanceof RondoError || !(error instanceof Error) || error.name === 'AbortError') throw error
    const { code, reason } = reasonOf(error)
    const text = secrets.reduce<string>((now, one) => (one ? now.replaceAll(one, '…') : now), reason)
    throw unusable(`Could not ${what} at ${issuer}: ${cleanText(text, 500)}`, code && { error: code, issuer })
  }
}

function reasonOf(error: Error): { readonly code?: string; readonly reason: string } {
  if (error instanceof ResponseBodyError || error instanceof AuthorizationResponseError) {
    const { error: code, error_description: description } = error
    return { code: cleanText(code, 100), reason: description ? `${code}: ${description}` : code }
  }
  // A 401 at the token endpoint is about the client.
  if (error instanceof WWWAuthenticateChallengeError) {
    return { code: 'invalid_client', reason: `the client was refused (HTTP status ${error.status})` }
  }
  return { reason: error.message }
}

/** Returns the OAuth error code with which an authorization server refused a request. */
export function oauthCode(error: unknown): string | undefined {
  if (!(error instanceof RondoError) || error.code !== 'PEER_AUTHORIZATION' || !isRecord(error.data))
    return undefined
  return typeof error.data.error === 'string' ? error.data.error : undefined
}
