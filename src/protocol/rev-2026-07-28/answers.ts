/**
 * `inputResponses` of a request: an object that maps each key to a result object, anything else is refused (B14).
 *
 * The answers come out in a map without a prototype, so that no key, whatever its name, reaches more than itself.
 * Whether a key was asked for and whether the answer fits is decided later; here only shape and size count (T7).
 */

import { RondoError } from '../../errors.ts'
import { isRecord } from '../../lib/is-record.ts'

export interface AnswerLimits {
  /** Answers in one request. */
  readonly count: number
  /** Characters of one answer: names, strings and numbers, roughly as in its JSON. */
  readonly size: number
}

export const ANSWER_LIMITS: AnswerLimits = { count: 128, size: 65_536 }

export function readAnswers(value: unknown, limits: AnswerLimits): Readonly<Record<string, unknown>> {
  if (!isRecord(value)) throw new RondoError('INPUT_MALFORMED')
  const keys = Object.keys(value)
  if (keys.length > limits.count) {
    throw new RondoError('INPUT_MALFORMED', `inputResponses has more than ${limits.count} answers`)
  }
  const answers: Record<string, unknown> = Object.create(null)
  for (const key of keys) {
    const answer = value[key]
    if (!isRecord(answer)) throw new RondoError('INPUT_MALFORMED')
    if (remaining(answer, limits.size) < 0) {
      throw new RondoError('INPUT_MALFORMED', `An answer is larger than ${limits.size} characters`)
    }
    answers[key] = answer
  }
  return answers
}

/** What is left of `budget` after `value`; below zero it stops looking. */
function remaining(value: unknown, budget: number): number {
  if (typeof value === 'string') return budget - value.length - 2
  if (typeof value !== 'object' || value === null) return budget - 8
  let left = budget - 2
  if (Array.isArray(value)) {
    for (let i = 0; i < value.length && left >= 0; i++) left = remaining(value[i], left - 1)
    return left
  }
  for (const key of Object.keys(value)) {
    if (left < 0) return left
    left = remaining((value as Record<string, unknown>)[key], left - key.length - 4)
  }
  return left
}
