/**
 * Answers from a file, each used once. They are found by the key of the question or by its whole message: older servers give
 * their questions no keys. Where such a server waits, `question-1`, `question-2` … in the order of asking are keys too.
 */

import { answer, openQuestions } from '../client/pending.ts'
import type { InputRequest } from '../protocol/wire.ts'
import type { Answerer } from './answerer.ts'
import { CommandError } from './command-error.ts'
import { messageOf } from './describe-call.ts'
import { responseFor } from './response-for.ts'

/** `partial` leaves what is missing for later instead of failing. */
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
      const why = again.length > 0 ? ' (asked again: the first answer was not taken)' : ''
      throw new CommandError('answers', `No answer for ${missing.map((key) => `"${key}"`).join(', ')}${why}`)
    },
    async answerNow({ key, question }) {
      const found = take(key, question)
      return found === undefined ? undefined : responseFor(found, question, answers[found])
    },
  }
}
