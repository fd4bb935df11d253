/**
 * Questions that are asked again, and how often they may be: one whose wording changed between two rounds, and one whose
 * answer does not fit. Also what a client that cannot be asked reads instead.
 */

import { RondoError } from '../errors.ts'
import { type Ask, describeUnasked, type Unasked } from './question.ts'
import type { RunState } from './run-state.ts'

/** Ends the run and returns false if the question has been reworded too often. */
export function mayReword(run: RunState, key: string): boolean {
  if (run.record.noteChange(key) <= run.limits.maxReasks) return true
  const detail =
    `The question "${key}" changes on every replay, so no answer ever matches it. ` +
    'Keep clocks, rates and random values out of its message and schema, or record them with ctx.step.'
  run.turn.refuse(new RondoError('REPLAY_QUESTION_CHANGES', detail))
  return false
}

const EMPTY = 'The form came back empty.'

/** Ends the run and returns false if the answers did not fit too often, or the client seems unable to show the form. */
export function mayRetry(
  run: RunState,
  key: string,
  question: Ask,
  { problem, empty = false }: { problem: string; empty?: boolean },
): boolean {
  const before = run.record.reask(key).problem
  const now = empty ? `${EMPTY} ${problem}` : problem
  if (empty && before?.startsWith(EMPTY)) {
    const detail = `This client accepted "${key}" twice without filling in the form: it seems unable to show it.`
    const instead = describeUnasked(toUnasked(run, question))
    run.turn.refuse(new RondoError('INPUT_REJECTED', `${detail} ${instead}`))
    return false
  }
  if (run.record.noteMisfit(key, now) <= run.limits.maxReasks) return true
  const detail = `The answer to "${key}" was invalid ${run.limits.maxReasks + 1} times. ${now}`
  run.turn.refuse(new RondoError('INPUT_REJECTED', detail))
  return false
}

/** The question, and what was done before it, for a client that cannot be asked. */
export function toUnasked(run: RunState, { request, instead }: Ask): Unasked {
  const effects = [...run.names].filter(([, kind]) => kind === 'effect')
  const isDone = run.record.unreachedEffect() !== undefined || effects.some(([key]) => run.record.find(key))
  return { request, instead, acted: isDone ? 'yes' : effects.length > 0 ? 'perhaps' : 'no' }
}
