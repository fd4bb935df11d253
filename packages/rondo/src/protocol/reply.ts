/**
 * The replies of a server, in whatever dialect, and their counterparts in a client: `Reply` and `Received`. A
 * revision's `encode.ts` turns a `Reply` into text and adds what that revision requires on every result (`resultType`,
 * `serverInfo`).
 */

import type { RondoError } from '../errors.ts'
import { isRecord } from '../lib/json.ts'
import type { ListenFilter } from './call.ts'
import type { InputRequests, LogLevel } from './wire.ts'

export type Reply =
  | { readonly kind: 'complete'; readonly result: Readonly<Record<string, unknown>> }
  /** A complete result that many calls share, serialized once; clients may cache it as `cache` says. */
  | {
      readonly kind: 'cacheable'
      readonly result: Readonly<Record<string, unknown>>
      readonly cache?: { readonly ttlMs: number; readonly scope: 'public' | 'private' }
    }
  | {
      readonly kind: 'input_required'
      readonly inputRequests?: InputRequests
      readonly requestState?: string
      readonly _meta?: Readonly<Record<string, unknown>>
    }
  /** The call continues as a task. */
  | { readonly kind: 'task_created'; readonly task: TaskState }
  /** The current state of a task. */
  | { readonly kind: 'task'; readonly task: TaskState }
  | { readonly kind: 'error'; readonly error: RondoError }

/** The replies to clients that open a session. */
export type OlderReply =
  | Reply
  /** A page of the caller's own tasks. */
  | { readonly kind: 'tasks'; readonly tasks: readonly TaskState[]; readonly nextCursor?: string }
  /** The error that a task ended with. */
  | { readonly kind: 'task_failed'; readonly error: WireError }

/** A JSON-RPC error as the server sent it. */
export interface WireError {
  readonly code: number
  readonly message: string
  readonly data?: unknown
}

export type Received =
  | { readonly kind: 'complete'; readonly result: Readonly<Record<string, unknown>> }
  | {
      readonly kind: 'input_required'
      /** Empty if the server only wants a retry. */
      readonly questions: InputRequests
      readonly state?: string
      /** Names the request to which it was received, for telemetry. */
      readonly span?: string
    }
  /** The call continues as a task, or this is the current state of the task. */
  | { readonly kind: 'task'; readonly task: TaskState }
  | { readonly kind: 'error'; readonly error: WireError }

export type Notice =
  | {
      readonly kind: 'progress'
      readonly token: string | number
      readonly progress: number
      readonly total?: number
      readonly message?: string
    }
  | { readonly kind: 'log'; readonly level: LogLevel; readonly data: unknown; readonly logger?: string }
  | { readonly kind: 'subscribed'; readonly filter: ListenFilter }
  | { readonly kind: 'tools' }
  | { readonly kind: 'prompts' }
  | { readonly kind: 'resources' }
  | { readonly kind: 'resource'; readonly uri: string }
  | { readonly kind: 'task'; readonly task: TaskState }

// A task as clients see it, and as it is written. At 2026-07-28 a task is flat with times as text: one just created is a
// head without content, one polled later has its input requests, result or error inline. Up to 2025-11-25 messages name
// their task in `_meta`.

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
