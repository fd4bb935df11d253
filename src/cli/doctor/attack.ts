/** Judges the answers to a group of attacks on the state: each must be refused, and in the same words. */

import { type Finding, fail, pass, warn } from './finding.ts'
import type { Outcome } from './patient.ts'

export interface AttackNotes {
  readonly id: string
  /** What was tried, as in "other arguments". */
  readonly tried: string
  /** What is wrong if it was taken. */
  readonly fault: string
  readonly advice: string
  /** How bad it is if it was taken. */
  readonly taken?: 'warn' | 'fail'
}

/** The server went on from the state it was given. `honest` is what it does with a genuine one. */
export function isTaken(outcome: Outcome, honest: Outcome): boolean {
  if (outcome.kind === 'asks') return !outcome.again || (honest.kind === 'asks' && honest.again)
  return outcome.kind === 'complete' && !isStumble(outcome, honest)
}

/** The tool failed over the state: refused after a fashion, but by chance. */
function isStumble(outcome: Outcome, honest: Outcome): boolean {
  if (outcome.kind !== 'complete' || !outcome.isError) return false
  return honest.kind !== 'complete' || outcome.result !== honest.result
}

export function judge(notes: AttackNotes, outcomes: readonly Outcome[], honest: Outcome): Finding {
  const { id, tried, fault, advice } = notes
  const taken = outcomes.filter((outcome) => isTaken(outcome, honest)).length
  if (taken > 0) {
    const detail = outcomes.length === 1 ? fault : `${fault} (${taken} of ${outcomes.length} tries)`
    return (notes.taken === 'warn' ? warn : fail)(id, detail, advice)
  }
  const broken = outcomes.find((outcome) => outcome.kind === 'broken')
  if (broken !== undefined || outcomes.some((outcome) => isStumble(outcome, honest))) {
    const detail = `${tried}: ${broken?.message ?? 'the tool fails over it'}`
    return warn(id, detail, 'Answer a state that is not valid with a JSON-RPC error.')
  }
  if (outcomes.some((outcome) => outcome.kind === 'asks')) {
    return warn(
      id,
      `${tried}: not refused, the call began anew`,
      'Refuse a state that is not valid with an error.',
    )
  }
  return pass(id, `${tried}: refused${outcomes.length > 1 ? ` (${outcomes.length} tries)` : ''}`)
}

/** Refusals that differ tell an attacker which check a state has passed. */
export function judgeRefusals(outcomes: readonly Outcome[]): Finding | undefined {
  const refusals = outcomes.filter((outcome) => outcome.kind === 'refused')
  if (refusals.length < 2) return undefined
  const texts = new Set(refusals.map(({ code, message }) => `${code} ${message}`))
  if (texts.size === 1) return pass('state-errors', `all refusals read the same: ${[...texts][0]}`)
  return warn(
    'state-errors',
    `refusals differ: ${[...texts].join(' / ')}`,
    'Use one error for every reason, and keep the reason in your log.',
  )
}
