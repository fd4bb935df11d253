/**
 * A task as clients see it, and as it is written. At 2026-07-28 a task is flat with times as text: one just created is a
 * head without content, one polled later has its input requests, result or error inline. Up to 2025-11-25 messages name
 * their task in `_meta`.
 */

import { isRecord } from '../lib/json.ts'
import type { InputRequests } from './wire.ts'

/** The published extension that carries tasks at 2026-07-28. */
export const TASKS_EXTENSION = 'io.modelcontextprotocol/tasks'

export interface TaskState {
  readonly taskId: string
  readonly status: 'working' | 'input_required' | 'completed' | 'failed' | 'cancelled'
  readonly statusMessage?: string
  /** ms since the epoch. */
  readonly createdAt: number
  readonly lastUpdatedAt: number
  /** Counted from its creation; null if the task does not expire. */
  readonly ttlMs: number | null
  readonly pollIntervalMs?: number
  readonly inputRequests?: InputRequests
  /** The result of the call, if the task is completed. */
  readonly result?: Readonly<Record<string, unknown>>
  /** The error of the call, if the task failed. */
  readonly error?: { readonly code: number; readonly message: string; readonly data?: unknown }
}

export function toTaskHead(task: TaskState): Readonly<Record<string, unknown>> {
  const { taskId, status, statusMessage, createdAt, lastUpdatedAt, ttlMs, pollIntervalMs } = task
  return {
    taskId,
    status,
    statusMessage,
    createdAt: new Date(createdAt).toISOString(),
    lastUpdatedAt: new Date(lastUpdatedAt).toISOString(),
    ttlMs,
    pollIntervalMs,
  }
}

export function toTaskResult(task: TaskState): Readonly<Record<string, unknown>> {
  const { inputRequests, result, error } = task
  // Existing clients parse the inner result like any other, so it has a resultType.
  const inner = result === undefined ? undefined : { resultType: 'complete', ...result }
  return { ...toTaskHead(task), inputRequests, result: inner, error }
}

export const RELATED_TASK = 'io.modelcontextprotocol/related-task'

export function relatedTask(taskId: string): Readonly<Record<string, unknown>> {
  return { [RELATED_TASK]: { taskId } }
}

/** The task that a message belongs to, according to its `_meta`. */
export function relatedTaskOf(fields: unknown): string | undefined {
  const meta = isRecord(fields) ? fields._meta : undefined
  const related = isRecord(meta) ? meta[RELATED_TASK] : undefined
  return isRecord(related) && typeof related.taskId === 'string' ? related.taskId : undefined
}
