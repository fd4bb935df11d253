/** What serves clients that take their questions in turns: the carrier, and sessions that are sealed into their ids. */

import { concludeUnaskable } from '../carry/conclude.ts'
import type { FlowHost } from '../carry/flow-host.ts'
import type { TurnsOptions } from '../carry/keep-turn.ts'
import { createTurns, type TurnOutcome } from '../carry/turns.ts'
import { RondoError } from '../errors.ts'
import type { FlowCall } from '../protocol/call.ts'
import { principalTag } from '../seal/binding.ts'
import { openSession, sealSession } from '../seal/session-id.ts'
import type { Registry } from '../tool/registry.ts'
import type { Target } from '../tool/target.ts'
import { unknownTarget } from './answer-call.ts'
import type { TurnsService } from './session/older.ts'

/** `mismatch` says why a call cannot be made as its client wants it, with a task or without. */
export function createTurnsService(
  host: FlowHost,
  registry: Registry,
  mismatch: (target: Target, call: FlowCall) => string | undefined,
  options?: TurnsOptions,
): TurnsService {
  const turns = createTurns(host, registry.find, options)
  const { audience, keys } = host
  return {
    async sealSession(facts, principal) {
      await keys.ready()
      return sealSession(keys.ring, audience, principalTag(principal), facts)
    },
    async openSession(id, principal) {
      await keys.ready()
      return openSession(keys.ring, audience, principalTag(principal), id)
    },
    async begin(call, principal, line, session, unaskable) {
      const { id } = call
      const target = registry.find(call.method, call.target)
      if (!target) return { kind: 'reply', id, reply: unknownTarget(call) }
      const why = mismatch(target, call)
      if (why !== undefined)
        return { kind: 'reply', id, reply: { kind: 'error', error: new RondoError('PEER_METHOD', why) } }
      return readable(await turns.begin(target, call, principal, line, session), unaskable)
    },
    resume: async (answers, peer, unaskable) => readable(await turns.resume(answers, peer), unaskable),
    hand: turns.hand,
    handTask: turns.handTask,
  }
}

/** Who cannot be asked reads why in a result, as all clients of this era do. */
function readable(outcome: TurnOutcome, unaskable: string | undefined): TurnOutcome {
  if (outcome.kind !== 'reply' || outcome.reply.kind !== 'error' || !outcome.target) return outcome
  const { error } = outcome.reply
  if (error.code !== 'PEER_CAPABILITY') return outcome
  return { ...outcome, reply: concludeUnaskable(outcome.target, error, unaskable) }
}
