/**
 * Who calls. The author's hook sees the request's headers and gives a principal, nobody, or a refusal; what it saw
 * goes no further (T3: the bearer token ends here). A hook that throws, or never settles, refuses, and says nothing about
 * why. Whatever it returns is checked here, so that nothing behind this file meets a principal or a header it cannot use.
 */

import { misuse, RondoError } from '../errors.ts'
import { isRecord } from '../lib/is-record.ts'
import { isThenable } from '../lib/is-thenable.ts'
import type { Principal } from '../protocol/call.ts'
import { encodeError } from '../protocol/rev-2026-07-28/encode.ts'
import type { HeaderReader } from '../protocol/rev-2026-07-28/headers.ts'
import type { HttpAnswer } from './http-answer.ts'

export interface AuthRequest {
  /** Gives a header by its lower-case name. */
  readonly headers: HeaderReader
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
  | { readonly kind: 'refused'; readonly answer: HttpAnswer }

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
    answer: {
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
