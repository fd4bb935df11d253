/**
 * What a server replies, in whatever dialect, and what a client receives: `Reply` and `Received` are counterparts. A
 * revision's `encode.ts` turns a `Reply` into text and adds what that revision requires on every result (`resultType`,
 * `serverInfo`).
 */

import type { RondoError } from '../errors.ts'
import type { ListenFilter } from './call.ts'
import type { TaskState } from './task.ts'
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
