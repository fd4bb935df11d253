/**
 * Who calls an official server. Its `authInfo` names the OAuth client; a state has to be bound to the user behind it.
 */

import type { ServerContext } from '@modelcontextprotocol/server'
import { RondoError } from '../errors.ts'
import type { Principal } from '../protocol/call.ts'

export type FindPrincipal = (ctx: ServerContext) => Principal | undefined | Promise<Principal | undefined>

/** The claims `sub` and `iss` that the token's verifier left in `authInfo.extra`. Refuses a token without a user. */
export function principalFromAuthInfo({ http }: ServerContext): Principal | undefined {
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
