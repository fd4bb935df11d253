/**
 * What every carrier needs of the server it runs in: keys, limits, a clock, the log, the store, and when to move a call to
 * another instance. Types only; `serve/host.ts` creates the host.
 */

import type { AskEntryKind, Journal } from '../journal/journal.ts'
import type { Listed, Roster } from '../lib/collection.ts'
import type { FlowMethod } from '../protocol/call.ts'
import type { Codecs } from '../protocol/codec.ts'
import type { Observer } from '../protocol/observer.ts'
import type { MoveReason, Platform, ReplayLimits, RunReport, RunTrace } from '../replay/run-state.ts'
import type { KeyHolder, KeyRing } from '../seal/key-ring.ts'
import type { Claims, Expected, ExpectedExtension, OpenedState, SealedState } from '../seal/state.ts'
import type { Store } from '../store/store.ts'
import type { TaskEngine } from '../store/task-engine.ts'
import type { Finding, StoredLimits } from './migration.ts'

export interface FlowLimits extends ReplayLimits, StoredLimits {
  /** Rounds one flow may take. */
  readonly maxRounds: number
  /** Rounds after which a call continues as a task, if its client can follow one. */
  readonly promoteRounds: number
  /** Rounds of one flow that may be spent on moving it to another instance. */
  readonly maxMoves: number
  /** How long a client may take to return the answers of one round. */
  readonly roundTtlMs: number
  /** How long a request may wait for `ctx.sleep`. A call with a longer sleep continues as a task. */
  readonly maxInlineSleepMs: number
  /** How long a flow may live from its first request on. */
  readonly flowTtlMs: number
  /** Bytes of states that one instance remembers for clients that do not echo them. */
  readonly maxRememberedBytes: number
  /** A handler that has run this long without waiting for an answer is logged once per round; 0 for never. */
  readonly slowHandlerMs: number
}

export interface FlowPlatform extends Platform {
  /** An id that nobody can guess. */
  randomId(): string
}

/** What every line has. */
export interface LogOrigin {
  readonly level: 'info' | 'warn' | 'error'
  /** The process that wrote it. */
  readonly instance: string
}

/** Where a line of the log belongs: its flow, and its task if the flow became one. */
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
  /** How long it took. */
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
  /** How many turns threw or died since the task last made progress. */
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
  /** Why, and which option would allow it. */
  readonly message: string
  /** How many requests were refused for this reason since the last such line. */
  readonly count: number
}

/** An event as a log function receives it. */
export type LogEvent =
  | RoundEvent
  | StateRefusedEvent
  | CallerRefusedEvent
  | FaultEvent
  | SlowEvent
  | ContinuationEvent
  | WarningEvent
  | StartEvent
  | ReadyEvent
  | DrainEvent
  | TaskEvent
  | SessionEvent
  | RefusedEvent

/** An event before the log adds level and instance. */
export type LogFacts = FactsOf<LogEvent>
type FactsOf<E> = E extends LogOrigin ? Omit<E, keyof LogOrigin> : never

/** Keeps the claims of a flow between two rounds: sealed, or in a store while a service migrates. */
export interface StateCarrier {
  /** True if states are kept in a store, so that a flow survives this process even if its client returns no state. */
  readonly stores: boolean
  /** `names`: the names under which a store may have the claims, instead of the state itself. */
  open(
    host: StateHost,
    state: unknown,
    expected: Expected | ExpectedExtension,
    names?: readonly string[],
  ): OpenedStored | Promise<OpenedStored>
  /** `name`: the name under which a store keeps the claims. Default: the state itself. */
  keep(host: StateHost, claims: Claims, name?: string): SealedState | Promise<SealedState>
}

/** What opening and keeping a state needs of the host. */
export interface StateHost {
  readonly audience: string
  readonly keys: { readonly ring: KeyRing }
  readonly limits: StoredLimits
}

export type OpenedStored = OpenedState | { readonly kind: 'refused'; readonly reason: 'missing' }

export interface TaskHost {
  readonly engine: TaskEngine
  /** How long a task lives from its creation on, unless its tool says otherwise. */
  readonly ttlMs: number
  /** How long a task may live because it waits: for a time, or for something with a time limit. */
  readonly maxTtlMs: number
  /** How often a client should poll, unless the tool says otherwise. */
  readonly pollMs: number
  /** Bytes of one sealed piece. */
  readonly maxPieceBytes: number
  /** Set if clients that cannot follow tasks reach them through tools. */
  readonly tools?: { readonly waitMs: number }
  /** Handlers learn which tasks of the caller a request names as related. */
  readonly related?: boolean
}

/** A round whose handler is running, as far as the watch for slow ones needs it. */
export interface RunningRound extends Listed {
  readonly call: { readonly method: FlowMethod; readonly target: string }
  readonly target: { readonly label?: string }
  readonly beginning: { readonly flow: string; readonly round: number }
  readonly task?: TaskPlace
  readonly began: number
}

/** The turn of a task. */
export interface TaskPlace {
  readonly task: string
  readonly turn: number
}

/** A `round` event, without where it comes from. */
export type RoundLine = Extract<LogFacts, { event: 'round' }>

/** The round that a tracer sees: which flow and task it belongs to. */
export type TracedRound = Pick<RoundEvent, 'flow' | 'round' | 'method' | 'target' | 'task' | 'turn'>

/** In development: sees what every operation of a round did. */
export interface Tracer {
  /** `journal` is what the round begins with. */
  begin(place: TracedRound, journal: Journal): RunTrace
  /** `before` is the journal with which the round began. */
  end(event: RoundLine, trace: RunTrace | undefined, before: Journal, report: RunReport | undefined): void
}

export interface FlowHost {
  readonly audience: string
  readonly codecs: Codecs
  readonly keys: KeyHolder
  readonly limits: FlowLimits
  readonly platform: FlowPlatform
  readonly dev: boolean
  readonly tracer?: Tracer
  /** Sleeps end at once, as if the time had passed. */
  readonly skipSleep: boolean
  /** `at` is the time of the event, if the caller knows it. */
  log(event: LogFacts, at?: number): void
  /** Nobody listens to events. */
  readonly silent?: boolean
  /** Telemetry. It never throws. */
  readonly observer?: Observer
  /** Names this process in the log and in the store. */
  readonly instance: string
  /** Rounds whose handlers are running. */
  readonly running: Roster<RunningRound>
  /** True once this process was told to stop. */
  readonly draining: boolean
  /** Calls `listener` when this process is told to stop; returns a function that undoes this. */
  onDrain(listener: () => void): () => void
  /** True while this instance should shed load. */
  overloaded(): boolean
  /** How long one round may run before the call moves at its next step. */
  readonly maxRoundMs: number
  /** How states are kept between rounds: sealed, unless the service migrates from a store. */
  readonly states: StateCarrier
  /** For calls that outlive their requests. Absent without a store. */
  readonly tasks?: TaskHost
  /** How the store does, seen from outside. */
  readonly storeWatch?: {
    /** An operation has been waiting for longer than a healthy store takes. */
    isStuck(): boolean
    /** Counts a request that failed because of the store, and returns what `isSaid` does. */
    requestFailed(): boolean
    /** Whether the log has already said that the store fails. If not, the caller says so, in its own line. */
    isSaid(): boolean
  }
  /** How long a worker without a heartbeat keeps its leases in the store. */
  readonly leaseMs: number
  /** Keeps single-use records, and journals too large for a token. */
  readonly store?: Pick<Store, 'once' | 'blobs'>
}
