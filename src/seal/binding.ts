/**
 * What a state is bound to, as short texts that are equal exactly when the things are equal.
 *
 * Both are digests of canonical JSON arrays: the brackets and quotes keep the parts apart, so no subject can be chosen
 * that looks like another issuer's. `claims` of a principal are not part of its tag: they may change between rounds.
 */

import { misuse } from '../errors.ts'
import { canonicalJson } from '../lib/canonical-json.ts'
import { digest } from '../lib/digest.ts'
import type { Principal } from '../protocol/call.ts'

/** Shorter than any digest, so that nobody's tag equals it. */
const ANONYMOUS = 'anonymous'

/**
 * Names the caller. Absent is a caller of its own: what was sealed for it opens for nobody else, and the reverse.
 * A principal without a subject is refused here: everybody behind one OAuth client would share it.
 */
export function principalTag(principal: Principal | undefined): string {
  if (principal === undefined) return ANONYMOUS
  const { issuer, subject, client } = principal
  if (typeof subject !== 'string' || subject === '') {
    throw misuse(
      'A principal needs a subject. Give the user or service the request acts for, or undefined for anonymous',
    )
  }
  return digest(canonicalJson([issuer ?? null, subject, client ?? null]))
}

/** Names the request. Absent arguments are the same as none. */
export function requestDigest(
  method: string,
  target: string,
  args: Readonly<Record<string, unknown>> | undefined,
): string {
  return digest(canonicalJson([method, target, args ?? {}]))
}
