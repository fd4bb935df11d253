/**
 * A task as clients see it, whatever the dialect.
 */

import type { ClientCapabilities, InputRequests } from './wire.ts'

/** The published extension that carries tasks at 2026-07-28. */
export const TASKS_EXTENSION = 'io.modelcontextprotocol/tasks'

export interface TaskState {
  readonly taskId: string
  readonly status: 'working' | 'input_required' | 'completed' | 'failed' | 'cancelled'
  readonly statusMessage?: string
  /** ms since the epoch. */
  readonly createdAt: number
  readonly lastUpdatedAt: number
  /** From creation on; null where it is kept without limit. */
  readonly ttlMs: number | null
  readonly pollIntervalMs?: number
  readonly inputRequests?: InputRequests
  /** In the draft, where the server gave one with the questions: goes back with the answers. */
  readonly requestState?: string
  /** Of a completed task: what the call would have answered. */
  readonly result?: Readonly<Record<string, unknown>>
  /** Of a failed task. */
  readonly error?: { readonly code: number; readonly message: string; readonly data?: unknown }
}

/** True if the client said, with this request, that it can follow a task. */
export function followsTasks({ extensions }: ClientCapabilities): boolean {
  return (
    typeof extensions === 'object' &&
    extensions !== null &&
    Object.hasOwn(extensions, TASKS_EXTENSION) &&
    typeof extensions[TASKS_EXTENSION] === 'object'
  )
}
