/**
 * The port for operators who act: read what is stored of a task, end it, retry it, delete it, pause a tool. Nothing here opens
 * a seal: the caller has the keys, or does without.
 *
 * operator 1: a change and its line in the record of actions are written together or not at all.
 * operator 2: a change that was made already is `unchanged` and leaves no second line: a lost reply may be followed by the same
 *             request again.
 * operator 3: a worker that had the task is fenced off, as by a cancellation: its next write has no effect.
 * operator 4: no worker claims a task of a paused tool, neither later nor in the write that creates or resumes the task. Turns
 *             that run already continue.
 * operator 5: a failed task can be retried while its journal is kept, and a retry that names a branch replaces head and journal
 *             together, on exactly the row that was read.
 * operator 6: labels belong to the task: they stay when it ends, and are deleted with it. A worker writes them under its fence, with
 *             the tags by which they are found, together or not at all.
 */

import type { InputSlot } from './input-slots.ts'
import type { Sealed } from './task-engine.ts'
import type { Fence, TaskSummary } from './task-store.ts'

/** Everything that is stored of a task, as sealed as it is. */
export interface StoredTask extends TaskSummary {
  /** Empty once the task has ended, unless its journal is kept. */
  readonly head: Sealed
  readonly journal: readonly Sealed[]
  readonly slots: readonly InputSlot[]
  readonly message?: Sealed
  /** The result or the error. */
  readonly outcome?: Sealed
  /** Its labels. */
  readonly labels?: Sealed
  /** Changes with every claim and every retry. */
  readonly epoch: number
}

/** The head and the journal from which a task continues, instead of those that it has. */
export interface TaskBranch {
  /** The epoch that was read with the task. */
  readonly epoch: number
  readonly head: Sealed
  readonly journal: readonly Sealed[]
}

export type OperatorChange =
  | { readonly kind: 'cancel' | 'purge'; readonly id: string }
  /** `keepMs`: how long the journal is kept. */
  | { readonly kind: 'fail'; readonly id: string; readonly error?: Sealed; readonly keepMs: number }
  /** The task lives for at least `liveMs` from now on. */
  | { readonly kind: 'retry'; readonly id: string; readonly liveMs: number; readonly branch?: TaskBranch }
  /** `tools`: all values of `NewTask.tool` by which tasks may name the tool. `name` is for the record of actions. */
  | { readonly kind: 'pause' | 'continue'; readonly name: string; readonly tools: readonly string[] }

/**
 * `unchanged`: it was so already. `refused`: the task is in no state for it: it has ended in another way, it has not ended, or its
 * journal is gone.
 */
export type OperatorOutcome = 'done' | 'unchanged' | 'refused' | 'unknown'

/** One line of the record of actions. */
export interface OperatorAction {
  readonly at: number
  readonly who: string
  readonly action: OperatorChange['kind']
  /** The id of the task, or the name of the tool. */
  readonly subject: string
}

export interface OperatorStore {
  read(id: string): Promise<StoredTask | undefined>
  /** `who` is written into the record of actions. */
  act(change: OperatorChange, who: string): Promise<OperatorOutcome>
  /** For a worker: replaces the labels of a task, and the tags by which `list` finds it. False if the task is no longer held. */
  label(fence: Fence, labels: Sealed, tags: readonly string[]): Promise<boolean>
  /** The latest actions, the newest first. They are kept for `ACTION_MS`. */
  actions(limit: number): Promise<readonly OperatorAction[]>
  /** The values of `NewTask.tool` that are paused. */
  paused(): Promise<readonly string[]>
}

export const ACTION_MS: number = 90 * 86_400_000

/** The subject of a change, as the record of actions names it. */
export function subjectOf(change: OperatorChange): string {
  return 'id' in change ? change.id : change.name
}

/** The status of a task, as far as a change depends on it. */
export interface Standing {
  readonly status: string
  readonly epoch: number
  /** Its head and journal are still there. */
  readonly kept: boolean
}

/** Decides whether a change of a task is made. */
export function judgeChange(
  change: Exclude<OperatorChange, { readonly tools: unknown }>,
  { status, epoch, kept }: Standing,
): OperatorOutcome {
  const open = status === 'working' || status === 'input_required'
  switch (change.kind) {
    case 'cancel':
      return open ? 'done' : status === 'cancelled' ? 'unchanged' : 'refused'
    case 'fail':
      return open ? 'done' : status === 'failed' ? 'unchanged' : 'refused'
    case 'purge':
      return open ? 'refused' : 'done'
    case 'retry': {
      const { branch } = change
      if (open) return branch === undefined ? 'unchanged' : 'refused'
      if (status !== 'failed' || !kept) return 'refused'
      return branch === undefined || branch.epoch === epoch ? 'done' : 'refused'
    }
  }
}
