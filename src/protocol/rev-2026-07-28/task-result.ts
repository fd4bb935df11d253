/**
 * A task on the wire: flat, times as text. What was just created has no content yet; what is looked at later has the open
 * questions, the result or the error inline.
 */

import type { TaskState } from '../task.ts'

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
  // Requesters in the field parse the inner result like any other, so it says of itself what it is.
  const inner = result === undefined ? undefined : { resultType: 'complete', ...result }
  return { ...toTaskHead(task), inputRequests, result: inner, error }
}
