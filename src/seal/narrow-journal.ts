/**
 * From parsed JSON to a `Journal`, or undefined. Members this version does not know are kept as they are.
 */

import type { AskEntryKind, Entry, Journal, Reask, WorkEntryKind } from '../journal/journal.ts'
import { isCount, isRecord, isText, isTime, toMap } from './narrow.ts'

const ASK_KINDS: ReadonlySet<unknown> = new Set<AskEntryKind>(['form', 'confirm', 'url', 'sampling', 'roots'])
const WORK_KINDS: ReadonlySet<unknown> = new Set<WorkEntryKind>(['step', 'effect'])

export function narrowJournal(value: unknown): Journal | undefined {
  if (!isRecord(value)) return undefined
  const { startedAt, seed, entries, moves, manual } = value
  if (!isTime(startedAt) || !isText(seed) || !isCount(moves)) return undefined
  if (manual !== undefined && !isText(manual)) return undefined
  if (!Array.isArray(entries) || !entries.every(isEntry)) return undefined
  const reasks = toMap(value.reasks, (reask) => (isReask(reask) ? reask : undefined))
  if (reasks === undefined) return undefined
  const journal = { startedAt, seed, entries, reasks, moves }
  return manual === undefined ? { ...value, ...journal } : { ...value, ...journal, manual }
}

function isEntry(value: unknown): value is Entry {
  if (!isRecord(value) || !isText(value.key) || !isTime(value.at)) return false
  if (ASK_KINDS.has(value.kind)) return isText(value.question) && Object.hasOwn(value, 'answer')
  if (!WORK_KINDS.has(value.kind)) return false
  if (!Object.hasOwn(value, 'failure')) return true
  return !Object.hasOwn(value, 'value') && isFailure(value.failure)
}

function isFailure(value: unknown): boolean {
  if (!isRecord(value) || !isText(value.name) || !isText(value.message)) return false
  if (value.open !== undefined && value.open !== true) return false
  return value.code === undefined || isText(value.code) || typeof value.code === 'number'
}

function isReask(value: unknown): value is Reask {
  if (!isRecord(value)) return false
  const { misfits, changes, problem } = value
  if (misfits !== undefined && !isCount(misfits)) return false
  if (changes !== undefined && !isCount(changes)) return false
  return problem === undefined || isText(problem)
}
