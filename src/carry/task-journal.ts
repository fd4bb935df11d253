/**
 * A task's journal in the database: one record per entry, and one each time it stops. Folding them gives the journal
 * that replay runs against, and what was asked last.
 *
 * A wire key is used once in the life of a task, so a question that is asked again goes out under a new one.
 */

import type { Entry, Journal, Reask } from '../journal/journal.ts'
import type { OpenQuestion } from '../replay/outcome.ts'

export interface Parked {
  /** What was asked, by wire key: the author's key, and the digest of the question. */
  readonly asked: Readonly<Record<string, { readonly key: string; readonly digest: string }>>
  readonly reasks: Readonly<Record<string, Reask>>
  /** Keys whose recorded answer no longer counts. */
  readonly struck?: readonly string[]
  /** The manual form's own state. */
  readonly manual?: string
}

/** `rested`: a turn came as far as it could and ended there without a question; what it said need not be said again. */
export type TaskRecord = { readonly entry: Entry } | { readonly parked: Parked } | { readonly rested: true }

export interface Folded {
  readonly entries: readonly Entry[]
  readonly parked: Parked
  /** How often it parked, or was to be run again. */
  readonly parks: number
  /** Nothing was recorded since a turn came as far as it could. */
  readonly resting: boolean
}

/** What was noted of a flow in rounds, before it became a task. */
export type Noted = Pick<Parked, 'reasks' | 'manual'>

export function foldRecords(records: readonly TaskRecord[], noted: Noted = { reasks: {} }): Folded {
  const entries = new Map<string, Entry>()
  let parked: Parked = { asked: {}, ...noted }
  let parks = 0
  let resting = false
  for (const record of records) {
    resting = !('entry' in record)
    if ('entry' in record) entries.set(record.entry.key, record.entry)
    else if ('parked' in record) {
      parked = record.parked
      parks += 1
      for (const key of parked.struck ?? []) entries.delete(key)
    }
  }
  return { entries: [...entries.values()], parked, parks, resting }
}

/** Answers that have come for what was asked last, under the author's keys, with the digests of the questions. */
export function freshAnswers(
  { asked }: Parked,
  answers: ReadonlyMap<string, unknown>,
): { answers: Record<string, unknown>; asked: Record<string, string> } {
  const fresh = { answers: Object.create(null), asked: Object.create(null) }
  for (const [wireKey, { key, digest }] of Object.entries(asked)) {
    if (!answers.has(wireKey)) continue
    fresh.answers[key] = answers.get(wireKey)
    fresh.asked[key] = digest
  }
  return fresh
}

function freeKey(key: string, taken: { has(key: string): boolean }): string {
  if (!taken.has(key)) return key
  let n = 2
  while (taken.has(`${key}~${n}`)) n += 1
  return `${key}~${n}`
}

/** The open questions under keys this task has not used, and the record that says so. */
export function park(
  questions: readonly (readonly [string, Pick<OpenQuestion, 'request' | 'digest'>])[],
  journal: Pick<Journal, 'reasks' | 'entries' | 'manual'>,
  before: readonly Entry[],
  taken: { has(key: string): boolean },
): { inputs: ReadonlyMap<string, OpenQuestion['request']>; record: TaskRecord } {
  const inputs = new Map<string, OpenQuestion['request']>()
  const asked: Record<string, { key: string; digest: string }> = {}
  for (const [key, { request, digest }] of questions) {
    const wireKey = freeKey(key, { has: (name) => taken.has(name) || inputs.has(name) })
    inputs.set(wireKey, request)
    asked[wireKey] = { key, digest }
  }
  const kept = new Set(journal.entries.map((entry) => entry.key))
  const struck = before.map((entry) => entry.key).filter((key) => !kept.has(key))
  const record: TaskRecord = {
    parked: {
      asked,
      reasks: journal.reasks,
      ...(struck.length > 0 ? { struck } : {}),
      ...(journal.manual === undefined ? {} : { manual: journal.manual }),
    },
  }
  return { inputs, record }
}
