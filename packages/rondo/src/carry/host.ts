/**
 * The server as every carrier needs it: keys, limits, a clock, the log, the store, and when to move a call to
 * another instance. Types only; `serve/host.ts` creates the host.
 */

import type { Journal } from '../journal/journal.ts'
import type { LogFacts, RoundEvent, RoundLine } from '../log/event.ts'
import type { FlowMethod } from '../protocol/call.ts'
import type { Codecs } from '../protocol/codec.ts'
import type { Observer } from '../protocol/observer.ts'
import type { Platform, ReplayLimits, RunTrace } from '../replay/input.ts'
import type { RunReport } from '../replay/run-state.ts'
import type { KeyHolder, KeyRing } from '../seal/key-ring.ts'
import type {
  Claims,
  Expected,
  ExpectedExtension,
  OpenedState,
  SealedState,
  StateLimits,
} from '../seal/state.ts'
import type { AlarmStore } from '../store/alarms.ts'
import type { PermitStore } from '../store/permits.ts'
import type { BlobStore, OnceStore, RecordStore } from '../store/store.ts'
import type { TaskEngine } from '../store/task-engine.ts'
import type { Approver } from '../tool/approval.ts'
import type { ForwardedTasks, RowsFor } from '../tool/forward.ts'
import type { CallStep } from './around.ts'

export interface StoredLimits extends StateLimits {
  /** Bytes of one sealed journal that `continuation` keeps in the store; then `LIMIT_STATE_BYTES`. Default: 1 MiB. */
  readonly maxStoredBytes: number
}

export interface FlowLimits extends ReplayLimits, StoredLimits {
  /** Rounds of one flow; then `LIMIT_ROUNDS`. Default: 32. */
  readonly maxRounds: number
  /** Rounds after which a call continues as a task, if its client can follow one. Default: 8. */
  readonly promoteRounds: number
  /** Rounds of one flow that may be spent on moving it to another instance; then the call stays where it is. Default: 4. */
  readonly maxMoves: number
  /** The time that a client has to return the answers of one round; then `STATE_INVALID`. Default: 1 hour. */
  readonly roundTtlMs: number
  /** The lifetime of a flow from its first request on; then `STATE_INVALID`. Default: 24 hours. */
  readonly flowTtlMs: number
  /**
   * The time that a request may wait for `ctx.sleep`. A call with a longer sleep continues as a task, or ends with `LIMIT_SLEEP`.
   * Default: 10 s.
   */
  readonly maxInlineSleepMs: number
  /** A handler that has run this long without waiting for an answer is logged once per round, and continues; 0 for never. Default: 60 s. */
  readonly slowHandlerMs: number
  /** Bytes of states that one instance remembers for clients that do not echo them; then `STATE_INVALID`. Default: 16 MiB. */
  readonly maxRememberedBytes: number
}

export interface FlowPlatform extends Platform {
  /** An id that nobody can guess. */
  randomId(): string
}

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

/** The part of a store that calls in rounds use. */
export interface FlowStore {
  readonly once: OnceStore
  readonly blobs: BlobStore
  readonly permits?: PermitStore
  readonly alarms?: AlarmStore
  readonly records?: RecordStore
}

/** The part of the host that opens and keeps states. */
export interface StateHost {
  readonly audience: string
  readonly keys: { readonly ring: KeyRing }
  readonly limits: StoredLimits
}

export type OpenedStored = OpenedState | { readonly kind: 'refused'; readonly reason: 'missing' }

export interface TaskHost {
  readonly engine: TaskEngine
  /** The lifetime of a task from its creation on, unless its tool has its own. */
  readonly ttlMs: number
  /** The longest lifetime of a task that waits: for a time, or for something with a time limit. */
  readonly maxTtlMs: number
  /** The interval at which a client should poll, unless the tool has its own. */
  readonly pollMs: number
  /** Bytes of one sealed piece. */
  readonly maxPieceBytes: number
  /** Set if clients that cannot follow tasks reach them through tools. */
  readonly tools?: { readonly waitMs: number }
  /** Handlers learn which tasks of the caller a request names as related. */
  readonly related?: boolean
  /** The way in which the store names the tool of a task to operators; absent if the store has no part for them. */
  readonly toolAs?: 'tag' | 'name'
}

/** A call and its target, as far as the log names them. */
export interface NamedCall {
  readonly call: { readonly method: FlowMethod; readonly target: string }
  readonly target: { readonly label?: string }
}

/** The place of a round in its flow and its task. */
export interface Placed {
  readonly beginning: { readonly flow: string; readonly round: number }
  readonly task?: TaskPlace
}

/** A round whose handler is running, as far as the watch for slow ones needs it. */
export interface RunningRound extends NamedCall, Placed {
  readonly began: number
}

/** The turn of a task. */
export interface TaskPlace {
  readonly task: string
  readonly turn: number
}

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
  /** The steps of extensions around calls, the outermost first. */
  readonly steps: readonly CallStep[]
  readonly audience: string
  readonly codecs: Codecs
  readonly keys: KeyHolder
  readonly limits: FlowLimits
  readonly platform: FlowPlatform
  readonly dev: boolean
  readonly tracer?: Tracer
  /** Sleeps end at once, as if the time had passed. */
  readonly skipSleep: boolean
  log(event: LogFacts): void
  /** Nobody listens to events. */
  readonly silent?: boolean
  /** Telemetry. It never throws. */
  readonly observer?: Observer
  /** Names this process in the log and in the store. */
  readonly instance: string
  /** Rounds whose handlers are running. */
  readonly running: Set<RunningRound>
  /** True once this process was told to stop. */
  readonly draining: boolean
  /** Calls `listener` when this process is told to stop; returns a function that undoes this. */
  onDrain(listener: () => void): () => void
  /** True while this instance should shed load. */
  overloaded(): boolean
  /** A round that has run this long moves its call at the next step. */
  readonly maxRoundMs: number
  /** Keeps states between rounds: sealed, unless the service migrates from a store. */
  readonly states: StateCarrier
  /** For calls that outlive their requests. Absent without a store. */
  readonly tasks?: TaskHost
  /** The lists of each caller. Set by a gateway whose callers do not all get the same. */
  readonly rowsFor?: RowsFor
  /** The tasks of other servers. Set by a gateway. */
  readonly forwarded?: ForwardedTasks
  /** The health of the store, as requests experience it. */
  readonly storeWatch?: {
    /** An operation has been waiting for longer than a healthy store takes. */
    isStuck(): boolean
    /** Counts a request that failed because of the store, and returns what `isSaid` does. */
    requestFailed(): boolean
    /** Whether the log has already said that the store fails. If not, the caller says so, in its own line. */
    isSaid(): boolean
  }
  /** Asks people for decisions. Set by the extension that does. */
  readonly approver?: Approver
  /** The time for which a worker without a heartbeat keeps its leases in the store. */
  readonly leaseMs: number
  /** Keeps single-use records, and journals too large for a token. */
  readonly store?: FlowStore
  /** Returns the store's epoch, undefined if the store has never been reached (`recallEpoch`). Never rejects. */
  epoch(): Promise<string | undefined>
}
