/** The events of the log. They hold names, counts and times; never content, never a token. */

import type { AskEntryKind } from '../journal/journal.ts'
import type { FlowMethod } from '../protocol/call.ts'
import type { MoveReason } from '../replay/run-state.ts'

/** The members of every line. */
export interface LogOrigin {
  readonly level: 'info' | 'warn' | 'error'
  /** The process that wrote it. */
  readonly instance: string
}

/** The place of a log line: its flow, and its task if the flow became one. */
export interface LogPlace {
  /** Id of the call, the same in all its rounds. */
  readonly flow?: string
  readonly round?: number
  /** The task that the call became or belongs to. */
  readonly task?: string
  /** The turn of the task: a number that grows with every turn. */
  readonly turn?: number
}

/** One line for each round. Holds names, counts and times; never content, never a token. */
export interface RoundEvent extends LogOrigin {
  readonly event: 'round'
  readonly flow: string
  readonly round: number
  readonly method: FlowMethod
  readonly target: string
  readonly outcome:
    | 'complete'
    | 'tool_error'
    | 'input_required'
    | 'sleeping'
    | 'waiting'
    | 'moved'
    | 'task'
    | 'refused'
  readonly asks?: readonly { readonly key: string; readonly kind: AskEntryKind | 'manual' }[]
  /** The names of events from outside that it waits for. */
  readonly events?: readonly string[]
  readonly moved?: MoveReason
  /** The task that the call became, or whose turn this was. */
  readonly task?: string
  readonly turn?: number
  /** Code of a refusal. */
  readonly code?: string
  readonly replayed: number
  readonly executed: number
  readonly stateBytes?: number
  readonly keyId?: string
  /** The version of the tool under which the flow's state was sealed, if it is not the running one. */
  readonly sealedVersion?: string
  /** Of a gateway: the revision of the client, the server behind, and the revision of that server. */
  readonly protocolVersion?: string
  readonly upstream?: string
  readonly upstreamVersion?: string
  readonly ms: number
}

/** A state that did not open. The reason is for the operator; the client gets the same sentence for all of them. */
export interface StateRefusedEvent extends LogOrigin {
  readonly event: 'state_refused'
  /** The call, if the state is one of this service. */
  readonly flow?: string
  /** The round that was refused. */
  readonly round?: number
  /** Absent if the request is in the state itself. */
  readonly method?: FlowMethod
  readonly target?: string
  readonly reason: string
  readonly keyId?: string
}

/** A caller that `authenticate` refused with a reason. The client does not learn it. */
export interface CallerRefusedEvent extends LogOrigin {
  readonly event: 'caller_refused'
  readonly status: number
  readonly reason: string
}

/** Something that the author or the operator should see. `error` is what the handler threw. */
export interface FaultEvent extends LogOrigin {
  readonly event: 'fault'
  readonly flow: string
  readonly round: number
  readonly task?: string
  readonly turn?: number
  readonly method: FlowMethod
  readonly target: string
  readonly error: unknown
}

/** An attempt of a step or an effect that failed and will be retried. `error` is what it threw. */
export interface RetryEvent extends LogOrigin {
  readonly event: 'retry'
  readonly flow: string
  readonly round: number
  readonly task?: string
  readonly turn?: number
  readonly method: FlowMethod
  readonly target: string
  /** `step` or `effect`. */
  readonly work: string
  /** Its name in the handler. */
  readonly key: string
  /** The attempt that failed, from 1. */
  readonly attempt: number
  /** The time until the next attempt. */
  readonly delayMs: number
  readonly error: unknown
}

/** A handler that has run for `limits.slowHandlerMs`. It continues. */
export interface SlowEvent extends LogOrigin {
  readonly event: 'slow'
  readonly flow: string
  readonly round: number
  readonly task?: string
  readonly turn?: number
  readonly method: FlowMethod
  readonly target: string
  readonly ms: number
}

export interface Finding {
  readonly finding:
    | 'differs'
    /** The store had the state; the seal did not open. */
    | 'not_sealed'
    /** The seal opened; the store did not have the state. */
    | 'not_stored'
    /** The store was read because the seal did not open. */
    | 'fell_back'
    /** The journal was too large for a seal: the client got a handle instead. */
    | 'spilled'
    | 'store_failed'
  readonly reason?: string
  readonly flow?: string
  /** The number of times that this process has found this, and the number of states that it kept or opened. */
  readonly count: number
  readonly of: number
}

/** A finding of the migration from stored to sealed state. */
export interface ContinuationEvent extends LogOrigin, Finding {
  readonly event: 'continuation'
}

export interface WarningEvent extends LogOrigin, LogPlace {
  readonly event: 'warning'
  readonly message: string
  readonly error?: unknown
}

/** A server begins to open its store. It has no address yet: see `ready`. */
export interface StartEvent extends LogOrigin {
  readonly event: 'start'
  readonly name: string
  readonly version: string
  readonly revisions: readonly string[]
  /** Names of the keys, the one that seals first. */
  readonly keys: readonly string[]
  readonly store: string
}

/** A server serves: its store is open and its port is bound. */
export interface ReadyEvent extends LogOrigin {
  readonly event: 'ready'
  /** The URL at which it is bound; `stdio` over standard input. */
  readonly address: string
  readonly ms: number
}

/** A server stops: `begun` when it is no longer ready for new calls, `finished` when everything is closed. */
export interface DrainEvent extends LogOrigin {
  readonly event: 'drain'
  readonly phase: 'begun' | 'finished'
  /** The duration. */
  readonly ms?: number
}

/** A worker of this process and a task. */
export interface TaskEvent extends LogOrigin {
  readonly event: 'task'
  /** `lost`: another worker has the task, or it was cancelled. `failed`: the turn threw and will be retried. */
  readonly phase: 'claimed' | 'taken_over' | 'lost' | 'failed' | 'given_up'
  /** The call, unless the task is sealed with a key that this instance does not have. */
  readonly flow?: string
  /** The round in which the call became a task. */
  readonly round?: number
  readonly task: string
  readonly turn: number
  /** The number of turns that threw or died since the task last made progress. */
  readonly failures?: number
  readonly reason?: string
  readonly error?: unknown
}

/** A client of an earlier era connects or leaves. */
export interface SessionEvent extends LogOrigin {
  readonly event: 'session'
  readonly phase: 'opened' | 'closed'
  /** A digest of the session's id; whoever knows the id itself can use the session. */
  readonly session: string
  readonly protocolVersion: string
}

/** Requests that were refused before anything ran. */
export interface RefusedEvent extends LogOrigin {
  readonly event: 'refused'
  readonly status: number
  readonly code: string
  /** The reason, and the option that would allow it. */
  readonly message: string
  /** The number of requests that were refused for this reason since the last such line. */
  readonly count: number
}

/** A line of an extension (`server.use`). */
export interface ExtensionEvent extends LogOrigin {
  readonly event: 'extension'
  /** The name of the extension. */
  readonly extension: string
  readonly message: string
  readonly error?: unknown
}

/** An event as a log function receives it. */
export type LogEvent =
  | RoundEvent
  | StateRefusedEvent
  | CallerRefusedEvent
  | FaultEvent
  | RetryEvent
  | SlowEvent
  | ContinuationEvent
  | WarningEvent
  | StartEvent
  | ReadyEvent
  | DrainEvent
  | TaskEvent
  | SessionEvent
  | RefusedEvent
  | ExtensionEvent

/** An event before the log adds level and instance. */
export type LogFacts = FactsOf<LogEvent>
type FactsOf<E> = E extends LogOrigin ? Omit<E, keyof LogOrigin> : never

/** A `round` event, without where it comes from. */
export type RoundLine = Extract<LogFacts, { event: 'round' }>

export function toEvent(facts: LogFacts, instance: string): LogEvent {
  return { level: levelOf(facts), instance, ...facts } as LogEvent
}

const LEVELS: Readonly<Record<LogFacts['event'], LogOrigin['level']>> = {
  round: 'info',
  state_refused: 'warn',
  caller_refused: 'warn',
  fault: 'error',
  retry: 'warn',
  slow: 'warn',
  continuation: 'warn',
  warning: 'warn',
  start: 'info',
  ready: 'info',
  drain: 'info',
  task: 'warn',
  session: 'info',
  refused: 'warn',
  extension: 'warn',
}

function levelOf(facts: LogFacts): LogOrigin['level'] {
  if (facts.event === 'extension' && facts.error === undefined) return 'info'
  if (facts.event !== 'task') return LEVELS[facts.event]
  if (facts.phase === 'given_up') return 'error'
  return facts.phase === 'claimed' ? 'info' : 'warn'
}
