/**
 * Identifies the caller of a request. The author's hook sees the headers and returns a principal, nothing, or a refusal; what it saw
 * goes no further (T3: the bearer token ends here). A hook that throws or never settles refuses the request without a
 * reason. Its verdict is checked here, so no later stage meets a principal or a header that it cannot use.
 */

import { type ErrorCode, misuse, RondoError } from '../../errors.ts'
import { isRecord, isThenable } from '../../lib/json.ts'
import type { Principal } from '../../protocol/call.ts'
import type { RequestHeaders } from '../../protocol/common/headers.ts'
import { encodeError } from '../../protocol/common/json-rpc.ts'
import { HOOK_MS, inTime } from '../../tool/hook.ts'
import type { HttpResponse } from '../port.ts'

export interface AuthRequest {
  /** Returns a header by its lower-case name. */
  readonly headers: (name: string) => string | undefined
  readonly method: string
  /** As in the request line, if the entrance knows it. */
  readonly url?: string
}

/**
 * Sent to the client as it is. `WWW-Authenticate` belongs into `headers`. With 503 the caller could not be identified, and retries with
 * the same token; `Retry-After` belongs into `headers` then.
 */
export interface AuthRefusal {
  readonly status: 401 | 403 | 503
  readonly headers?: Readonly<Record<string, string>>
  readonly body?: string
  /** For the log, and never sent: what is wrong, and what an operator can do. It must not quote the token. */
  readonly reason?: string
}

type Verdict = Principal | AuthRefusal | undefined

/** Returns the caller, `undefined` for an anonymous one, or a refusal. */
export interface Authenticate {
  (request: AuthRequest): Verdict | Promise<Verdict>
  /** The part that `oauthResource` adds, so that the server describes itself to clients. */
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

/** The request as `authenticate` sees it. */
export type Arriving = Omit<AuthRequest, 'headers'> & {
  readonly headers: RequestHeaders
  /** The address that it came from, if the runtime knows it. */
  readonly connection?: { readonly address: string | undefined }
}

/** Identifies callers, and reports those that are refused. The returned function never rejects. */
export function createIdentify(
  authenticate: Authenticate,
  onError: (error: unknown, request: Arriving) => void,
  onRefused: (status: number, reason: string | undefined, request: Arriving) => void,
): (request: Arriving) => Promise<Identified> {
  return async ({ headers, method, url, connection }) => {
    const request = { headers: (name: string) => headers[name.toLowerCase()], method, url }
    // Read now: a caller that has gone before it is refused has no address any more, and would have no share of the log.
    const from = { headers, method, url, connection: { address: connection?.address } }
    const identified = await identify(authenticate, request, (error) => onError(error, from))
    if (identified.kind !== 'refused') return identified
    try {
      onRefused(identified.response.status, identified.reason, from)
    } catch (error) {
      // A function of the operator threw, such as the clock.
      onError(error, from)
    }
    return identified
  }
}

export async function identify(
  authenticate: Authenticate,
  request: AuthRequest,
  onError: (error: unknown) => void,
  hookMs: number = HOOK_MS,
): Promise<Identified> {
  try {
    const verdict: unknown = authenticate(request)
    // Only a hook that waits needs a timer.
    const known = isThenable(verdict)
      ? await inTime(Promise.resolve(verdict), hookMs, 'authenticate')
      : verdict
    return judge(known, onError)
  } catch (error) {
    onError(error)
    return refused({ status: 401 }, onError)
  }
}

function judge(verdict: unknown, onError: (error: unknown) => void): Identified {
  if (verdict === undefined || verdict === null) return { kind: 'known', principal: undefined }
  if (!isRecord(verdict)) throw misuse('authenticate must return a principal, a refusal or undefined')
  if (isRefusal(verdict)) return refused(verdict, onError)
  const principal = verdict as unknown as Principal
  assertPrincipal(principal)
  return { kind: 'known', principal }
}

const CODES: Readonly<Record<AuthRefusal['status'], ErrorCode>> = {
  401: 'PEER_UNAUTHENTICATED',
  403: 'PEER_FORBIDDEN',
  503: 'SERVER_IDENTITY',
}

/** The code of a refusal by `authenticate`. */
export function refusalCode(status: number): ErrorCode {
  return CODES[status as AuthRefusal['status']] ?? 'PEER_FORBIDDEN'
}

function isRefusal(verdict: Readonly<Record<string, unknown>>): verdict is Unchecked<AuthRefusal> {
  return typeof verdict.status === 'number' && Object.hasOwn(CODES, verdict.status)
}

/** A refusal of which only the status is known. */
type Unchecked<T extends { readonly status: unknown }> = Readonly<Record<string, unknown>> & Pick<T, 'status'>

/** Names are compared and sealed, so each must be a string. An empty subject would stand for everybody behind one client. */
export function assertPrincipal({
  subject,
  issuer,
  client,
  scopes,
}: Partial<Record<keyof Principal, unknown>>): void {
  if (typeof subject !== 'string' || subject === '') {
    throw misuse(
      'A principal needs a subject that is not empty, and a refusal the status 401, 403 or 503. ' +
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
  { status, headers, body, reason }: Unchecked<AuthRefusal>,
  onError: (error: unknown) => void,
): Identified {
  const written = typeof body === 'string' ? body : undefined
  if (body !== undefined && written === undefined) {
    onError(misuse('The body of a refusal from authenticate must be a string: use JSON.stringify'))
  }
  return {
    kind: 'refused',
    response: {
      status,
      headers: { 'Content-Type': 'application/json', ...sendable(headers, onError) },
      body: written ?? encodeError(null, new RondoError(CODES[status])),
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
