/** A person at the terminal answers, one question at a time. A dismissed one cancels what else is asked in the call. */

import { answer, openQuestions } from '../client/pending.ts'
import type { InputRequest, InputResponse } from '../protocol/wire.ts'
import type { Answerer } from './answerer.ts'
import { askQuestion } from './ask/ask-question.ts'
import { createTerminal, Dismissed } from './ask/terminal.ts'
import { CommandError } from './command-error.ts'
import type { Io } from './io.ts'

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
  throw new CommandError('interrupted', `The question "${key}" was dismissed`)
}
