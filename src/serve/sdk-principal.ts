/**
 * Who calls an official server. Its `authInfo` names the OAuth client; a state has to be bound to the user behind it.
 */

import type { ServerContext } from '@modelcontextprotocol/server'
import { misuse, RondoError } from '../errors.ts'
import { isRecord } from '../lib/is-record.ts'
import type { Principal } from '../protocol/call.ts'
import { assertPrincipal, HOOK_MS, inTime } from './authenticate.ts'

export type FindPrincipal = (ctx: ServerContext) => Principal | undefined | Promise<Principal | undefined>

/** What `find` says, checked before a handler sees it, and in time. */
export function findPrincipalOf(find: FindPrincipal = principalFromAuthInfo): FindPrincipal {
  return async (ctx) => {
    const principal: unknown = await inTime(Promise.resolve(find(ctx)), HOOK_MS, 'createRondo({ principal })')
    if (principal === undefined || principal === null) return undefined
    if (!isRecord(principal)) throw misuse('createRondo({ principal }) must return a principal or undefined')
    assertPrincipal(principal)
    return principal as unknown as Principal
  }
}

/** The claims `sub` and `iss` that the token's verifier left in `authInfo.extra`. Refuses a token without a user. */
function principalFromAuthInfo({ http }: ServerContext): Principal | undefined {
  const auth = http?.authInfo
  if (auth === undefined) return undefined
  const { sub, iss } = auth.extra ?? {}
  if (typeof sub !== 'string' || sub === '') {
    throw new RondoError(
      'SERVER_INTERNAL',
      'A token was verified, and authInfo.extra.sub does not say for whom. Give createRondo a function that does: ' +
        'createRondo({ …, principal: ({ http }) => ({ subject: … }) })',
    )
  }
  return { subject: sub, client: auth.clientId, ...(typeof iss === 'string' ? { issuer: iss } : {}) }
}
