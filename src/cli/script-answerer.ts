/**
 * Answers from a file, each used once. They are found by the key of the question; where an older server asks, which gives
 * its questions no keys, by their whole message, or by `question-1`, `question-2` … in the order of asking.
 */

import { answer, openQuestions } from '../client/pending.ts'
import type { Answerer } from './answerer.ts'
import { CommandError } from './command-error.ts'
import { messageOf } from './describe-call.ts'
import { responseFor } from './response-for.ts'

/** `partial` leaves what is missing for later instead of failing. */
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
    async answerNow({ key, question }) {
      const found = [messageOf(question), key].find((name) => name !== undefined && unused.delete(name))
      return found === undefined ? undefined : responseFor(found, question, answers[found])
    },
  }
}
