/**
 * Who answers the questions of a round: a person at the terminal, a file of answers, or nobody now. Each takes a pending
 * call and gives it back with answers, or says that they come later.
 *
 * Servers of older revisions wait while they ask, so nothing can be left for later there: `answerNow` is for those.
 */

import type { PendingCall } from '../client/pending.ts'
import type { InputRequest, InputResponse } from '../protocol/wire.ts'
import type { Asking } from './ask/ask-question.ts'

/** Sees the call after every answer. */
export type Save = (pending: PendingCall) => void

/** A question for which the server holds its call. */
export interface WaitingQuestion extends Asking {
  readonly key: string
  readonly question: InputRequest
  /** Aborted when the server takes the question back, or is gone. */
  readonly signal: AbortSignal
}

export interface Answerer {
  /** Undefined: the answers come later. */
  answer(pending: PendingCall, save: Save): Promise<PendingCall | undefined>
  /** Undefined: there is no answer. */
  answerNow(waiting: WaitingQuestion): Promise<InputResponse | undefined>
  /** Nobody answers now, whatever is asked. */
  readonly isNobody?: boolean
  /** Ctrl-C was pressed at a question. */
  readonly interrupted?: boolean
  /** A script that has to fit: a call whose answers do not is not kept. */
  readonly isScript?: boolean
  /** Keys of answers that nobody asked for. */
  unused?(): readonly string[]
}

export const answerLater: Answerer = {
  isNobody: true,
  answer: async () => undefined,
  answerNow: async () => undefined,
}
