/**
 * Who answers the questions of a round: a person at the terminal, a file of answers, or nobody now. Each takes a pending
 * call and returns it with answers, or undefined if they come later.
 *
 * Servers of older revisions wait while they ask, so nothing can be left for later there: `answerNow` is for those.
 */

import { answer, openQuestions, type PendingCall } from '../client/pending.ts'
import type { InputRequest, InputResponse } from '../protocol/wire.ts'
import { type Asking, askQuestion } from './ask/question.ts'
import { createTerminal, Dismissed } from './ask/terminal.ts'
import { CommandError } from './command-line.ts'
import { messageOf } from './describe.ts'
import { responseFor } from './given-answers.ts'
import type { Io } from './io.ts'

/** Sees the call after every answer. */
type Save = (pending: PendingCall) => void

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

/**
 * Answers from a file, each used once, found by the key of the question or by its whole message. Older servers send no keys;
 * there `question-1`, `question-2` … count the questions. `partial` leaves missing answers for later instead of failing.
 */
export function answerFrom(answers: Readonly<Record<string, unknown>>, partial: boolean): Answerer {
  const unused = new Set(Object.keys(answers))
  const take = (key: string, question: InputRequest): string | undefined =>
    [key, messageOf(question)].find((name) => name !== undefined && unused.delete(name))
  return {
    isScript: !partial,
    unused: () => [...unused],
    async answer(pending, save) {
      let now = pending
      const missing: string[] = []
      for (const [key, question] of openQuestions(pending)) {
        const found = take(key, question)
        if (found === undefined) missing.push(key)
        else now = answer(now, key, responseFor(key, question, answers[found]))
      }
      save(now)
      if (missing.length === 0) return now
      if (partial) return undefined
      const again = missing.filter((key) => Object.hasOwn(answers, key))
      const why = again.length > 0 ? ' (asked again: the server did not accept the first answer)' : ''
      throw new CommandError('answers', `No answer for ${missing.map((key) => `"${key}"`).join(', ')}${why}`)
    },
    async answerNow({ key, question }) {
      const found = take(key, question)
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

/** Only forms and URLs can be dismissed; the call ends with any other question that is. */
function cancelOf(key: string, { method }: InputRequest): InputResponse {
  if (method === 'elicitation/create') return { action: 'cancel' }
  throw new CommandError('interrupted', `The question "${key}" was cancelled`)
}
