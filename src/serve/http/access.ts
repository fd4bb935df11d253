/**
 * Refuses requests that a caller's token does not allow, before a state is opened and before a handler runs. One challenge
 * names everything that the request needs, so that a client steps up once: the scopes that the server asks of everybody,
 * and those of each tool, prompt, resource, task or subscription in the request. A caller without a token gets 401, one
 * with too little scope 403 (RFC 6750, 3.1).
 */

import { type Need, NOTHING, union, withNeed } from '../../carry/scope.ts'
import { RondoError } from '../../errors.ts'
import type { Call, Principal } from '../../protocol/call.ts'
import type { RequestHeaders } from '../../protocol/common/headers.ts'
import type { Service } from '../service.ts'
import type { Authenticate, ProtectedResource } from './authenticate.ts'
import { type HttpResponse, refusal } from './line.ts'

export type Checked = Parameters<Service['needOf']>[0]

export interface Access {
  /** False as long as nothing asks for a scope. */
  readonly active: boolean
  /** Returns what each of the calls needs. Throws or rejects if the token does not allow all of it and `also`. */
  admit(
    calls: readonly Checked[],
    principal: Principal | undefined,
    also?: readonly string[],
  ): readonly Need[] | Promise<readonly Need[]>
}

export function createAccess(service: Service, authenticate: Authenticate | undefined): Access {
  const { scopes: base = [], implies, challenge = plainChallenge } = authenticate?.resource ?? {}

  const everybody: Need = { scopes: base }

  const allows = (granted: readonly string[], scope: string): boolean =>
    granted.includes(scope) || (implies !== undefined && granted.some((one) => implies(one, scope)))

  const require = ({ scopes }: Need, principal: Principal | undefined): void => {
    const granted = principal?.scopes ?? []
    if (scopes.every((scope) => allows(granted, scope))) return
    const known = principal !== undefined
    throw new RondoError(known ? 'PEER_SCOPE' : 'PEER_UNAUTHENTICATED', undefined, {
      data: { requiredScopes: scopes },
      headers: { 'WWW-Authenticate': challenge(known ? 'insufficient_scope' : undefined, scopes) },
    })
  }

  return {
    get active() {
      return base.length > 0 || service.scoped
    },
    admit(calls, principal, also = []) {
      const needs = calls.map((call) => service.needOf(call))
      const check = (known: readonly Need[], all: Need): readonly Need[] => {
        require(all, principal)
        return known
      }
      // Most calls need what everybody needs, and nothing else.
      const ordinary = also.length === 0 && needs.every((need) => need === NOTHING)
      const all = ordinary ? everybody : union([everybody, { scopes: also }, ...needs])
      if (!(all instanceof Promise)) return check(needs as readonly Need[], all)
      // Both at once, so that neither can reject unheard.
      return Promise.all([Promise.all(needs), all]).then(([known, sum]) => check(known, sum))
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
  const follow = ([need]: readonly Need[]): void => done(undefined, need ? withNeed(call, need) : call)
  try {
    const needs = access.admit([call], principal)
    if (needs instanceof Promise) needs.then(follow).catch(done)
    else follow(needs)
  } catch (error) {
    done(error)
  }
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
