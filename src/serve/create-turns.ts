/** What serves clients that take their questions in turns: the carrier, and sessions that are sealed into their ids. */

import { concludeUnaskable } from '../carry/conclude.ts'
import type { FlowHost } from '../carry/flow-host.ts'
import type { TurnsOptions } from '../carry/keep-turn.ts'
import { createTurns, type TurnOutcome } from '../carry/turns.ts'
import { principalTag } from '../seal/binding.ts'
import { openSession, sealSession } from '../seal/session-id.ts'
import type { Registry } from '../tool/registry.ts'
import { unknownTarget } from './answer-call.ts'
import type { TurnsService } from './session/older.ts'

export function createTurnsService(host: FlowHost, registry: Registry, options?: TurnsOptions): TurnsService {
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
    async begin(call, principal, line, unaskable) {
      const target = registry.find(call.method, call.target)
      if (!target) return { kind: 'reply', id: call.id, reply: unknownTarget(call) }
      return readable(await turns.begin(target, call, principal, line), unaskable)
    },
    resume: async (answers, peer, principal, line, unaskable) =>
      readable(await turns.resume(answers, peer, principal, line), unaskable),
  }
}

/** Who cannot be asked reads why in a result, as all clients of this era do. */
function readable(outcome: TurnOutcome, unaskable: string | undefined): TurnOutcome {
  if (outcome.kind === 'turn' || outcome.reply.kind !== 'error' || !outcome.target) return outcome
  const { error } = outcome.reply
  if (error.code !== 'PEER_CAPABILITY') return outcome
  return { ...outcome, reply: concludeUnaskable(outcome.target, error, unaskable) }
}
