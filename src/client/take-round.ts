/** A round that a server asks, taken in: vetted, counted, and seen by the policies (C8, C13). */

import type { Driving, Flows } from './flow-options.ts'
import type { FlowRequest } from './flow-request.ts'
import type { Limits } from './limits.ts'
import { ask } from './operation.ts'
import type { PendingCall } from './pending.ts'
import { applyPolicies } from './round-policy.ts'
import { type AskedRound, vetRound } from './vet-round.ts'

export async function takeRound<R extends FlowRequest>(
  { peer, policies }: Flows,
  pending: PendingCall<R>,
  round: AskedRound,
  { limits, options, startedAt }: { limits: Limits; options: Driving; startedAt: number },
): Promise<PendingCall<R>> {
  const questions = vetRound(round, limits, options.kinds)
  const now = peer.clock.now()
  const asked = ask(pending, { questions, state: round.state, now, tookMs: now - startedAt }, limits)
  const own = options.onRound === undefined ? [] : [options.onRound].flat()
  return applyPolicies(asked, [...policies, ...own])
}
