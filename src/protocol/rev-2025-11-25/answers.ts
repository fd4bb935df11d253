/**
 * A client's response to a question that was pushed to it: the bare result object, or why there is none.
 *
 * Whether it fits the question is decided later; here only shape and size count (T7).
 */

import { isRecord } from '../../lib/is-record.ts'
import { ANSWER_LIMITS, type AnswerLimits, readAnswers } from '../rev-2026-07-28/answers.ts'
import type { PeerAnswer } from '../session-call.ts'
import { RELATED_TASK } from './task-result.ts'

type Message = Readonly<Record<string, unknown>>

export function readAnswer(message: Message, limits: AnswerLimits = ANSWER_LIMITS): PeerAnswer {
  const { result, error } = message
  if (isRecord(error)) {
    const code = typeof error.code === 'number' ? error.code : 0
    return { kind: 'error', code, message: typeof error.message === 'string' ? error.message : '' }
  }
  try {
    const { only } = readAnswers({ only: result }, limits)
    return { kind: 'result', result: withoutTask(only as Message) }
  } catch {
    return { kind: 'error', code: 0, message: 'The answer is no result object, or is too large' }
  }
}

/** To which task an answer belongs is said for the way. What the handler sees is the same whatever carried it (R10). */
function withoutTask(result: Message): Message {
  if (!isRecord(result._meta) || !Object.hasOwn(result._meta, RELATED_TASK)) return result
  const { _meta, ...rest } = result
  const { [RELATED_TASK]: _, ...others } = _meta as Message
  return Object.keys(others).length === 0 ? rest : { ...rest, _meta: others }
}
