/**
 * Requests to an authorization server: its metadata, its keys, its introspection endpoint. What comes back is limited in
 * bytes and in time, and no redirect is followed: the operator named a host, and nobody else may name another.
 */

import { isRecord, parseGuarded } from '../lib/json.ts'

/** Why something could not be fetched, for the operator. */
export class RemoteFault extends Error {}

export type Fetch = (url: string, init: RequestInit) => Promise<Response>

export interface RemoteLimits {
  readonly timeoutMs: number
  readonly maxBytes: number
}

const REMOTE_LIMITS: RemoteLimits = { timeoutMs: 5_000, maxBytes: 256 * 1024 }

/** Rejects with a `RemoteFault`. */
export async function fetchJson(
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
  if (response.body === null) return ''
  const reader = response.body.getReader()
  const decoder = new TextDecoder()
  let size = 0
  let text = ''
  for (;;) {
    const { done, value } = await reader.read().catch((cause: unknown) => {
      throw new RemoteFault(`The response of ${url} is incomplete`, { cause })
    })
    if (done) return text + decoder.decode()
    size += value.byteLength
    if (size > maxBytes) {
      await reader.cancel().catch(() => {})
      throw new RemoteFault(`The response of ${url} is longer than ${maxBytes} bytes`)
    }
    text += decoder.decode(value, { stream: true })
  }
}

function toRecord(url: string, text: string): Record<string, unknown> {
  const parsed = parseGuarded(text)
  if (parsed.kind === 'ok' && isRecord(parsed.value)) return parsed.value
  throw new RemoteFault(`The response of ${url} is not a JSON object`)
}

/** Reads the metadata of an authorization server, as RFC 8414 and OpenID Connect Discovery place it. */
export async function discover(
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
  const path = pathname === '/' ? '' : pathname.replace(/\/$/, '')
  return [
    `${origin}${path}/.well-known/openid-configuration`,
    `${origin}/.well-known/oauth-authorization-server${path}`,
  ]
}

const LOOPBACK = /^(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])$/
/** Loopback, private, link-local and other addresses that are not public, and names without a domain. */
const INTERNAL =
  /^(?:localhost|.*\.(?:localhost|local|internal)|0\..*|10\..*|127\..*|100\.(?:6[4-9]|[7-9]\d|1[01]\d|12[0-7])\..*|169\.254\..*|172\.(?:1[6-9]|2\d|3[01])\..*|192\.168\..*|\[.*\]|[^.]+)$/

/** True for https, and for http on this machine. */
export function isSecure(url: URL): boolean {
  return url.protocol === 'https:' || (url.protocol === 'http:' && LOOPBACK.test(url.hostname))
}

/** Why the metadata of an issuer may not point there: it is not secure, or it leads into a network that the issuer is not in. */
export function addressProblem(issuer: string, address: unknown, member: string): string | undefined {
  if (typeof address !== 'string' || !URL.canParse(address)) return `The metadata has no ${member}`
  const [from, to] = [new URL(issuer), new URL(address)]
  if (to.protocol !== 'https:' && !(isSecure(from) && from.protocol === 'http:' && isSecure(to)))
    return `The ${member} of "${issuer}" is not an https address`
  if (to.hostname !== from.hostname && INTERNAL.test(to.hostname))
    return `The ${member} of "${issuer}" leads to an internal address`
  return undefined
}
