/**
 * What the server answers, whatever dialect it goes out in. A revision's `encode.ts` turns a `Reply` into bytes and
 * adds what that revision wants on every result (`resultType`, `serverInfo`).
 */

import type { RondoError } from '../errors.ts'
import type { ListenFilter } from './call.ts'
import type { TaskState } from './task.ts'
import type { InputRequests, LogLevel } from './wire.ts'

export type Reply =
  | { readonly kind: 'complete'; readonly result: Readonly<Record<string, unknown>> }
  /** A complete result that many calls share, so that it is serialized once; clients may keep it as `cache` says. */
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
  /** The call goes on as a task. */
  | { readonly kind: 'task_created'; readonly task: TaskState }
  /** How a task stands. */
  | { readonly kind: 'task'; readonly task: TaskState }
  | { readonly kind: 'error'; readonly error: RondoError }

/* What is answered to clients that open a session: what all are answered, and what only these revisions have. */

export type OlderReply =
  | Reply
  /** A page of the caller's own tasks. */
  | { readonly kind: 'tasks'; readonly tasks: readonly TaskState[]; readonly nextCursor?: string }
  /** The error a task ended with, as the call itself would have answered. */
  | { readonly kind: 'task_failed'; readonly error: WireError }

/*
 * What a client received for a `Call`, whatever dialect it came in. The counterpart of `Reply`.
 */

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
      /** Empty where the server only wants to be called again. */
      readonly questions: InputRequests
      readonly state?: string
    }
  /** The call goes on as a task, or this is how the task stands. */
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
