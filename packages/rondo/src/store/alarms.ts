/**
 * The port for alarms: tasks of the server that are due when another task ends. Undo depends on it: whoever ends a task, the write
 * that ends it also wakes the worker that undoes its effects.
 *
 * alarm 1: the write that ends a task, by its worker, its owner or an operator, makes the task's alarms due if no worker has them.
 * alarm 2: that write also records how the task ended, for as long as the alarm is kept, even if the task expires or is deleted before.
 *          Only an operator who retries the task takes the record back.
 * alarm 3: of setting an alarm and ending the task, one comes first: an alarm is refused once the task has ended.
 */

import type { TaskStatus } from './task-engine.ts'

export type EndedStatus = Extract<TaskStatus, 'completed' | 'failed' | 'cancelled'>

export interface AlarmStore {
  /**
   * Has the task `alarm` follow `task`, for `ttlMs`. False, without effect, if `task` has ended; one that is not created yet can be
   * followed. The same call again has no effect.
   */
  set(task: string, alarm: string, ttlMs: number): Promise<boolean>
  /** How a task that is followed ended; undefined if it is open, or expired while it was open. */
  ended(task: string): Promise<EndedStatus | undefined>
}
