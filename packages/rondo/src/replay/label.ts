/**
 * `ctx.label`: names by which an operator finds the task of a call. A label changes nothing that the handler can see, and is no
 * entry of the journal: every replay sets the same labels again.
 *
 * label 1: Labels merge by name, and the last value of a name wins.
 * label 2: The labels of a task are durable before the turn that set them ends. A replay writes nothing before it is past what
 * an earlier run has recorded, so an earlier value of a name never replaces a later one.
 * label 3: Where nothing is stored, in rounds and by push, labels are checked and otherwise ignored.
 */

import { misuse } from '../errors.ts'
import { isRecord } from '../lib/json.ts'
import { keepLabels, type RunState, throwIfNested } from './run-state.ts'

/** Labels of one call. */
export const MAX_LABELS = 8
const MAX_NAME = 64
const MAX_VALUE = 256

export function setLabels(run: RunState, given: unknown): void {
  throwIfNested(run, 'ctx.label()')
  if (run.turn.ended()) return
  if (run.labelling && 'missing' in run.labelling) throw misuse(run.labelling.missing)
  const labels = new Map(run.labels)
  for (const [name, value] of readLabels(given)) {
    // Last, so that the oldest are the first.
    labels.delete(name)
    labels.set(name, value)
  }
  if (labels.size > MAX_LABELS)
    throw misuse(
      `A call can have at most ${MAX_LABELS} labels; ctx.label() would set number ${labels.size}, ${JSON.stringify([...labels.keys()].at(-1))}.`,
    )
  run.labels = labels
  run.newLabels = labels
  keepLabels(run)
}

const USAGE = "ctx.label({ order: '4711' })"

function readLabels(given: unknown): readonly (readonly [string, string])[] {
  if (!isRecord(given))
    throw misuse(`ctx.label takes an object with names and values: ${USAGE}; got ${typeOf(given)}.`)
  return Object.entries(given).map(([name, value]) => {
    if (name === '' || name.length > MAX_NAME || name.includes('='))
      throw misuse(
        `The name of a label must have 1 to ${MAX_NAME} characters and no "=": ${USAGE}; got ${JSON.stringify(name.slice(0, MAX_NAME))}.`,
      )
    if (typeof value !== 'string')
      throw misuse(
        `The label "${name}" must be text, because it is found by exactly that text; got ${typeOf(value)}. Pass String(value).`,
      )
    if (value === '' || value.length > MAX_VALUE)
      throw misuse(`The label "${name}" must have 1 to ${MAX_VALUE} characters; got ${value.length}.`)
    return [name, value]
  })
}

function typeOf(value: unknown): string {
  if (value === undefined || value === null) return String(value)
  return Array.isArray(value) ? 'an array' : typeof value === 'object' ? 'an object' : `a ${typeof value}`
}
