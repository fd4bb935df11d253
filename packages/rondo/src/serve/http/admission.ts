/**
 * Refusals before a body is read, in this order: host, origin, HTTP method, draining, content type.
 *
 * Only a `Host` and an `Origin` on the allow list reach this server (T12: a page of another site must not talk to a local
 * server through a name that it points at 127.0.0.1). Loopback names are always on it, with any port. An entry is `host`
 * (any port), `host:port` (that port alone) or `*` (anything). Names are compared as they are written, in lower case;
 * nothing is resolved. An origin is judged by its host and port; an entry of `allowedOrigins` may include the scheme.
 *
 * Only pages of the origins in `allowedOrigins` may read responses (CORS), without cookies: a page brings its own token
 * or none.
 */

import { type ErrorCode, misuse, RondoError } from '../../errors.ts'
import { LOOPBACK_NAMES } from '../../lib/address.ts'
import type { RequestHeaders } from '../../protocol/common/headers.ts'
import { HTTP_LIMITS, type HttpLimits } from '../limits.ts'
import type { HttpHeaders, HttpResponse } from '../port.ts'
import { refusal } from './line.ts'

/**
 * Returns the refusal of a request that is not admitted, or the response to a preflight. `raw` are the headers as they
 * came, names and values in turn, if the entrance has them.
 */
export type Admission = (
  method: string | undefined,
  headers: RequestHeaders,
  raw?: readonly string[],
) => HttpResponse | undefined

interface Admissions {
  /** For requests of the protocol. */
  readonly admit: Admission
  /** For the routes of extensions, which decide about methods and media types themselves. */
  readonly admitPage: Admission
}

const TWO_HOSTS: HttpResponse = {
  ...refusal(new RondoError('PEER_HOST', 'The request has more than one Host header')),
  status: 400,
}

export function createAdmission(
  state: { readonly draining: boolean },
  options: HttpLimits,
  allowed: AllowList,
  crossOrigin: CrossOrigin,
  sessions = false,
  onRefused: (code: ErrorCode, status: number) => void = () => {},
): Admissions {
  const wait = retryLater(options)
  const logged = (code: ErrorCode): HttpResponse => {
    const response = refusal(new RondoError(code))
    onRefused(code, response.status)
    return response
  }
  const admitCaller: Admission = (_method, headers, raw) => {
    if (raw !== undefined && hasTwoHosts(raw)) return TWO_HOSTS
    if (!allowed.host(headers.host ?? headers[':authority'])) return logged('PEER_HOST')
    return allowed.origin(headers.origin) ? undefined : logged('PEER_ORIGIN')
  }
  const draining = (): HttpResponse => refusal(new RondoError('SERVER_DRAINING'), null, wait)
  const admitPage: Admission = (...request) =>
    admitCaller(...request) ?? (state.draining ? draining() : undefined)
  const admit: Admission = (method, headers, raw) => {
    const refused = admitCaller(method, headers, raw)
    if (refused !== undefined) return refused
    const preflight = method === 'OPTIONS' ? crossOrigin.preflight(headers) : undefined
    if (preflight !== undefined) return preflight
    if (method !== 'POST' && !(sessions && isOfSession(method, headers))) {
      return refusal(new RondoError('PEER_HTTP_METHOD'), null, { Allow: 'POST' })
    }
    if (method !== 'POST') return undefined
    // Responses to open questions are still accepted; new calls of a session are refused one by one.
    if (state.draining && !(sessions && headers['mcp-session-id'] !== undefined)) return draining()
    if (!isJson(headers['content-type'])) return refusal(new RondoError('PEER_MEDIA_TYPE'))
    return undefined
  }
  return { admit, admitPage }
}

/** The headers of a refusal while this instance drains. */
export function retryLater(options: HttpLimits): HttpHeaders {
  return { 'Retry-After': String(HTTP_LIMITS.pick(options).retryAfterSeconds) }
}

/** Node shows only one of them, and a proxy may have checked the other (RFC 9112, 3.2). */
function hasTwoHosts(raw: readonly string[]): boolean {
  let hosts = 0
  for (let i = 0; i < raw.length; i += 2) {
    if (raw[i]?.length === 4 && raw[i]?.toLowerCase() === 'host') hosts += 1
  }
  return hosts > 1
}

function isOfSession(method: string | undefined, headers: RequestHeaders): boolean {
  return (method === 'GET' || method === 'DELETE') && headers['mcp-session-id'] !== undefined
}

const JSON_TYPE = /^application\/json[ \t]*(?:;[ \t]*charset="?utf-?8"?[ \t]*)?;?$/i

function isJson(type: string | undefined): boolean {
  return type === 'application/json' || (type !== undefined && JSON_TYPE.test(type.trim()))
}

export interface AllowListOptions {
  /** More names that clients may use for this server: `host` or `host:port`; `*` allows all. Default: loopback, and the address listened on. */
  allowedHosts?: readonly string[]
  /** More origins of pages that may call; `*` allows all. Default: those of the allowed hosts. */
  allowedOrigins?: readonly string[]
}

interface AllowList {
  host(value: string | undefined): boolean
  /** True also without an origin: such a request does not come from a page. */
  origin(value: string | undefined): boolean
  /** True if `allowedOrigins` contains the origin, not only the server's own hosts. */
  namedOrigin(value: string): boolean
}

/** Listening on these says nothing about the names of a server. */
const EVERY_ADDRESS = new Set(['0.0.0.0', '::'])
const AUTHORITY = /^(\[[0-9a-f:.]+\]|[^[\]:/?#@\s,]+)(?::(\d{1,5}))?$/
const ORIGIN = /^[a-z][a-z0-9+.-]*:\/\/([^/?#]+)$/

export function createAllowList(options: AllowListOptions, listenHost?: string): AllowList {
  assertNames('allowedHosts', options.allowedHosts, isHostEntry, HOST_ENTRY)
  assertNames('allowedOrigins', options.allowedOrigins, isOriginEntry, ORIGIN_ENTRY)
  const hosts = entries([...LOOPBACK_NAMES, ...(options.allowedHosts ?? [])])
  if (listenHost !== undefined && !EVERY_ADDRESS.has(listenHost)) hosts.add(bracketed(listenHost))
  const named = entries(options.allowedOrigins ?? [])
  const origins = new Set([...named, ...hosts])
  // Nearly every request of a client has the same two values.
  let lastHost: string | undefined
  let lastOrigin: string | undefined
  return {
    host(value) {
      if (value !== undefined && value === lastHost) return true
      if (!allows(hosts, value?.toLowerCase() ?? '')) return false
      lastHost = value
      return true
    },
    origin(value) {
      if (value === undefined || value === lastOrigin) return true
      if (!allowsOrigin(origins, value)) return false
      lastOrigin = value
      return true
    },
    namedOrigin: (value) => allowsOrigin(named, value),
  }
}

const HOST_ENTRY = "names such as 'mcp.example.com' or 'mcp.example.com:8443', without a scheme, or '*'"
const ORIGIN_ENTRY = "origins such as 'https://app.example.com', without a path, or '*'"
const isHostEntry = (entry: string): boolean => entry === '*' || isAuthority(entry)
const isOriginEntry = (entry: string): boolean =>
  isHostEntry(entry) || entry === 'null' || isAuthority(ORIGIN.exec(entry)?.[1] ?? '')

function isAuthority(name: string): boolean {
  return AUTHORITY.test(name) && !name.includes('*')
}

/** An entry that can match nothing would refuse every request. The empty one is what a variable without a value leaves. */
function assertNames(
  option: string,
  names: readonly string[] | undefined,
  isEntry: (entry: string) => boolean,
  wanted: string,
): void {
  if (names === undefined) return
  const bad = Array.isArray(names)
    ? names.find(
        (name) => typeof name !== 'string' || (name.trim() !== '' && !isEntry(name.trim().toLowerCase())),
      )
    : names
  if (bad !== undefined) throw misuse(`${option} must be a list of ${wanted}; got ${JSON.stringify(bad)}.`)
}

function entries(names: readonly string[]): Set<string> {
  return new Set(names.map((name) => name.trim().toLowerCase()).filter((name) => name !== ''))
}

function allowsOrigin(list: ReadonlySet<string>, value: string): boolean {
  const lower = value.toLowerCase()
  const authority = ORIGIN.exec(lower)?.[1]
  if ((authority !== undefined || lower === 'null') && list.has(lower)) return true
  return allows(list, authority ?? '')
}

function allows(list: ReadonlySet<string>, authority: string): boolean {
  if (list.has('*')) return true
  const match = AUTHORITY.exec(authority)
  return match !== null && (list.has(authority) || list.has(match[1] ?? ''))
}

function bracketed(host: string): string {
  return (host.includes(':') && !host.startsWith('[') ? `[${host}]` : host).toLowerCase()
}

export interface CrossOrigin {
  /** Headers of every response to this page. */
  headers(origin: string | undefined): HttpHeaders | undefined
  /** The response to a browser that asks before it sends. */
  preflight(headers: RequestHeaders): HttpResponse | undefined
}

const METHODS = 'POST, GET, DELETE'
/** The response headers that clients of any revision read. */
const EXPOSED = 'Mcp-Session-Id, WWW-Authenticate, Retry-After'
const PREFLIGHT_SECONDS = '600'
const HEADER_NAMES = /^[\w-]+(?:[ \t]*,[ \t]*[\w-]+)*$/

export function createCrossOrigin(names: (origin: string) => boolean): CrossOrigin {
  const headers = (origin: string | undefined): HttpHeaders | undefined => {
    if (origin === undefined || !names(origin)) return undefined
    return { 'Access-Control-Allow-Origin': origin, 'Access-Control-Expose-Headers': EXPOSED, Vary: 'Origin' }
  }
  return {
    headers,
    preflight(sent) {
      if (sent['access-control-request-method'] === undefined) return undefined
      const shared = headers(sent.origin)
      if (shared === undefined) return undefined
      const wanted = sent['access-control-request-headers'] ?? ''
      return {
        status: 204,
        headers: {
          'Access-Control-Allow-Methods': METHODS,
          ...(HEADER_NAMES.test(wanted) && { 'Access-Control-Allow-Headers': wanted }),
          'Access-Control-Max-Age': PREFLIGHT_SECONDS,
        },
        body: '',
      }
    },
  }
}
