/**
 * The journal of a flow: the answers and results that its handler received, in that order. Plain JSON; it never runs
 * anything and never decides, `replay/` does. `narrowJournal` reads it from parsed JSON; a `JournalRecord` is the journal
 * while a handler runs against it.
 *
 * journal 1: A key names one entry, or an answer that is kept, never both. journal 2: An entry is never changed; the answer to a question that was reworded is
 * invalidated, not overwritten. journal 3: Entries keep their order.
 */

import { isCount, isRecord, isText, isTime, toMap } from '../lib/json.ts'

export type AskEntryKind = 'form' | 'confirm' | 'url' | 'sampling' | 'roots'
/** `hook`: a hook was opened; its value is the id. `event`: the event that a hook received. `undo`: an effect was undone. */
export type WorkEntryKind = 'step' | 'effect' | 'hook' | 'event' | 'undo'
export type EntryKind = AskEntryKind | WorkEntryKind | 'sleep'

/** A failed step or effect. The handler gets its error from this on every run, the one that failed included. */
export interface RecordedFailure {
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
  /** The result object that the client sent, reduced to what the handler sees; null if there is none. */
  readonly answer: unknown
  /** Set if the time of the question was up before an answer came. */
  readonly expired?: true
}

export type WorkEntry = {
  readonly kind: WorkEntryKind
  readonly key: string
  readonly at: number
  /** Of an `event`: the time of its hook was up before one came. */
  readonly expired?: true
} & ({ readonly value?: unknown } | { readonly failure: RecordedFailure })

/** A sleep that is over. */
export type SleepEntry = { readonly kind: 'sleep'; readonly key: string; readonly at: number }

export type Entry = AskEntry | WorkEntry | SleepEntry

/** An answer to a question that was shown, which no run has reached since: another release asks something else first. */
export interface EarlyAnswer {
  /** Digest of the question that was shown. */
  readonly question: string
  /** The response as the client sent it. Its question checks it when a run reaches it. */
  readonly answer: unknown
}

/** An effect with an undo function that has begun, and may have run. */
export interface BegunEffect {
  readonly key: string
  readonly effectKey: string
  /** Of a single-use effect: the branch of the flow whose slot it claimed. */
  readonly branch?: string
}

/** Counts how often a question was asked again, and why. */
export interface Reask {
  /** Invalid answers. */
  readonly misfits?: number
  /** Times the question differed from the one that had been shown. */
  readonly changes?: number
  /** The problem of the last answer. */
  readonly problem?: string
}

export interface Journal {
  /** When the flow began, ms since the epoch. */
  readonly startedAt: number
  /** Random bytes (base64url) from which the flow's ids, random numbers and idempotency keys are derived. */
  readonly seed: string
  readonly entries: readonly Entry[]
  readonly reasks: Readonly<Record<string, Reask>>
  /**
   * When what is open ends by itself, by key, ms since the epoch: sleeps, questions and hooks with a time limit, and the pause
   * before a failed step is retried.
   */
  readonly deadlines?: Readonly<Record<string, number>>
  /** Failed attempts of steps and effects that will be retried, by key. */
  readonly attempts?: Readonly<Record<string, number>>
  /** Effects with an undo function, in the order in which they began. */
  readonly begun?: readonly BegunEffect[]
  /**
   * Set before the first effect with an undo function: from then on a state counts once, and nothing but this line of the call's
   * history may undo what it did.
   */
  readonly lineage?: string
  /** Answers that came in time and have not been reached, by key (R3). */
  readonly kept?: Readonly<Record<string, EarlyAnswer>>
  /** Rounds that only moved the call: their reply had a state and no question. They are limited, because a client limits its rounds. */
  readonly moves: number
  /** The state of the manual form. */
  readonly manual?: string
  /** The epoch of the store in which a single-use flow began. */
  readonly epoch?: string
  /** Set if an operator continued the flow from an earlier step: keys of effects depend on it. */
  readonly rerun?: string
  /** The name under which the journal is stored if it was too large for its token. */
  readonly spilled?: string
  /** Names of the spans of the flow's first and last round, if telemetry is on. */
  readonly spans?: readonly [first: string, last: string]
}

const ASK_KINDS: ReadonlySet<unknown> = new Set<AskEntryKind>(['form', 'confirm', 'url', 'sampling', 'roots'])
const WORK_KINDS: ReadonlySet<unknown> = new Set<WorkEntryKind>(['step', 'effect', 'hook', 'event', 'undo'])

/** Returns undefined if the value is not a journal. Members that this version does not know are preserved. */
export function narrowJournal(value: unknown): Journal | undefined {
  if (!isRecord(value)) return undefined
  const { startedAt, seed, entries, moves, manual } = value
  if (!isTime(startedAt) || !isText(seed) || !isCount(moves)) return undefined
  if (manual !== undefined && !isText(manual)) return undefined
  if (value.deadlines !== undefined && !toMap(value.deadlines, (due) => (isTime(due) ? due : undefined)))
    return undefined
  if (value.attempts !== undefined && !toMap(value.attempts, (count) => (isCount(count) ? count : undefined)))
    return undefined
  if (value.lineage !== undefined && !isText(value.lineage)) return undefined
  if (value.begun !== undefined && !(Array.isArray(value.begun) && value.begun.every(isBegun)))
    return undefined
  if (!Array.isArray(entries) || !entries.every(isEntry)) return undefined
  const reasks = toMap(value.reasks, (reask) => (isReask(reask) ? reask : undefined))
  if (reasks === undefined) return undefined
  // `value` itself was checked; only the maps are copies.
  const journal = { ...(value as unknown as Journal), reasks }
  if (value.kept === undefined) return journal
  const kept = toMap(value.kept, (answer) => (isEarlyAnswer(answer) ? answer : undefined))
  return kept && { ...journal, kept }
}

function isBegun(value: unknown): boolean {
  if (!isRecord(value) || !isText(value.key) || !isText(value.effectKey)) return false
  return value.branch === undefined || isText(value.branch)
}

function isEarlyAnswer(value: unknown): value is EarlyAnswer {
  return isRecord(value) && isText(value.question) && Object.hasOwn(value, 'answer')
}

function isEntry(value: unknown): value is Entry {
  if (!isRecord(value) || !isText(value.key) || !isTime(value.at)) return false
  if (ASK_KINDS.has(value.kind)) {
    if (value.expired !== undefined && value.expired !== true) return false
    return isText(value.question) && Object.hasOwn(value, 'answer')
  }
  if (value.kind === 'sleep') return true
  if (!WORK_KINDS.has(value.kind)) return false
  if (value.expired !== undefined && (value.expired !== true || value.kind !== 'event')) return false
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

export interface Found {
  readonly entry: Entry
  readonly index: number
}

/** A journal while a handler runs against it. */
export interface JournalRecord {
  find(key: string): Found | undefined
  append(entry: Entry): number
  invalidate(key: string): void
  reask(key: string): Reask
  noteMisfit(key: string, problem: string): number
  noteChange(key: string): number
  /** When the open operation ends by itself, if that was fixed. */
  deadline(key: string): number | undefined
  /** Fixes when the operation ends by itself. It is never fixed a second time while the operation is open. */
  fixDeadline(key: string, due: number): void
  /** The number of attempts of this step or effect that failed. */
  attempts(key: string): number
  /** Notes that an attempt failed, and when the next one begins. */
  noteAttempt(key: string, count: number, due: number): void
  /** Effects with an undo function, in the order in which they began. */
  begun(): readonly BegunEffect[]
  noteBegun(effect: BegunEffect): void
  /** Names the line of history that this run belongs to, unless it has a name. */
  nameLineage(lineage: string): void
  /** Keeps an answer until a run reaches its question. A recorded one wins (R2). */
  keep(key: string, answer: EarlyAnswer): void
  /** Removes and returns the answer that was kept for this key. */
  takeEarly(key: string): EarlyAnswer | undefined
  /** The answers that are kept, by key. */
  early(): ReadonlyMap<string, EarlyAnswer>
  /** Notes that this run has reached the entry. */
  reach(key: string): void
  /** A recorded effect that this run has not reached yet (R5). */
  unreachedEffect(): string | undefined
  /** Entries, and answers that are kept. */
  size(): number
  toJournal(): Journal
}

const NOTHING_BEGUN: readonly BegunEffect[] = []

type Writable<T> = { -readonly [K in keyof T]: T[K] }

export function createRecord(journal: Journal): JournalRecord {
  const entries: (Entry | undefined)[] = [...journal.entries]
  const byKey = new Map<string, number>()
  const unreached = new Set<string>()
  for (const [index, entry] of journal.entries.entries()) {
    byKey.set(entry.key, index)
    if (entry.kind === 'effect') unreached.add(entry.key)
  }
  const deadlines = new Map(journal.deadlines && Object.entries(journal.deadlines))
  let attempts = journal.attempts && new Map(Object.entries(journal.attempts))
  const kept = new Map(journal.kept && Object.entries(journal.kept))
  // A process that died may have left both.
  for (const key of kept.keys()) if (byKey.has(key)) kept.delete(key)
  let { begun = NOTHING_BEGUN, lineage } = journal
  let reasks: Map<string, Reask> | undefined
  /** An entry was invalidated. */
  let isSparse = false

  const reaskMap = (): Map<string, Reask> => {
    reasks ??= new Map(Object.entries(journal.reasks))
    return reasks
  }

  return {
    find(key) {
      const index = byKey.get(key)
      return index === undefined ? undefined : { entry: entries[index] as Entry, index }
    },
    append(entry) {
      deadlines.delete(entry.key)
      attempts?.delete(entry.key)
      kept.delete(entry.key)
      byKey.set(entry.key, entries.length)
      return entries.push(entry) - 1
    },
    invalidate(key) {
      const index = byKey.get(key)
      if (index !== undefined) {
        entries[index] = undefined
        isSparse = true
      }
      byKey.delete(key)
    },
    reask: (key) => reaskMap().get(key) ?? {},
    noteMisfit(key, problem) {
      const before = reaskMap().get(key)
      const misfits = (before?.misfits ?? 0) + 1
      reaskMap().set(key, { ...before, misfits, problem })
      return misfits
    },
    noteChange(key) {
      const before = reaskMap().get(key)
      const changes = (before?.changes ?? 0) + 1
      reaskMap().set(key, { ...before, changes })
      return changes
    },
    deadline: (key) => deadlines.get(key),
    fixDeadline: (key, due) => void deadlines.set(key, due),
    attempts: (key) => attempts?.get(key) ?? 0,
    noteAttempt(key, count, due) {
      attempts ??= new Map()
      attempts.set(key, count)
      deadlines.set(key, due)
    },
    begun: () => begun,
    noteBegun(effect) {
      begun = [...begun, effect]
    },
    nameLineage(name) {
      lineage ??= name
    },
    keep(key, answer) {
      if (!byKey.has(key)) kept.set(key, answer)
    },
    takeEarly(key) {
      const answer = kept.get(key)
      kept.delete(key)
      return answer
    },
    early: () => kept,
    reach: (key) => void unreached.delete(key),
    unreachedEffect: () => unreached.values().next().value,
    size: () => byKey.size + kept.size,
    toJournal() {
      const copy: Writable<Journal> = { ...journal }
      copy.entries = isSparse ? entries.filter((entry) => entry !== undefined) : (entries as Entry[]).slice()
      if (reasks) copy.reasks = Object.fromEntries(reasks)
      if (deadlines.size > 0) copy.deadlines = Object.fromEntries(deadlines)
      else if (copy.deadlines !== undefined) copy.deadlines = undefined
      if (attempts?.size) copy.attempts = Object.fromEntries(attempts)
      else if (copy.attempts !== undefined) copy.attempts = undefined
      if (begun.length > 0) copy.begun = begun
      if (lineage !== undefined) copy.lineage = lineage
      if (kept.size > 0) copy.kept = Object.fromEntries(kept)
      else if (copy.kept !== undefined) copy.kept = undefined
      return copy
    },
  }
}
