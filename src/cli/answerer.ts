/**
 * Who answers the questions of a round: a person at the terminal, a file of answers, or nobody now. Each takes a pending
 * call and gives it back with answers, or says that they come later.
 */

import { answer, openQuestions, type PendingCall } from '../client/pending.ts'
import type { InputRequest } from '../protocol/wire.ts'
import { askQuestion } from './ask/ask-question.ts'
import { createTerminal, Dismissed } from './ask/terminal.ts'
import { CommandError } from './command-error.ts'
import type { Io } from './io.ts'
import { responseFor } from './response-for.ts'

/** Sees the call after every answer. */
type Save = (pending: PendingCall) => void

export interface Answerer {
  /** Undefined: the answers come later. */
  answer(pending: PendingCall, save: Save): Promise<PendingCall | undefined>
  /** Ctrl-C was pressed at a question. */
  readonly interrupted?: boolean
  /** A script that has to fit: a call whose answers do not is not kept. */
  readonly isScript?: boolean
  /** Keys of answers that nobody asked for. */
  unused?(): readonly string[]
}

export const answerLater: Answerer = { answer: async () => undefined }

/** One question at a time. A dismissed one cancels what else is open, now and in later rounds. */
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
          now = cancelOne(now, key, question)
          continue
        }
        try {
          const reply = await askQuestion(terminal, now, question, { index: index + 1, count: open.length })
          if (reply.kind === 'later') return undefined
          now = answer(now, key, reply.response)
        } catch (error) {
          if (!(error instanceof Dismissed)) throw error
          interrupted = true
          now = cancelOne(now, key, question)
        }
        save(now)
      }
      return now
    },
  }
}

function cancelOne(pending: PendingCall, key: string, question: InputRequest): PendingCall {
  if (question.method === 'elicitation/create') return answer(pending, key, { action: 'cancel' })
  throw new CommandError('interrupted', `The question "${key}" was dismissed`)
}

/** Answers by key. Each is used once; `partial` leaves what is missing for later instead of failing. */
export function answerFrom(answers: Readonly<Record<string, unknown>>, partial: boolean): Answerer {
  const unused = new Set(Object.keys(answers))
  return {
    isScript: !partial,
    unused: () => [...unused],
    async answer(pending, save) {
      let now = pending
      const missing: string[] = []
      for (const [key, question] of openQuestions(pending)) {
        if (!unused.delete(key)) missing.push(key)
        else now = answer(now, key, responseFor(key, question, answers[key]))
      }
      save(now)
      if (missing.length === 0) return now
      if (partial) return undefined
      const again = missing.filter((key) => Object.hasOwn(answers, key))
      const why = again.length > 0 ? ' (asked again: the first answer was not taken)' : ''
      throw new CommandError('answers', `No answer for ${missing.map((key) => `"${key}"`).join(', ')}${why}`)
    },
  }
}
