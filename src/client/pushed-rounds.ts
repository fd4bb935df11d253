/**
 * Questions that an older server sends while it works on a call, as rounds of that call: the same limits, the same
 * look at what is asked, the same policies and handlers (C5). What differs is that the server waits meanwhile, so
 * nothing can be kept for later.
 */

import { RondoError } from '../errors.ts'
import type { InputRequest, InputResponse } from '../protocol/wire.ts'
import { answerableKinds } from './answers.ts'
import type { Driving, Flows } from './flow-options.ts'
import { fulfil } from './fulfil.ts'
import type { Limits } from './limits.ts'
import { openQuestions, type PendingCall } from './pending.ts'
import { kindOf } from './question.ts'
import type { Asker } from './session/inbox.ts'
import { takeRound } from './take-round.ts'

export interface PushedRounds {
  /** How often the server has asked in this call. */
  readonly rounds: number
  readonly take: Asker
}

export function createPushedRounds(
  flows: Flows,
  pending: PendingCall,
  options: Driving,
  limits: Limits,
): PushedRounds {
  const { answers } = flows
  const kinds = answerableKinds(answers)
  let current = pending
  let last: Promise<unknown> = Promise.resolve()
  const takeNow = async (question: InputRequest, signal: AbortSignal): Promise<InputResponse> => {
    signal.throwIfAborted()
    if (options.suspends && !kinds.has(kindOf(question))) throw cannotKeep(question, pending)
    const key = `question-${current.round + 1}`
    const startedAt = flows.peer.clock.now()
    const how = { limits, startedAt, options: { ...options, kinds } }
    const asked = await takeRound(flows, current, { questions: { [key]: question } }, how)
    current = asked
    const open = openQuestions(asked).length > 0
    const { answers: given } = open ? await fulfil(asked, { answers, signal }) : asked
    const answer = given[key]
    if (answer === undefined) throw new RondoError('INPUT_ANSWER', `There is no answer to "${key}"`)
    return answer
  }
  return {
    get rounds() {
      return current.round
    },
    take(question, signal) {
      const turn = answers.together ? takeNow(question, signal) : last.then(() => takeNow(question, signal))
      last = turn.catch(() => {})
      return turn
    },
  }
}

function cannotKeep(question: InputRequest, { protocolVersion }: PendingCall): RondoError {
  const why = `in ${protocolVersion} the server waits for the answer, so the call cannot be kept for later`
  return new RondoError('INPUT_PENDING', `The server asks (${kindOf(question)}), and ${why}: give a handler`)
}
