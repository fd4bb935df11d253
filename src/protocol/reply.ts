/**
 * What the server answers, whatever dialect it goes out in. A revision's `encode.ts` turns a `Reply` into bytes and
 * adds what that revision wants on every result (`resultType`, `serverInfo`).
 */

import type { RondoError } from '../errors.ts'
import type { Turn } from './draft-turns/turn.ts'
import type { TaskState } from './task.ts'
import type { InputRequests } from './wire.ts'

export type Reply =
  | { readonly kind: 'complete'; readonly result: Readonly<Record<string, unknown>> }
  /** A result that was serialised once and is sent as it is: lists, discovery. Holds every field of the result. */
  | { readonly kind: 'serialized'; readonly json: string }
  | {
      readonly kind: 'input_required'
      readonly inputRequests?: InputRequests
      readonly requestState?: string
      readonly _meta?: Readonly<Record<string, unknown>>
      /** The questions as a turn, for a client that takes them so. */
      readonly turn?: Turn
    }
  /** The call goes on as a task. */
  | { readonly kind: 'task_created'; readonly task: TaskState }
  /** How a task stands. */
  | { readonly kind: 'task'; readonly task: TaskState }
  | { readonly kind: 'error'; readonly error: RondoError }
