/**
 * Answers the questions of a round: a person at the terminal, a file of answers, or nobody now. Each answerer takes a
 * pending call and returns it with answers, or undefined if the answers come later.
 *
 * Servers of older revisions wait for the answer while they ask, so it cannot come later: `answerNow` is for those.
 */

import { answer, openQuestions, type PendingCall } from '../client/pending.ts'
import type { InputRequest, InputResponse } from '../protocol/wire.ts'
import { type Asking, askQuestion } from './ask/question.ts'
import { createTerminal, Dismissed } from './ask/terminal.ts'
import { CommandError } from './command-line.ts'
import { messageOf } from './describe.ts'
import { responseFor } from './given-answers.ts'
import type { Io } from './io.ts'

/** Called with the call after every answer. */
type Save = (pending: PendingCall) => void

/** A question for which the server holds its call. */
interface WaitingQuestion extends Asking {
  readonly key: string
  readonly question: InputRequest
  /** Aborted when the server withdraws the question, or is gone. */
  readonly signal: AbortSignal
}

export interface Answerer {
  /** Returns undefined if the answers come later. */
  answer(pending: PendingCall, save: Save): Promise<PendingCall | undefined>
  /** Returns undefined if there is no answer. */
  answerNow(waiting: WaitingQuestion): Promise<InputResponse | undefined>
  /** True if nobody answers now, whatever the question. */
  readonly isNobody?: boolean
  /** True if Ctrl-C was pressed at a question. */
  readonly interrupted?: boolean
  /** True for a complete set of answers: a call that they do not fit is dropped, not kept. */
  readonly isScript?: boolean
  /** Keys of answers that were not used. */
  unused?(): readonly string[]
}

export const answerLater: Answerer = {
  isNobody: true,
  answer: async () => undefined,
  answerNow: async () => undefined,
}

/**
 * Answers from a file, each used once, found by the key of the question or by its whole message. Older servers send no keys;
 * there `question-1`, `question-2` … count the questions. `partial` leaves missing answers for later instead of failing.
 */
export function answerFrom(answers: Readonly<Record<string, unknown>>, partial: boolean): Answerer {
  const unused = new Set(Object.keys(answers))
  const findAnswer = (key: string, question: InputRequest): string | undefined =>
    [key, messageOf(question)].find((name) => name !== undefined && unused.delete(name))
  return {
    isScript: !partial,
    unused: () => [...unused],
    async answer(pending, save) {
      let now = pending
      const missing: string[] = []
      for (const [key, question] of openQuestions(pending)) {
        const found = findAnswer(key, question)
        if (found === undefined) missing.push(key)
        else now = answer(now, key, responseFor(key, question, answers[found]))
      }
      save(now)
      if (missing.length === 0) return now
      if (partial) return undefined
      const again = missing.filter((key) => Object.hasOwn(answers, key))
      const why = again.length > 0 ? ' (the server did not accept the first answer and asks again)' : ''
      throw new CommandError('answers', `No answer for ${missing.map((key) => `"${key}"`).join(', ')}${why}`)
    },
    async answerNow({ key, question }) {
      const found = findAnswer(key, question)
      return found === undefined ? undefined : responseFor(found, question, answers[found])
    },
  }
}

/** Asks one question at a time. Dismissing one cancels all that follow in the call. */
export function answerAtTerminal(io: Io): Answerer {
  const terminal = createTerminal(io)
  let interrupted = false
  return {
    get interrupted() {
      return interrupted
    },
    async answer(pending, save) {
      const open = openQuestions(pending)
      let now = pending
      for (const [index, [key, question]] of open.entries()) {
        if (interrupted) {
          now = answer(now, key, cancelOf(key, question))
          continue
        }
        try {
          const asking = { ...now, canKeep: true }
          const reply = await askQuestion(terminal, asking, question, {
            index: index + 1,
            count: open.length,
          })
          if (reply.kind === 'later') return undefined
          now = answer(now, key, reply.response)
        } catch (error) {
          if (!(error instanceof Dismissed)) throw error
          interrupted = true
          now = answer(now, key, cancelOf(key, question))
        }
        save(now)
      }
      return now
    },
    async answerNow({ key, question, signal, ...asking }) {
      if (interrupted) return cancelOf(key, question)
      try {
        const place = { index: 1, count: 1 }
        const reply = await askQuestion(createTerminal(io, signal), asking, question, place)
        return reply.kind === 'later' ? undefined : reply.response
      } catch (error) {
        signal.throwIfAborted()
        if (!(error instanceof Dismissed)) throw error
        interrupted = true
        return cancelOf(key, question)
      }
    },
  }
}

/** Only forms and URLs can be cancelled; dismissing any other question ends the call. */
function cancelOf(key: string, { method }: InputRequest): InputResponse {
  if (method === 'elicitation/create') return { action: 'cancel' }
  throw new CommandError('interrupted', `The question "${key}" was cancelled`)
}
