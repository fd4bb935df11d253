/**
 * A task on the wire of 2025-11-25 and of the draft: `ttl` and `pollInterval`, no content inline. Here a tool's own failure
 * is a task that failed, and a task that failed says why; what came later tells the two apart.
 */

import { isRecord } from '../../lib/is-record.ts'
import type { TaskState } from '../task.ts'

/** Says to which task a result belongs. */
export const RELATED_TASK = 'io.modelcontextprotocol/related-task'

export function relatedTask(taskId: string): Readonly<Record<string, unknown>> {
  return { [RELATED_TASK]: { taskId } }
}

/** The task that a message says it belongs to. */
export function relatedTaskOf(fields: unknown): string | undefined {
  const meta = isRecord(fields) ? fields._meta : undefined
  const related = isRecord(meta) ? meta[RELATED_TASK] : undefined
  return isRecord(related) && typeof related.taskId === 'string' ? related.taskId : undefined
}

export function toOlderTask(task: TaskState): Readonly<Record<string, unknown>> {
  const { taskId, createdAt, lastUpdatedAt, ttlMs, pollIntervalMs } = task
  const failed = task.status === 'failed' || task.result?.isError === true
  return {
    taskId,
    status: failed ? 'failed' : task.status,
    statusMessage: failed ? (reasonOf(task) ?? task.statusMessage) : task.statusMessage,
    createdAt: new Date(createdAt).toISOString(),
    lastUpdatedAt: new Date(lastUpdatedAt).toISOString(),
    ttl: ttlMs,
    pollInterval: pollIntervalMs,
  }
}

/** Status messages are one line for people. */
const MAX_REASON = 500

function reasonOf({ error, result }: TaskState): string | undefined {
  if (error) return error.message
  const [first] = Array.isArray(result?.content) ? result.content : []
  return isRecord(first) && typeof first.text === 'string' ? first.text.slice(0, MAX_REASON) : undefined
}
