/**
 * What a client received for a `Call`, whatever dialect it came in. The counterpart of `Reply`.
 */

import type { ListenFilter } from './call.ts'
import type { TaskState } from './task.ts'
import type { InputRequests, LogLevel } from './wire.ts'

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
