/**
 * Who calls. The author's hook sees the request's headers and gives a principal, nobody, or a refusal; what it saw
 * goes no further (T3: the bearer token ends here). A hook that throws refuses, and says nothing about why.
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

export function identify(
  authenticate: Authenticate,
  request: AuthRequest,
  onError: (error: unknown) => void,
): Identified | PromiseLike<Identified> {
  const failed = (error: unknown): Identified => {
    onError(error)
    return refused({ status: 401 })
  }
  try {
    const verdict: unknown = authenticate(request)
    return isThenable(verdict) ? verdict.then(judge).then(undefined, failed) : judge(verdict)
  } catch (error) {
    return failed(error)
  }
}

function judge(verdict: unknown): Identified {
  if (verdict === undefined || verdict === null) return { kind: 'known', principal: undefined }
  if (!isRecord(verdict)) throw misuse('authenticate must give a principal, a refusal or undefined')
  if (verdict.status === 401 || verdict.status === 403) return refused(verdict as unknown as AuthRefusal)
  if (typeof verdict.subject === 'string') {
    return { kind: 'known', principal: verdict as unknown as Principal }
  }
  throw misuse('authenticate gave neither a principal with a subject nor a refusal of status 401 or 403')
}

function refused({ status, headers, body }: AuthRefusal): Identified {
  const code = status === 401 ? 'PEER_UNAUTHENTICATED' : 'PEER_FORBIDDEN'
  return {
    kind: 'refused',
    answer: {
      status,
      headers: { 'Content-Type': 'application/json', ...headers },
      body: body ?? encodeError(null, new RondoError(code)),
    },
  }
}
