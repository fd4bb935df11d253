/**
 * Refuses requests that a caller's token does not allow, before a state is opened and before a handler runs. One challenge
 * names everything that the request needs, so that a client steps up once: the scopes that the server asks of everybody,
 * and those of each tool, prompt, resource, task or subscription in the request. A caller without a token gets 401, one
 * with too little scope 403 (RFC 6750, 3.1).
 */

import { type Need, scopesOfTask, union, withNeed } from '../../carry/scope.ts'
import { RondoError } from '../../errors.ts'
import type { Call, Principal } from '../../protocol/call.ts'
import type { Access, Service } from '../port.ts'
import type { Authenticate } from './authenticate.ts'

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

/** Returns the call with what was found out about its arguments. Rejects if the caller's token does not allow it. */
export async function allowedCall(
  access: Access,
  call: Call,
  principal: Principal | undefined,
): Promise<Call> {
  const allowed = withoutRelated(call, (taskId) => access.allows(scopesOfTask(taskId), principal))
  const [need] = await access.admit([call], principal)
  return need ? withNeed(allowed, need) : allowed
}

/** Related tasks are advice: those that the token does not allow are left out, and the call is served without them. */
function withoutRelated(call: Call, isAllowed: (taskId: string) => boolean): Call {
  if (call.kind !== 'flow' || call.relatedTaskIds === undefined) return call
  return { ...call, relatedTaskIds: call.relatedTaskIds.filter(isAllowed) }
}

function plainChallenge(error: 'insufficient_scope' | undefined, scopes: readonly string[]): string {
  return `Bearer ${error ? `error="${error}", ` : ''}scope="${scopes.join(' ')}"`
}
