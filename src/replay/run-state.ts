/**
 * What the parts of one run share: the turn, the record, the names used so far, and what was handed in.
 */

import { misuse, RondoError } from '../errors.ts'
import type { AskEntryKind, Entry, EntryKind, Journal } from '../journal/journal.ts'
import type { Idle } from '../lib/clock.ts'
import type { ClientCapabilities, InputRequest } from '../protocol/wire.ts'
import type { TextBounds } from '../tool/schema/judge.ts'
import type { JournalRecord } from './record.ts'
import type { Turn } from './turn.ts'

export interface ReplayLimits extends TextBounds {
  /** Entries a journal may hold. */
  readonly maxEntries: number
  /** Questions that may be open at once. */
  readonly maxQuestions: number
  /** Times a question is asked again because its answer did not fit, or because it was reworded. */
  readonly maxReasks: number
  /** How long the functions given to `ctx.defer` may keep the call waiting, all together, in ms. */
  readonly maxDeferMs: number
}

/** What replay needs of the world; it imports none of it. */
export interface Platform {
  now(): number
  idle: Idle
  digest(text: string): string
  /** Bytes that depend on the flow's seed and the label alone. */
  derive(seed: string, label: string): Uint8Array
  /** Calls `fn` after so many real milliseconds, unless the function it returns is called before. */
  after(ms: number, fn: () => void): () => void
  readonly scope: Scope
}

/** Knows, in whatever is called from `fn`, now or later, that it is. */
export interface Scope {
  within<T>(mark: object, fn: () => T): T
  current(): object | undefined
}

/** What came with the request. */
export interface Incoming {
  /** A sealed journal came with it: the flow's id is in the client's hands. */
  readonly anchored: boolean
  /** Digests of the questions that were shown, by key. */
  readonly asked: Readonly<Record<string, string>>
  readonly answers: Readonly<Record<string, unknown>> | undefined
  /** The answers came with the first request, before anybody was asked. */
  readonly unasked?: boolean
  /** The run before this one came as far as it could: what it said up to there need not be said again. */
  readonly resumed?: boolean
  readonly capabilities: ClientCapabilities
}

/** An operation whose promise nobody has looked at yet. */
export interface Floating {
  readonly label: string
  failed?: { readonly error: unknown }
}

export interface Tally {
  replayed: number
  executed: number
  drawn: number
  progress: number
  /** Results of the journal that were not handed over yet: until none is left, an earlier run has been here before. */
  past: number
}

export interface RunState {
  readonly turn: Turn
  readonly record: JournalRecord
  readonly platform: Platform
  readonly limits: ReplayLimits
  readonly incoming: Incoming
  /** When this round began: the time of every answer that came with it. */
  readonly roundAt: number
  readonly names: Map<string, EntryKind>
  readonly operations: Operation[]
  readonly floating: Set<Floating>
  readonly tally: Tally
  /** What the client said of which the handler knows by now (R7). */
  readonly given: Map<string, { readonly answer: unknown; digest?: string }>
  /** The last answer that is being read; those that came with the request are taken in the order of their questions. */
  reading?: Promise<void>
  readonly seed: string
  /** Makes an entry durable; the handler sees its result only afterwards. Absent where the journal travels at the end. */
  persist?(entry: Entry): Promise<void>
  signal(): AbortSignal
}

const FORBIDDEN = new Set(['__proto__', 'constructor', 'prototype'])

function assertName(key: unknown): asserts key is string {
  if (typeof key !== 'string' || key === '' || key.length > 128 || FORBIDDEN.has(key)) {
    throw misuse(
      `The name of an ask or a step is a string of 1 to 128 characters; got ${JSON.stringify(key)}. ` +
        'Names find answers and results again on the next round.',
    )
  }
}

/** Takes a name for one use in this run (R4). False if the run has just been ended because of it. */
export function takeName(run: RunState, key: string, kind: EntryKind, question?: string): boolean {
  assertName(key)
  if (run.turn.ended()) return false
  run.operations.push(question === undefined ? { kind, key } : { kind, key, question })
  const before = run.names.get(key)
  if (before !== undefined) {
    const detail =
      `The name "${key}" is used twice in one run (${before}, then ${kind}). ` +
      `Give each its own name; in a loop put the item into it, like \`${key}:\${id}\`.`
    run.turn.refuse(new RondoError('REPLAY_NAME_REUSED', detail))
    return false
  }
  run.names.set(key, kind)
  const recorded = run.record.find(key)?.entry.kind
  if (recorded !== undefined && recorded !== kind) {
    const detail =
      `"${key}" was recorded as ${recorded} and is now used as ${kind}. ` +
      'A new version of a tool needs a new name for a new kind of operation.'
    run.turn.refuse(new RondoError('REPLAY_KIND_CHANGED', detail))
    return false
  }
  return true
}

/** Appends to the journal within its bound (R9), durably where there is a place for it, and hands over the index. */
export function append(run: RunState, entry: Entry, then: (index: number) => void): void {
  if (run.record.size() >= run.limits.maxEntries) {
    const detail = `The journal holds ${run.limits.maxEntries} entries; "${entry.key}" would be one more (limits.maxEntries).`
    return run.turn.refuse(new RondoError('LIMIT_ENTRIES', detail))
  }
  const index = run.record.append(entry)
  if (!run.persist) return then(index)
  const settled = run.turn.busy()
  const release = run.turn.hold(index)
  const failed = (error: unknown): void =>
    run.turn.refuse(
      error instanceof RondoError ? error : new RondoError('SERVER_INTERNAL', undefined, { cause: error }),
    )
  run
    .persist(entry)
    .then(() => {
      if (!run.turn.ended()) then(index)
    }, failed)
    .finally(() => {
      release()
      settled()
    })
    .catch(failed)
}

/** Something recorded was handed over. */
export function noteReplayed({ tally }: RunState): void {
  if (tally.past > 0) tally.past -= 1
}

/** From here on everything happens for the first time. */
export function noteNews({ tally }: RunState): void {
  tally.past = 0
}

/*
 * How one run of a handler ends. Waiting for input is an outcome, not an error (R8).
 */

export interface OpenQuestion {
  readonly kind: AskEntryKind
  /** What goes out; after a misfit its message says what was wrong. */
  readonly request: InputRequest
  /** Digest of the question as the author wrote it. */
  readonly digest: string
}

/** Why a call goes on elsewhere: before an effect (R6), or because this instance wants to let go of it. */
export type MoveReason = 'effect' | 'drain' | 'shed' | 'time'

export type Ending =
  | { readonly kind: 'returned'; readonly value: unknown }
  | { readonly kind: 'threw'; readonly error: unknown }
  | { readonly kind: 'asking'; readonly questions: ReadonlyMap<string, OpenQuestion> }
  | { readonly kind: 'moved'; readonly reason: MoveReason }
  /** The handler wants to go on as a task, and can. */
  | { readonly kind: 'background' }
  /** The call cannot go on. The handler's `catch` never sees this. */
  | { readonly kind: 'refused'; readonly error: RondoError }

/** One thing the handler did, in the order it did them; what development mode compares. */
export interface Operation {
  readonly kind: string
  readonly key: string
  readonly question?: string
}

export interface RunReport {
  readonly ending: Ending
  readonly journal: Journal
  readonly operations: readonly Operation[]
  readonly replayed: number
  readonly executed: number
}
