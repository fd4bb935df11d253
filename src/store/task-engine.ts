/**
 * What the protocol layer knows of tasks. `createLeaseEngine` implements it over any store; an engine outside may too.
 *
 * Everything an author or a user wrote (`Sealed`) is opaque here: the caller seals it, and nothing below reads it.
 * The unit of work is the turn: from waking up to parking or ending. One worker at a time runs a turn of a task.
 *
 * TE1 `create` resolves when the task is durable and `get` finds it anywhere.
 * TE2 Unknown, foreign and expired tasks look the same.
 * TE3 The first answer to an open key wins; keys that are unknown or answered have no effect; a key is used once.
 * TE4 `record` resolves when the entry is durable, and never after the task went to somebody else.
 * TE5 An ended task stays as it ended.
 * TE6 A task that was created with `known: false` becomes known when its owner names its id: with `get`, `deliver` or
 *     `watch`, not with `list`. Until then a turn may end with `hold`, and no turn of it runs again.
 */

import { randomBytes } from 'node:crypto'

/** Text that only the caller can read: well-formed, without NUL. */
export type Sealed = string

/** Whose task it is. Both parts have to match. */
export interface TaskOwner {
  /** The audience or tenant in whose name the server acts. */
  readonly tenant: string
  /** A tag that stands for the principal, not its name. */
  readonly principal: string
}

export type TaskStatus = 'working' | 'input_required' | 'completed' | 'failed' | 'cancelled'

export interface NewTask {
  /** At least 128 random bits, base64url: `createTaskId` makes one. The same id again gives the same task. */
  readonly id: string
  readonly owner: TaskOwner
  /** What a worker needs to begin: the call, the capabilities of its client. */
  readonly head: Sealed
  readonly ttlMs: number
  readonly pollMs: number
  readonly message?: Sealed
  /** What the flow did before it became a task. */
  readonly journal?: readonly Sealed[]
  /** False if its owner may never hear of it, because the reply that names it can get lost. Default: true. */
  readonly known?: boolean
}

/** What the owner of a task may see. Times are in ms since the epoch. */
export interface TaskView {
  readonly id: string
  readonly status: TaskStatus
  readonly message?: Sealed
  readonly createdAt: number
  readonly updatedAt: number
  readonly expiresAt: number
  readonly pollMs: number
  /** Its owner has shown that it knows the id. */
  readonly known: boolean
  /** Grows with every change that this view can show. */
  readonly revision: number
  /** The open questions by key; empty unless `input_required`. */
  readonly inputs: ReadonlyMap<string, Sealed>
  /** Of a completed task. */
  readonly result?: Sealed
  /** Of a failed task; absent if it failed because its worker died too often. */
  readonly error?: Sealed
}

/** What became of answers: `idle` is a task that waits for none, `partial` one that still waits for some. */
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
  /** How often a worker died or threw since the last entry was recorded. */
  readonly failures: number
  /** Its owner has shown that it knows the id; as it was when the turn began. */
  readonly known: boolean
}

export interface Turn {
  readonly task: TaskHead
  readonly journal: readonly Sealed[]
  /** Every answer this task ever got, by key: all the keys that may not be asked again. */
  readonly answers: ReadonlyMap<string, Sealed>
  /** Appends to the journal. Rejects with `STORE_LEASE_LOST` once the task is no longer ours, and with `LIMIT_STATE_BYTES`. */
  record(entry: Sealed): Promise<void>
  /** Tells the owner how it goes. */
  status(message: Sealed): Promise<void>
  /** Fires when the task was cancelled, expired, or went to another worker: nothing this turn does counts any more. */
  readonly signal: AbortSignal
  /** Fires when this process wants to stop: end the turn soon, with `release` if it is not finished. */
  readonly draining: AbortSignal
}

/** How a turn ends. A turn that throws is run again, later, a limited number of times. */
export type Outcome =
  | { readonly kind: 'park'; readonly inputs: ReadonlyMap<string, Sealed> }
  | { readonly kind: 'complete'; readonly result: Sealed }
  | { readonly kind: 'fail'; readonly error: Sealed }
  /** Hands the task back; it is due again at once, or after `delayMs`. */
  | { readonly kind: 'release'; readonly delayMs?: number }
  /** Hands the task back until its owner has shown that it knows the id; it is due at once if that has happened. */
  | { readonly kind: 'hold' }

export type RunTurn = (turn: Turn) => Promise<Outcome>

export interface ServeOptions {
  /** Turns that run at the same time in this process. */
  concurrency?: number
  /** How long `stop` waits for turns to hand back before it takes their tasks away. */
  drainMs?: number
}

export interface Serving {
  /** Takes no more turns, lets those that run hand back, and resolves when none is left. */
  stop(): Promise<void>
}

/** Gets the current view first, then each change; `undefined` once the task is gone. */
export type WatchTask = (id: string, view: TaskView | undefined) => void

/** A part of a list. */
export interface TaskPage {
  /** The task after which to go on. */
  readonly after?: Pick<TaskView, 'id' | 'createdAt'>
  readonly limit: number
}

export interface TaskEngine {
  /** Rejects with `LIMIT_TASKS` if the owner has too many open tasks. */
  create(task: NewTask): Promise<TaskView>
  get(id: string, owner: TaskOwner): Promise<TaskView | undefined>
  deliver(id: string, owner: TaskOwner, answers: ReadonlyMap<string, Sealed>): Promise<Delivery>
  cancel(id: string, owner: TaskOwner): Promise<Cancellation>
  /** The owner's tasks, the newest first: ended ones too, expired ones not. */
  list(owner: TaskOwner, page: TaskPage): Promise<readonly TaskView[]>
  watch(ids: readonly string[], owner: TaskOwner, listener: WatchTask): Promise<() => void>
  serve(run: RunTurn, options?: ServeOptions): Promise<Serving>
}

/* What an engine tells its operator: counters and gauges are made from these, content is in none of them. */

export type LossReason = 'cancelled or taken over' | 'lease ran out' | 'draining' | 'store failed'

export type EngineEvent =
  | { readonly kind: 'claimed'; readonly count: number }
  | { readonly kind: 'turn'; readonly id: string; readonly outcome: string; readonly ms: number }
  /** The turn was stopped from outside: what it does from now on has no effect. */
  | { readonly kind: 'lost'; readonly id: string; readonly reason: LossReason }
  | { readonly kind: 'retry'; readonly id: string; readonly failures: number; readonly error: unknown }
  /** The task failed because its turns died or threw too often. */
  | { readonly kind: 'gave-up'; readonly id: string; readonly failures: number }
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

/** An id that nobody can guess: 128 random bits. */
export function createTaskId(): string {
  return randomBytes(16).toString('base64url')
}

/** True for what could be the id of a task. Anything else is unknown without asking the database. */
export function isTaskId(id: string): boolean {
  return /^[A-Za-z0-9_-]{22,64}$/.test(id)
}
