/**
 * Tasks as the protocol layer sees them. `createLeaseEngine` implements this over any store.
 *
 * Everything an author or a user wrote (`Sealed`) is opaque here: the caller seals it, and nothing below reads it.
 * The unit of work is the turn, from waking up to parking or ending. At most one worker runs a turn of a task at a time.
 *
 * engine 1: `create` resolves when the task is durable and every process can `get` it.
 * engine 2: unknown, foreign and expired tasks are indistinguishable.
 * engine 3: the first answer to an open key wins; answers to unknown or answered keys have no effect; a key is used once.
 * engine 4: `record` resolves when the entry is durable, and never after another worker took over the task.
 * engine 5: a task that ended does not change any more, unless an operator retries a failed one.
 * engine 6: a task created with `known: false` becomes known when its owner names its id with `get`, `deliver` or `watch`
 *           (not `list`). Until then a turn may end with `hold`, after which no turn of it runs.
 */

import { drawId } from '../lib/random.ts'
import type { AnsweredSlot, InputSlot, SlotChange, SlotName } from './input-slots.ts'
import type { HookOutcome } from './task-store.ts'

/** Text that only the caller can read: well-formed, without NUL. */
export type Sealed = string

/** The owner of a task. Both parts must match. */
export interface TaskOwner {
  /** The audience or tenant that the server acts for. */
  readonly tenant: string
  /** A tag derived from the principal, not its name. */
  readonly principal: string
}

export type TaskStatus = 'working' | 'input_required' | 'completed' | 'failed' | 'cancelled'

/** True for the status of a task that has not ended. */
export function isOpen(status: unknown): boolean {
  return status === 'working' || status === 'input_required'
}

export interface NewTask {
  /** At least 128 random bits in base64url, from `createTaskId`. Creating the same id again returns the same task. */
  readonly id: string
  readonly owner: TaskOwner
  /** The data that a worker needs to start: the call and the capabilities of its client. */
  readonly head: Sealed
  readonly ttlMs: number
  readonly pollMs: number
  readonly message?: Sealed
  /** The journal of the flow before it became a task. */
  readonly journal?: readonly Sealed[]
  /** False if the response that carries the id can get lost, so that the owner may never learn it. Default: true. */
  readonly known?: boolean
  /** By which an operator finds and pauses the tasks of a tool: a keyed tag, or its name where the server says so. */
  readonly tool?: string
}

/** A task as its owner may see it. Times are in ms since the Unix epoch. */
export interface TaskView {
  readonly id: string
  readonly status: TaskStatus
  readonly message?: Sealed
  readonly createdAt: number
  readonly updatedAt: number
  readonly expiresAt: number
  readonly pollMs: number
  /** The owner has shown that it knows the id. */
  readonly known: boolean
  /** Increases with every change of this view. */
  readonly revision: number
  /** The open input requests by key; empty unless `input_required`. */
  readonly inputs: ReadonlyMap<string, Sealed>
  /** Of a completed task. */
  readonly result?: Sealed
  /** Of a failed task; absent if it failed because its workers died too often. */
  readonly error?: Sealed
}

/** The task after a delivery: `idle` was not waiting for answers, `partial` still waits for some. */
export type Delivery = 'unknown' | 'idle' | 'partial' | 'resumed'

/** `ended`: there was nothing left to cancel. */
export type Cancellation = 'unknown' | 'cancelled' | 'ended'

export interface TaskHead {
  readonly id: string
  readonly owner: TaskOwner
  readonly head: Sealed
  readonly createdAt: number
  readonly expiresAt: number
  readonly pollMs: number
  /** How many workers died or threw since the last entry was recorded. */
  readonly failures: number
  /** The owner had shown that it knows the id when the turn began. */
  readonly known: boolean
  /** The labels of the task when the turn began. */
  readonly labels?: Sealed
}

export interface TaskTurn {
  readonly task: TaskHead
  /** Grows with every turn of the task, not always by one. */
  readonly number: number
  readonly journal: readonly Sealed[]
  /** The store's time when the task was claimed: all processes go by this clock. */
  readonly claimedAt: number
  /** Every answer this task ever got from its client, by key, when the turn began. */
  readonly answers: ReadonlyMap<string, Sealed>
  /** The slots of the task as far as this turn has seen them. Their keys may not be used again. */
  slots(): readonly InputSlot[]
  /** Opens and closes slots while the turn goes on. Resolves when that is durable and the owner can see it. */
  publish(change: SlotChange): Promise<void>
  /**
   * Calls `listener` with each slot that is answered while the turn runs. It returns false if the turn takes no more answers:
   * then the task is due again as soon as it parks.
   */
  onAnswers(listener: (answered: AnsweredSlot) => boolean): void
  /** Appends to the journal. Rejects with `STORE_LEASE_LOST` once the lease is lost, or with `LIMIT_STATE_BYTES`. */
  record(entry: Sealed): Promise<void>
  /** Sets the message that the owner sees. */
  status(message: Sealed): Promise<void>
  /** Sets the labels of the task, and the tags by which an operator finds it. Absent if the store has no part for operators. */
  label?(labels: Sealed, tags: readonly string[]): Promise<void>
  /** Fires when the task was cancelled, expired or was taken over: nothing this turn does has an effect any more. */
  readonly signal: AbortSignal
  /** Fires when this process is about to stop: end the turn soon, with `release` if it is not finished. */
  readonly draining: AbortSignal
}

/** The end of a turn. A turn that throws is retried later, a limited number of times. */
export type TaskTurnOutcome =
  /** Waits for the answers to `inputs` and to whatever is open already, but not beyond `wakeAt` (ms since the Unix epoch). */
  | {
      readonly kind: 'park'
      readonly inputs: ReadonlyMap<string, Sealed>
      readonly close?: readonly SlotName[]
      readonly wakeAt?: number
      /** The task expires no earlier than this. */
      readonly liveUntil?: number
      /** When inputs stop taking answers, by key. */
      readonly until?: ReadonlyMap<string, number>
    }
  | { readonly kind: 'complete'; readonly result: Sealed }
  | { readonly kind: 'fail'; readonly error: Sealed }
  /** Releases the task, which is due again at once or after `delayMs`. */
  | { readonly kind: 'release'; readonly delayMs?: number }
  /** Releases the task, which is due again as soon as the owner has shown that it knows the id. */
  | { readonly kind: 'hold' }

export type RunTurn = (turn: TaskTurn) => Promise<TaskTurnOutcome>

export interface ServeOptions {
  /** The number of turns that run concurrently in this process. */
  concurrency?: number
  /** Time that `stop` waits for running turns before it releases their tasks, in ms. */
  drainMs?: number
}

export interface Serving {
  /** Claims no more tasks, drains the running turns, and resolves when none is left. */
  stop(): Promise<void>
}

/** Called with the current view first, then with each change; with `undefined` once the task is gone. */
export type WatchTask = (id: string, view: TaskView | undefined) => void

/** The part of a list to return. */
export interface TaskPage {
  /** Continue after this task. */
  readonly after?: Pick<TaskView, 'id' | 'createdAt'>
  readonly limit: number
}

export interface TaskEngine {
  /**
   * Rejects with `LIMIT_TASKS` if the owner has too many unfinished tasks, and with `PEER_TASK` if the id belongs to a task that has
   * expired or has another owner.
   */
  create(task: NewTask): Promise<TaskView>
  get(id: string, owner: TaskOwner): Promise<TaskView | undefined>
  deliver(id: string, owner: TaskOwner, answers: ReadonlyMap<string, Sealed>): Promise<Delivery>
  /** Gives a hook its event. Called for the server itself, never for a client. */
  deliverHook(id: string, owner: TaskOwner, key: string, event: Sealed): Promise<HookOutcome>
  /** The slots of an unfinished task. Does not show that the owner knows the id. */
  slots(id: string, owner: TaskOwner): Promise<readonly InputSlot[] | undefined>
  cancel(id: string, owner: TaskOwner): Promise<Cancellation>
  /** The owner's tasks that have not expired, newest first. */
  list(owner: TaskOwner, page: TaskPage): Promise<readonly TaskView[]>
  watch(ids: readonly string[], owner: TaskOwner, listener: WatchTask): Promise<() => void>
  /** Watches for the server itself: the owner does not thereby show that it knows the ids. */
  observe(ids: readonly string[], owner: TaskOwner, listener: WatchTask): Promise<() => void>
  serve(run: RunTurn, options?: ServeOptions): Promise<Serving>
}

export type LossReason = 'cancelled or taken over' | 'lease ran out' | 'draining' | 'store failed'

/** An event that an operator can observe of an engine. No event holds content. */
export type EngineEvent =
  | { readonly kind: 'claimed'; readonly count: number }
  /** A turn begins. `takenOver`: the worker that had the task died or hangs. */
  | {
      readonly kind: 'began'
      readonly id: string
      readonly turn: number
      readonly takenOver: boolean
      readonly failures: number
    }
  | {
      readonly kind: 'turn'
      readonly id: string
      readonly turn: number
      readonly outcome: string
      readonly ms: number
    }
  /** The turn lost its lease: whatever it does from now on has no effect. */
  | { readonly kind: 'lost'; readonly id: string; readonly turn: number; readonly reason: LossReason }
  | {
      readonly kind: 'retry'
      readonly id: string
      readonly turn: number
      readonly failures: number
      readonly error: unknown
    }
  /** The task failed because too many of its turns died or threw. */
  | {
      readonly kind: 'gave-up'
      readonly id: string
      readonly turn: number
      readonly failures: number
      readonly error?: unknown
    }
  | {
      readonly kind: 'queue'
      readonly due: number
      readonly oldestDueMs: number
      readonly running: number
      readonly parked: number
    }
  | { readonly kind: 'swept'; readonly count: number }
  | { readonly kind: 'store-error'; readonly during: string; readonly error: unknown }

export type OnEngineEvent = (event: EngineEvent) => void

/** `task`: the task of an event that belongs to one. */
export type EmitEngineEvent = (event: EngineEvent, task?: TaskHead) => void

/** Options of every engine. */
export interface EngineOptions {
  /** How often to poll for changes that no hint announced. Default: the store's own. */
  pollMs?: number
  /** A task fails after this many turns that died or threw with nothing recorded in between. */
  maxFailures?: number
  /** The delay before a turn that threw is retried. */
  backoffMs?: (failures: number) => number
  /** Unfinished tasks that one owner may have. */
  maxOpenTasks?: number
  /** Ended tasks that are kept for one owner. Beyond it, those that ended first are deleted before they expire. */
  maxEndedTasks?: number
  /** Bytes of the ended tasks that are kept for one owner. */
  maxEndedBytes?: number
  /** Characters in the journal of one task. */
  maxJournalBytes?: number
  /** How long a failed task keeps its journal, for an operator. Default: not at all. */
  keepFailedMs?: number
  /** How often the `queue` event is emitted, if `onEvent` is set; 0 for never. */
  statsMs?: number
  onEvent?: EmitEngineEvent
  /** The name of this process in the store. */
  worker?: string
}

/** Characters of 128 random bits, with which every id begins. */
const RANDOM = 22

/**
 * An id that cannot be guessed: 128 random bits, then the note, if there is one, which anybody can read. `secret` has the bits of
 * an id that must be the same each time.
 */
export function createTaskId(note = '', secret?: Uint8Array): string {
  const random = secret ? Buffer.from(secret.subarray(0, 16)).toString('base64url') : drawId()
  return note === '' ? random : `${random}_${Buffer.from(note).toString('base64url')}`
}

/** The note in an id. Of an id that somebody made up it says nothing, and no task has that id. */
export function noteOf(id: string): string {
  return isTaskId(id) && id[RANDOM] === '_'
    ? Buffer.from(id.slice(RANDOM + 1), 'base64url').toString('utf8')
    : ''
}

const MAX_ID = 512

/** True for what could be the id of a task. Other ids are unknown without a query. */
export function isTaskId(id: string): boolean {
  return id.length <= MAX_ID && /^[A-Za-z0-9_-]{22,}$/.test(id)
}
