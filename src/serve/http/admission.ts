/**
 * What can be refused before a body is read, in this order: host, origin, HTTP method, draining, content type.
 */

import { misuse, RondoError } from '../../errors.ts'
import { isRecord, isThenable } from '../../lib/json.ts'
import type { Principal } from '../../protocol/call.ts'
import type { RequestHeaders } from '../../protocol/common/headers.ts'
import { encodeError } from '../../protocol/common/json-rpc.ts'
import { isSealedSession } from '../../seal/session-id.ts'
import { type HttpHeaders, type HttpResponse, refusal } from './line.ts'

export interface AdmissionOptions extends AllowListOptions {
  /** What clients are told to wait, in seconds, while this instance shuts down. */
  retryAfterSeconds?: number
}

/**
 * Returns the refusal of a request that is not admitted, or the response to a preflight. `raw` are the headers as they
 * came, names and values in turn, if the entrance has them.
 */
export type Admission = (
  method: string | undefined,
  headers: RequestHeaders,
  raw?: readonly string[],
) => HttpResponse | undefined

const TWO_HOSTS: HttpResponse = {
  ...refusal(new RondoError('PEER_HOST', 'The request has more than one Host header')),
  status: 400,
}

export function createAdmission(
  state: { readonly draining: boolean },
  options: Pick<AdmissionOptions, 'retryAfterSeconds'>,
  allowed: AllowList,
  crossOrigin: CrossOrigin,
  sessions = false,
): Admission {
  const wait = { 'Retry-After': String(options.retryAfterSeconds ?? 1) }
  return (method, headers, raw) => {
    if (raw !== undefined && hasTwoHosts(raw)) return TWO_HOSTS
    if (!allowed.host(headers.host ?? headers[':authority'])) return refusal(new RondoError('PEER_HOST'))
    if (!allowed.origin(headers.origin)) return refusal(new RondoError('PEER_ORIGIN'))
    const asked = method === 'OPTIONS' ? crossOrigin.preflight(headers) : undefined
    if (asked !== undefined) return asked
    if (method !== 'POST' && !(sessions && isOfSession(method, headers))) {
      return refusal(new RondoError('PEER_HTTP_METHOD'), null, { Allow: 'POST' })
    }
    if (method !== 'POST') return undefined
    // Answers to questions that are open still come in; new calls of a session are refused one by one.
    if (state.draining && !(sessions && isOfMemory(headers['mcp-session-id'])))
      return refusal(new RondoError('SERVER_DRAINING'), null, wait)
    if (!isJson(headers['content-type'])) return refusal(new RondoError('PEER_MEDIA_TYPE'))
    return undefined
  }
}

/** A proxy may have checked the one that Node does not show (RFC 9112, 3.2). */
function hasTwoHosts(raw: readonly string[]): boolean {
  let hosts = 0
  for (let i = 0; i < raw.length; i += 2) {
    if (raw[i]?.length === 4 && raw[i]?.toLowerCase() === 'host') hosts += 1
  }
  return hosts > 1
}

/** A session that lives here and nowhere else; one that is sealed into its id goes on elsewhere. */
function isOfMemory(session: string | undefined): boolean {
  return session !== undefined && !isSealedSession(session)
}

function isOfSession(method: string | undefined, headers: RequestHeaders): boolean {
  return (method === 'GET' || method === 'DELETE') && headers['mcp-session-id'] !== undefined
}

const JSON_TYPE = /^application\/json[ \t]*(?:;[ \t]*charset="?utf-?8"?[ \t]*)?;?$/i

function isJson(type: string | undefined): boolean {
  return type === 'application/json' || (type !== undefined && JSON_TYPE.test(type.trim()))
}

/*
 * Which `Host` and which `Origin` may reach this server (T12: a page of another site must not talk to a local server
 * through a name that it points at 127.0.0.1).
 *
 * Loopback names are always on the list, with any port. An entry is `host` (any port), `host:port` (that port alone)
 * or `*` (anything). Names are compared as they are written, in lower case; nothing is resolved. An origin is judged
 * by its host and port; an entry of `allowedOrigins` may name the scheme too.
 */

export interface AllowListOptions {
  /** Names under which the server is reached, besides loopback: `host` or `host:port`. `*` switches the check off. */
  allowedHosts?: readonly string[]
  /** Origins of pages that may call, besides those of the allowed hosts. `*` switches the check off. */
  allowedOrigins?: readonly string[]
}

export interface AllowList {
  host(value: string | undefined): boolean
  /** A request without an origin does not come from a page and is fine. */
  origin(value: string | undefined): boolean
  /** The origin is one that `allowedOrigins` lets in, not only one of the server's own hosts. */
  namedOrigin(value: string): boolean
}

const LOOPBACK = ['localhost', '127.0.0.1', '[::1]']
/** Listening on these says nothing about the names under which a server is reached. */
const EVERY_ADDRESS = new Set(['0.0.0.0', '::'])
const AUTHORITY = /^(\[[0-9a-f:.]+\]|[^[\]:/?#@\s,]+)(?::(\d{1,5}))?$/
const ORIGIN = /^[a-z][a-z0-9+.-]*:\/\/([^/?#]+)$/

export function createAllowList(options: AllowListOptions, listenHost?: string): AllowList {
  const hosts = entries([...LOOPBACK, ...(options.allowedHosts ?? [])])
  if (listenHost !== undefined && !EVERY_ADDRESS.has(listenHost)) hosts.add(bracketed(listenHost))
  const named = entries(options.allowedOrigins ?? [])
  const origins = new Set([...named, ...hosts])
  // Nearly every request of a client carries the same two values.
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

function entries(names: readonly string[]): Set<string> {
  return new Set(names.map((name) => name.toLowerCase()))
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

/*
 * What lets a page of another origin read our answers (CORS): only for the origins that `allowedOrigins` names. Cookies are
 * no part of it, so a page brings its own token or none. A page that is refused gets no such headers, and its browser
 * shows it nothing.
 */

export interface CrossOrigin {
  /** What every answer to this page carries. */
  headers(origin: string | undefined): HttpHeaders | undefined
  /** The answer to a browser that asks before it sends. */
  preflight(headers: RequestHeaders): HttpResponse | undefined
}

const METHODS = 'POST, GET, DELETE'
/** What a client of any revision has to read of an answer. */
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

/*
 * Who calls. The author's hook sees the request's headers and returns a principal, nothing, or a refusal; what it saw
 * goes no further (T3: the bearer token ends here). A hook that throws, or never settles, refuses, and says nothing about
 * why. Whatever it returns is checked here, so that nothing behind this file meets a principal or a header it cannot use.
 */

export interface AuthRequest {
  /** Returns a header by its lower-case name. */
  readonly headers: (name: string) => string | undefined
  readonly method: string
  /** As the request line has it, where the entrance knows it. */
  readonly url?: string
}

/** Sent to the client as it is: `WWW-Authenticate` goes into `headers`. */
export interface AuthRefusal {
  readonly status: 401 | 403
  readonly headers?: Readonly<Record<string, string>>
  readonly body?: string
}

type Verdict = Principal | AuthRefusal | undefined

/** Gives who calls, `undefined` for nobody in particular, or a refusal. */
export type Authenticate = (request: AuthRequest) => Verdict | Promise<Verdict>

export type Identified =
  | { readonly kind: 'known'; readonly principal: Principal | undefined }
  | { readonly kind: 'refused'; readonly response: HttpResponse }

/** How long a hook may take. A hook that never settles would otherwise hold its request for ever. */
export const HOOK_MS = 30_000

export function identify(
  authenticate: Authenticate,
  request: AuthRequest,
  onError: (error: unknown) => void,
  hookMs: number = HOOK_MS,
): Identified | Promise<Identified> {
  const failed = (error: unknown): Identified => {
    onError(error)
    return refused({ status: 401 }, onError)
  }
  try {
    const verdict: unknown = authenticate(request)
    if (!isThenable(verdict)) return judge(verdict, onError)
    return inTime(Promise.resolve(verdict), hookMs, 'authenticate')
      .then((known) => judge(known, onError))
      .catch(failed)
  } catch (error) {
    return failed(error)
  }
}

export function inTime(verdict: Promise<unknown>, ms: number, hook: string): Promise<unknown> {
  return new Promise((resolve, reject) => {
    const late = setTimeout(() => reject(misuse(`${hook} did not settle within ${ms} ms`)), ms)
    verdict.then(resolve, reject).finally(() => clearTimeout(late))
  })
}

function judge(verdict: unknown, onError: (error: unknown) => void): Identified {
  if (verdict === undefined || verdict === null) return { kind: 'known', principal: undefined }
  if (!isRecord(verdict)) throw misuse('authenticate must return a principal, a refusal or undefined')
  if (verdict.status === 401 || verdict.status === 403) {
    return refused(verdict as Partial<AuthRefusal> & { status: 401 | 403 }, onError)
  }
  const principal = verdict as unknown as Principal
  assertPrincipal(principal)
  return { kind: 'known', principal }
}

/** Names are compared and sealed, so each is a text; an empty subject would stand for everybody behind one client. */
export function assertPrincipal({
  subject,
  issuer,
  client,
}: Partial<Record<keyof Principal, unknown>>): void {
  if (typeof subject !== 'string' || subject === '') {
    throw misuse(
      'This is neither a principal nor a refusal of status 401 or 403. ' +
        'A principal needs a subject that is not empty; return undefined for an anonymous caller',
    )
  }
  for (const [name, value] of Object.entries({ issuer, client })) {
    if (value !== undefined && typeof value !== 'string') {
      throw misuse(`The ${name} of a principal must be a string: leave it out where there is none`)
    }
  }
}

/** The refusal as the hook wrote it, without what HTTP cannot carry. */
function refused(
  { status, headers, body }: { status: 401 | 403; headers?: unknown; body?: unknown },
  onError: (error: unknown) => void,
): Identified {
  const code = status === 401 ? 'PEER_UNAUTHENTICATED' : 'PEER_FORBIDDEN'
  const written = typeof body === 'string' ? body : undefined
  if (body !== undefined && written === undefined) {
    onError(misuse('The body of a refusal of authenticate must be a string: use JSON.stringify'))
  }
  return {
    kind: 'refused',
    response: {
      status,
      headers: { 'Content-Type': 'application/json', ...sendable(headers, onError) },
      body: written ?? encodeError(null, new RondoError(code)),
    },
  }
}

const HEADER_NAME = /^[!#$%&'*+.^_`|~\w-]+$/
/** Text of a header: no control characters, nothing beyond latin1. */
const HEADER_VALUE = /^[\t\x20-\x7e\x80-\xff]*$/
/** These are the transport's own. */
const FRAMING = /^(?:content-length|transfer-encoding|connection|keep-alive|upgrade|trailer)$/i

/** The headers that can be sent. A value may quote the caller, in a challenge for example, so none ends more than itself. */
function sendable(headers: unknown, onError: (error: unknown) => void): Record<string, string> {
  const kept: Record<string, string> = {}
  if (headers === undefined) return kept
  for (const [name, value] of Object.entries(isRecord(headers) ? headers : {})) {
    if (
      HEADER_NAME.test(name) &&
      !FRAMING.test(name) &&
      typeof value === 'string' &&
      HEADER_VALUE.test(value)
    ) {
      kept[name] = value
    } else {
      const shown = HEADER_NAME.test(name) ? name : 'with an invalid name'
      onError(
        misuse(
          `A header of a refusal of authenticate was left out (${shown}). A value is a string of printable ` +
            'latin1 characters without line breaks: encode what comes from a token before you quote it',
        ),
      )
    }
  }
  if (!isRecord(headers)) onError(misuse('The headers of a refusal of authenticate must be a plain object'))
  return kept
}
