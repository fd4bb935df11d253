/**
 * The port for telemetry: what a server or a client does, as it happens. Types only. The log is an observer of events
 * (`serve/log.ts`); `rondo/otel` observes operations too. Without such an observer nothing of this runs.
 *
 * Nothing here contains content: no argument, no answer, no result, no token, no header.
 */

import type { RequestId } from './call.ts'

export interface Observer {
  /** Something happened that is worth a line in the log. Its other members depend on `event`: see `LogEvent`. */
  event?(event: ObservedEvent): void
  /** An operation begins. Returns what observes it, or nothing. */
  begin?(operation: ObservedOperation): Observed | undefined
  /** The queue of tasks, from time to time, in processes that run tasks. */
  queue?(queue: ObservedQueue): void
}

export interface ObservedEvent {
  readonly event: string
  readonly level: 'info' | 'warn' | 'error'
  /** The process in which it happened. */
  readonly instance: string
}

export interface ObservedQueue {
  /** Tasks that wait for a worker. */
  readonly due: number
  readonly oldestDueMs: number
  readonly running: number
  /** Tasks that wait for an answer. */
  readonly parked: number
}

export interface ObservedOperation {
  /** `client`: a request that is sent. `request`: one that runs no handler. `round`, `turn`: a run of a handler. */
  readonly kind: 'client' | 'request' | 'round' | 'turn'
  readonly method: string
  /** The name of a tool or prompt that exists; absent for resources, whose URIs contain arguments. */
  readonly target?: string
  readonly requestId?: RequestId
  readonly protocolVersion: string
  /** `traceparent`, `tracestate` and `baggage` as the client sent them: claims, not checked. */
  readonly trace?: Readonly<Record<string, string>>
  /** When it began, ms since the epoch. */
  readonly began: number
  readonly flow?: string
  readonly round?: number
  readonly task?: string
  readonly turn?: number
  /** The first and the last round of the flow before this one, as `Observed.span` named them. */
  readonly spans?: readonly [first: string, last: string]
  /** The request whose answers woke this turn. */
  readonly wokenBy?: string
  /** How long the flow waited for its answers. */
  readonly waitedMs?: number
}

export interface Observed {
  /** Names this operation for those that follow, on other instances too. */
  readonly span?: string
  /** Trace context to send with a client's request. */
  readonly trace?: Readonly<Record<string, string>>
  /** Runs the operation inside its context. */
  run<T>(fn: () => T): T
  /** Runs a step or an effect. Must call `fn` once and return what it returns. */
  work(kind: string, key: string, fn: () => unknown): unknown
  /** A step or an effect had its result in the journal. */
  replayed(kind: string, key: string): void
  end(end: OperationEnd): void
}

export interface OperationEnd {
  /** As in the `round` event of the log. */
  readonly outcome?: string
  /** Code of the error, if it failed. */
  readonly code?: string
  /** JSON-RPC code of the error. */
  readonly rpc?: number
  readonly asks?: number
  readonly moved?: string
  /** The task that the call became. */
  readonly task?: string
  readonly replayed?: number
  readonly executed?: number
  readonly stateBytes?: number
}
