/**
 * The record of a flow: what was answered, what steps gave, in the order it happened.
 *
 * The journal is plain JSON. It never runs anything and never decides: `replay/` does. Entries are found by name;
 * their order is the order in which results reached the handler.
 *
 * J1 A name stands for one entry. J2 An entry, once written, is never changed. J3 Order is kept.
 */

import { isCount, isRecord, isText, isTime, toMap } from '../lib/narrow.ts'

export type AskEntryKind = 'form' | 'confirm' | 'url' | 'sampling' | 'roots'
export type WorkEntryKind = 'step' | 'effect'
export type EntryKind = AskEntryKind | WorkEntryKind

/** A failed step, in the only form in which it can be handed back: what the handler sees is the same on every replay. */
export interface Failure {
  readonly name: string
  readonly message: string
  readonly code?: string | number
  /** The message was written for the client (`ToolError`). */
  readonly open?: true
}

export type AskEntry = {
  readonly kind: AskEntryKind
  readonly key: string
  /** When it was recorded, ms since the epoch. */
  readonly at: number
  /** Digest of the question that was answered. */
  readonly question: string
  /** The bare result object, as the client sent it. */
  readonly answer: unknown
}

export type WorkEntry = {
  readonly kind: WorkEntryKind
  readonly key: string
  readonly at: number
} & ({ readonly value?: unknown } | { readonly failure: Failure })

export type Entry = AskEntry | WorkEntry

/** Questions that had to be asked again, by key. */
export interface Reask {
  /** Times the answer did not fit. */
  readonly misfits?: number
  /** Times the question was not the one that had been shown. */
  readonly changes?: number
  /** What was wrong with the last answer. */
  readonly problem?: string
}

export interface Journal {
  /** When the flow began, ms since the epoch. */
  readonly startedAt: number
  /** Random bytes (base64url) from which everything of this flow that must not change is derived. */
  readonly seed: string
  readonly entries: readonly Entry[]
  readonly reasks: Readonly<Record<string, Reask>>
  /** Rounds that were spent on moving the call (state alone), so that a client's patience is not used up. */
  readonly moves: number
  /** The manual form's own state. */
  readonly manual?: string
  /** The life of the store under which a flow of single use began. */
  readonly epoch?: string
  /** Where the journal is, if it was too large for its token. */
  readonly spilled?: string
}

/*
 * From parsed JSON to a `Journal`, or undefined. Members this version does not know are kept as they are.
 */

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
