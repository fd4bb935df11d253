/** A task on the wire of 2025-11-25 and of the draft: `ttl` and `pollInterval`, no content inline. */

import type { TaskState } from '../task.ts'

/** Says to which task a result belongs. */
export const RELATED_TASK = 'io.modelcontextprotocol/related-task'

export function toOlderTask(task: TaskState): Readonly<Record<string, unknown>> {
  const { taskId, status, statusMessage, createdAt, lastUpdatedAt, ttlMs, pollIntervalMs } = task
  return {
    taskId,
    status,
    statusMessage,
    createdAt: new Date(createdAt).toISOString(),
    lastUpdatedAt: new Date(lastUpdatedAt).toISOString(),
    ttl: ttlMs,
    pollInterval: pollIntervalMs,
  }
}
