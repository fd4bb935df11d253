/** The options of a call, and the results of `start` and `resume`. */

import type { Notice, TaskState } from '../protocol/reply.ts'
import type { LogLevel } from '../protocol/wire.ts'
import type { CallLimits } from './limits.ts'
import type { FlowRequest, FlowResult, PendingCall } from './pending.ts'
import type { RoundPolicy } from './policy.ts'

/** The outcome of `start` and `resume`: the result, a call that waits for answers, or one that continues as a task. */
export type DriveResult<R extends FlowRequest = FlowRequest> =
  | { readonly status: 'complete'; readonly result: FlowResult<R>; readonly rounds: number }
  | { readonly status: 'input_required'; readonly pending: PendingCall<R> }
  | { readonly status: 'task'; readonly pending: PendingCall<R> }

export type ProgressNotice = Extract<Notice, { kind: 'progress' }>
export type LogNotice = Extract<Notice, { kind: 'log' }>

export interface FlowOptions extends Partial<CallLimits> {
  /** Cancels the call, and its task unless `resume` only waits for it. Default: none. */
  readonly signal?: AbortSignal
  /** Receives the server's progress notifications. Default: none. */
  readonly onProgress?: (progress: ProgressNotice) => void
  /** Receives the server's log messages. Default: none. */
  readonly onLog?: (log: LogNotice) => void
  /** The least severe log messages that the server should send. Default: none. */
  readonly logLevel?: LogLevel
  /** Sees every round before it is answered, after the client's own policies. Default: none. */
  readonly onRound?: RoundPolicy | readonly RoundPolicy[]
  /** Called with the call after each change and awaited: store it here to survive a crash. Default: none. */
  readonly onPending?: (pending: PendingCall) => void | Promise<void>
  /** Called when the state of the task changed. Default: none. */
  readonly onTask?: (task: TaskState) => void
  /**
   * Asks for a task that the server keeps this long. Applies to 2025-11-25, if the tool supports tasks, and to
   * `DRAFT-2026-v1`; elsewhere the server decides. Default: none.
   */
  readonly taskTtlMs?: number
  /** `traceparent`, `tracestate` and `baggage`, sent with every request. Default: those of `telemetry`. */
  readonly trace?: Readonly<Record<string, string>>
  /** Sent in `_meta` of every request; keys of the protocol win. Default: none. */
  readonly meta?: Readonly<Record<string, unknown>>
}

/** How tasks are followed: by subscription where the server offers it, by polling alone, or not at all. */
export type TaskMode = 'listen' | 'poll' | 'off'
