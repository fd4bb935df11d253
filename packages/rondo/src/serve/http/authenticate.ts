/**
 * Who calls, and what the caller's token allows. The author's hook sees the headers of a request and returns a principal, nothing, or a refusal; what it saw
 * goes no further (T3: the bearer token ends here). A hook that throws or never settles refuses the request without a
 * reason. Its verdict is checked here, so no later stage meets a principal or a header that it cannot use.
 */

import { type Need, scopesOfTask, union, withNeed } from '../../carry/scope.ts'
import { misuse, RondoError } from '../../errors.ts'
import { isRecord, isThenable } from '../../lib/json.ts'
import type { Call, Principal } from '../../protocol/call.ts'
import type { RequestHeaders } from '../../protocol/common/headers.ts'
import { encodeError } from '../../protocol/common/json-rpc.ts'
import { HOOK_MS, inTime } from '../../tool/hook.ts'
import type { Access, HttpResponse, Service } from '../port.ts'
import { refusal } from './line.ts'

export interface AuthRequest {
  /** Returns a header by its lower-case name. */
  readonly headers: (name: string) => string | undefined
  readonly method: string
  /** As in the request line, if the entrance knows it. */
  readonly url?: string
}

/** Sent to the client as it is. `WWW-Authenticate` belongs into `headers`. */
export interface AuthRefusal {
  readonly status: 401 | 403
  readonly headers?: Readonly<Record<string, string>>
  readonly body?: string
  /** For the log, and never sent: what is wrong, and what an operator can do. It must not quote the token. */
  readonly reason?: string
}

type Verdict = Principal | AuthRefusal | undefined

/** Returns the caller, `undefined` for an anonymous one, or a refusal. */
export interface Authenticate {
  (request: AuthRequest): Verdict | Promise<Verdict>
  /** What `oauthResource` adds, so that the server describes itself to clients. */
  readonly resource?: ProtectedResource
}

/** The server as a protected resource (RFC 9728). */
export interface ProtectedResource {
  /** Asked of every request. */
  readonly scopes: readonly string[]
  /** True if a token with the scope `granted` may do what needs the scope `required`. */
  readonly implies?: (granted: string, required: string) => boolean
  /** The value of `WWW-Authenticate`. */
  challenge(error: 'insufficient_scope' | 'invalid_token' | undefined, scopes: readonly string[]): string
  /** The paths at which the metadata is served. */
  readonly paths: readonly string[]
  /** The metadata, as JSON. */
  readonly document: string
}

export type Identified =
  | { readonly kind: 'known'; readonly principal: Principal | undefined }
  | { readonly kind: 'refused'; readonly response: HttpResponse; readonly reason?: string }

/** What `authenticate` learns of a request. */
export type Arriving = Omit<AuthRequest, 'headers'> & {
  readonly headers: RequestHeaders
  /** Where it came from, if the runtime knows it. */
  readonly connection?: { readonly address: string | undefined }
}

/** Identifies callers, and reports those that are refused. */
export function createIdentify(
  authenticate: Authenticate,
  onError: (error: unknown, request: Arriving) => void,
  onRefused: (status: number, reason: string | undefined, request: Arriving) => void,
): (request: Arriving) => Identified | Promise<Identified> {
  const report = (identified: Identified, arriving: Arriving): Identified => {
    if (identified.kind !== 'refused') return identified
    try {
      onRefused(identified.response.status, identified.reason, arriving)
    } catch (error) {
      // Such as the operator's clock. Nobody would handle the rejection.
      onError(error, arriving)
    }
    return identified
  }
  return (arriving) => {
    const { headers, method, url } = arriving
    const request = { headers: (name: string) => headers[name.toLowerCase()], method, url }
    let from = arriving
    const identified = identify(authenticate, request, (error) => onError(error, from))
    if (!isThenable(identified)) return report(identified, arriving)
    // Read now: a caller that has gone before it is refused has no address any more, and would have no share of the log.
    from = { headers, method, url, connection: { address: arriving.connection?.address } }
    return identified.then((known) => report(known, from))
  }
}

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

/** Names are compared and sealed, so each must be a string. An empty subject would stand for everybody behind one client. */
export function assertPrincipal({
  subject,
  issuer,
  client,
  scopes,
}: Partial<Record<keyof Principal, unknown>>): void {
  if (typeof subject !== 'string' || subject === '') {
    throw misuse(
      'A principal needs a subject that is not empty, and a refusal the status 401 or 403. ' +
        'Return undefined for an anonymous caller',
    )
  }
  for (const [name, value] of Object.entries({ issuer, client })) {
    if (value !== undefined && typeof value !== 'string') {
      throw misuse(`The ${name} of a principal must be a string: leave it out if there is none`)
    }
  }
  if (scopes === undefined) return
  if (!Array.isArray(scopes) || !scopes.every((scope) => typeof scope === 'string')) {
    throw misuse('The scopes of a principal must be a list of strings: split the claim `scope` at its blanks')
  }
}

/** The hook's refusal, without what HTTP cannot carry. */
function refused(
  {
    status,
    headers,
    body,
    reason,
  }: { status: 401 | 403; headers?: unknown; body?: unknown; reason?: unknown },
  onError: (error: unknown) => void,
): Identified {
  const code = status === 401 ? 'PEER_UNAUTHENTICATED' : 'PEER_FORBIDDEN'
  const written = typeof body === 'string' ? body : undefined
  if (body !== undefined && written === undefined) {
    onError(misuse('The body of a refusal from authenticate must be a string: use JSON.stringify'))
  }
  return {
    kind: 'refused',
    response: {
      status,
      headers: { 'Content-Type': 'application/json', ...sendable(headers, onError) },
      body: written ?? encodeError(null, new RondoError(code)),
    },
    ...(typeof reason === 'string' && { reason }),
  }
}

const HEADER_NAME = /^[!#$%&'*+.^_`|~\w-]+$/
/** Latin-1 without control characters. */
const HEADER_VALUE = /^[\t\x20-\x7e\x80-\xff]*$/
/** Set by the transport. */
const FRAMING = /^(?:content-length|transfer-encoding|connection|keep-alive|upgrade|trailer)$/i

/** The headers that can be sent. A value may quote the caller, in a challenge for example, so an invalid one drops only itself. */
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
          `A header of a refusal from authenticate was dropped (${shown}). A value is a string of printable ` +
            'Latin-1 characters without line breaks: encode what comes from a token before you quote it',
        ),
      )
    }
  }
  if (!isRecord(headers)) onError(misuse('The headers of a refusal from authenticate must be a plain object'))
  return kept
}

// Refuses requests that a caller's token does not allow, before a state is opened and before a handler runs. One challenge
// names everything that the request needs, so that a client steps up once: the scopes that the server asks of everybody,
// and those of each tool, prompt, resource, task or subscription in the request. A caller without a token gets 401, one
// with too little scope 403 (RFC 6750, 3.1).

export function createAccess(service: Service, authenticate: Authenticate | undefined): Access {
  const { scopes: base = [], implies, challenge = plainChallenge } = authenticate?.resource ?? {}

  const everybody: Need = { scopes: base }

  const allows = (granted: readonly string[], scope: string): boolean =>
    granted.includes(scope) || (implies !== undefined && granted.some((one) => implies(one, scope)))

  const allowsAll: Access['allows'] = (scopes, principal) =>
    scopes.every((scope) => allows(principal?.scopes ?? [], scope))

  const require = ({ scopes }: Need, principal: Principal | undefined): void => {
    if (allowsAll(scopes, principal)) return
    const known = principal !== undefined
    const error = new RondoError(known ? 'PEER_SCOPE' : 'PEER_UNAUTHENTICATED', undefined, {
      data: { requiredScopes: scopes },
      headers: { 'WWW-Authenticate': challenge(known ? 'insufficient_scope' : undefined, scopes) },
    })
    service.onRefused?.(error.code, error.http)
    throw error
  }

  return {
    get active() {
      return base.length > 0 || service.scoped
    },
    allows: allowsAll,
    async admit(calls, principal, also = []) {
      const needs = await Promise.all(calls.map((call) => service.needOf(call)))
      require(union([everybody, { scopes: also }, ...needs]), principal)
      return needs
    },
  }
}

/** Calls `done` with an error, or with the call and what was found out about its arguments if the caller's token allows it. */
export function admitCall(
  access: Access,
  call: Call,
  principal: Principal | undefined,
  done: (error: unknown, call?: Call) => void,
): void {
  const allowed = withoutRelated(call, (taskId) => access.allows(scopesOfTask(taskId), principal))
  const follow = ([need]: readonly Need[]): void => done(undefined, need ? withNeed(allowed, need) : allowed)
  access.admit([call], principal).then(follow).catch(done)
}

/** Related tasks are advice: those that the token does not allow are left out, and the call is served without them. */
function withoutRelated(call: Call, isAllowed: (taskId: string) => boolean): Call {
  if (call.kind !== 'flow' || call.relatedTaskIds === undefined) return call
  return { ...call, relatedTaskIds: call.relatedTaskIds.filter(isAllowed) }
}

const METADATA_HEADERS = {
  'Content-Type': 'application/json',
  'Cache-Control': 'public, max-age=3600',
  'Access-Control-Allow-Origin': '*',
} as const

/**
 * The response to a request for the server's metadata (RFC 9728): public, the same for everybody, and readable by pages of
 * any origin, because a client in a browser reads it before it has a token. Undefined for every other request.
 */
export function metadataResponse(
  { paths, document }: ProtectedResource,
  method: string,
  url: string | undefined,
  headers: RequestHeaders,
): HttpResponse | undefined {
  const path = pathOf(url ?? '')
  if (!paths.includes(path)) return undefined
  if (method === 'GET' || method === 'HEAD') return { status: 200, headers: METADATA_HEADERS, body: document }
  if (method !== 'OPTIONS') return { ...refusal(new RondoError('PEER_HTTP_METHOD', 'GET only')), status: 405 }
  const wanted = headers['access-control-request-headers'] ?? ''
  return {
    status: 204,
    headers: {
      'Access-Control-Allow-Origin': '*',
      'Access-Control-Allow-Methods': 'GET, HEAD',
      'Access-Control-Max-Age': '86400',
      ...(HEADER_NAMES.test(wanted) && { 'Access-Control-Allow-Headers': wanted }),
    },
    body: '',
  }
}

const HEADER_NAMES = /^[\w-]+(?:[ \t]*,[ \t]*[\w-]+)*$/
const WHOLE_URL = /^[a-z][a-z0-9+.-]*:\/\/[^/?#]*/i

/** The path of a URL or of a request line, without a slash at its end. */
function pathOf(url: string): string {
  const path = url.replace(WHOLE_URL, '').replace(/[?#].*$/s, '')
  return path.length > 1 && path.endsWith('/') ? path.slice(0, -1) : path
}

function plainChallenge(error: 'insufficient_scope' | undefined, scopes: readonly string[]): string {
  return `Bearer ${error ? `error="${error}", ` : ''}scope="${scopes.join(' ')}"`
}
