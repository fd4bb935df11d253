/**
 * What a database must do to keep tasks. `createLeaseEngine` adds the claim loop, the heartbeat and the clock.
 *
 * A task is one row. Each method is one atomic change of it, or none: the database decides, not the caller.
 * Whoever claims a task raises its `epoch`; every write of a worker names the epoch it holds (`Fence`) and does
 * nothing, with `false`, if the task moved on: claimed by another, released, cancelled, ended or expired.
 *
 * TS1 A worker's write lands only on a working, unexpired task at exactly its epoch.
 * TS2 The answer that closes the last open key makes the task due in the same write.
 * TS3 Expired rows are invisible at once, whenever they are deleted.
 * TS4 What a method resolved with survives a crash of this process and, where the database can, of the machine.
 * TS5 Time is the store's: one clock decides leases and expiry for all processes.
 * TS6 A task that is held is due as soon as it is known, whichever of the two comes first.
 */

import type { InputSlot } from './input-slots.ts'
import type {
  Cancellation,
  Delivery,
  NewTask,
  Sealed,
  TaskHead,
  TaskOwner,
  TaskStatus,
  TaskView,
} from './task-engine.ts'

export interface Fence {
  readonly id: string
  readonly epoch: number
}

/** A claimed task, with what its next turn starts from. */
export interface Lease {
  readonly fence: Fence
  readonly task: TaskHead
  readonly journal: readonly Sealed[]
  readonly slots: readonly InputSlot[]
}

export type Ending =
  | { readonly kind: 'complete'; readonly result: Sealed }
  | { readonly kind: 'fail'; readonly error?: Sealed }

/** A worker that takes tasks, and for how long it may keep them without a sign of life. */
export interface Taker {
  readonly worker: string
  readonly leaseMs: number
}

export type Creation =
  /** With a lease if a taker was named and the task is new: it is running already. */
  | { readonly kind: 'created'; readonly view: TaskView; readonly lease?: Lease }
  /** The id is taken by another owner. */
  | { readonly kind: 'conflict' }
  | { readonly kind: 'limit' }

/** What became of answers; with a lease if a taker was named and they were the last: the task is running already. */
export interface Handover {
  readonly kind: Delivery
  readonly lease?: Lease
}

/** Something may have happened, here or in another process: `due` work, or a visible change (of any task if no id). */
export type Hint = { readonly kind: 'due' } | { readonly kind: 'changed'; readonly id?: string }

export interface TaskStats {
  /** Tasks that a worker could take now, and for how long the oldest of them has been due. */
  readonly due: number
  readonly oldestDueMs: number
  readonly running: number
  readonly parked: number
}

/** A task as an operator may see it: without anything that is sealed. */
export interface TaskSummary {
  readonly id: string
  readonly owner: TaskOwner
  readonly status: TaskStatus
  readonly createdAt: number
  readonly updatedAt: number
  readonly expiresAt: number
  readonly failures: number
  /** Who runs it, if anybody does. */
  readonly worker: string | undefined
  readonly dueAt: number | undefined
  readonly openKeys: readonly string[]
  readonly entries: number
}

export interface TaskQuery {
  readonly id?: string
  readonly status?: TaskStatus
  /** Only the tasks of this owner. */
  readonly owner?: TaskOwner
  /** The summary after which to go on; the newest come first. */
  readonly after?: { readonly id: string; readonly createdAt: number }
  readonly limit?: number
}

/** What the owner of a task can do with it. */
export interface OwnerTasks {
  /**
   * `openLimit`: how many unended tasks the owner may have; `Infinity` counts nothing. With a taker the task is claimed in
   * the same write.
   */
  create(task: NewTask, openLimit: number, taker?: Taker): Promise<Creation>
  get(id: string, owner: TaskOwner): Promise<TaskView | undefined>
  /** With a taker, a task that waits for nothing more is claimed in the same write. One that is resumed is known. */
  deliver(
    id: string,
    owner: TaskOwner,
    answers: ReadonlyMap<string, Sealed>,
    taker?: Taker,
  ): Promise<Handover>
  cancel(id: string, owner: TaskOwner): Promise<Cancellation>
  /** Notes that the owner knows the id; makes the task due if it was held. Changes nothing the second time. */
  confirm(id: string, owner: TaskOwner): Promise<void>
  /** The revisions of those tasks that are there. */
  revisions(ids: readonly string[]): Promise<ReadonlyMap<string, number>>
}

/** What a worker can do. */
export interface WorkerTasks {
  /** Takes up to `count` due tasks. One whose former worker never let go counts one failure more. */
  claim(worker: string, leaseMs: number, count: number): Promise<readonly Lease[]>
  /** Extends leases; gives the ids that are still held. */
  renew(fences: readonly Fence[], leaseMs: number): Promise<ReadonlySet<string>>
  /** The ids that are still held, without extending them. */
  held(fences: readonly Fence[]): Promise<ReadonlySet<string>>
  /** Appends entries at position `from`, all or none, and forgets earlier failures. */
  append(fence: Fence, from: number, entries: readonly Sealed[]): Promise<boolean>
  status(fence: Fence, message: Sealed): Promise<boolean>
  /** Lets go of the task until every open slot is answered. */
  park(fence: Fence, slots: readonly InputSlot[]): Promise<boolean>
  /** Ends the task. What only its turns needed is dropped. */
  settle(fence: Fence, ending: Ending): Promise<boolean>
  /** Lets go of the task; it is due after `delayMs`. `failed` counts one failure more. */
  release(fence: Fence, delayMs: number, failed: boolean): Promise<boolean>
  /** Lets go of the task; it is due once its owner knows the id. */
  hold(fence: Fence): Promise<boolean>
  /** Makes tasks due whose worker is known to be dead; gives how many. */
  reclaim?(): Promise<number>
  /**
   * Takes back the failure that was counted when the task was taken from a worker which lives, and had its lease by its own clock.
   * For stores whose processes may disagree about the time.
   */
  absolve?(fence: Fence): Promise<void>
}

/** What an operator can see. */
export interface OperatorTasks {
  stats(): Promise<TaskStats>
  list(query: TaskQuery): Promise<readonly TaskSummary[]>
}

export interface TaskStore extends OwnerTasks, WorkerTasks, OperatorTasks {
  /** How often to look for what no hint told. */
  readonly pollMs: number
  /** Calls `listener` for changes made here, and for those elsewhere as far as the database tells. */
  onHint(listener: (hint: Hint) => void): () => void
}
