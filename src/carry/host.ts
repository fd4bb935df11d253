/**
 * What every carrier needs of the server it runs in: keys, limits, a clock, the log, the store, and when to move a call to
 * another instance. Types only; `serve/host.ts` creates the host.
 */

import type { AskEntryKind } from '../journal/journal.ts'
import type { FlowMethod } from '../protocol/call.ts'
import type { Codecs } from '../protocol/codec.ts'
import type { MoveReason, Platform, ReplayLimits } from '../replay/run-state.ts'
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
}

export interface FlowPlatform extends Platform {
  /** An id that nobody can guess. */
  randomId(): string
}

/** One line for each round. Holds names, counts and times; never content, never a token. */
export interface RoundEvent {
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
  /** The task that the call became. */
  readonly task?: string
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
export interface StateRefusedEvent {
  readonly event: 'state_refused'
  /** Absent if the request is in the state itself. */
  readonly method?: FlowMethod
  readonly target?: string
  readonly reason: string
  readonly keyId?: string
}

/** Something that the author or the operator should see. `error` is what the handler threw. */
export interface FaultEvent {
  readonly event: 'fault'
  readonly flow: string
  readonly round: number
  readonly method: FlowMethod
  readonly target: string
  readonly error: unknown
}

/** A finding of the migration from stored to sealed state. */
export interface ContinuationEvent extends Finding {
  readonly event: 'continuation'
}

export interface WarningEvent {
  readonly event: 'warning'
  readonly message: string
  readonly error?: unknown
}

export type LogEvent = RoundEvent | StateRefusedEvent | FaultEvent | ContinuationEvent | WarningEvent

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
  /** How often a client should poll, unless the tool says otherwise. */
  readonly pollMs: number
  /** Bytes of one sealed piece. */
  readonly maxPieceBytes: number
  /** Set if clients that cannot follow tasks reach them through tools. */
  readonly tools?: { readonly waitMs: number }
}

export interface FlowHost {
  readonly audience: string
  readonly codecs: Codecs
  readonly keys: KeyHolder
  readonly limits: FlowLimits
  readonly platform: FlowPlatform
  readonly dev: boolean
  /** Sleeps end at once, as if the time had passed. */
  readonly skipSleep: boolean
  log(event: LogEvent): void
  /** True once this process was told to stop. */
  readonly draining: boolean
  /** True while this instance should shed load. */
  overloaded(): boolean
  /** How long one round may run before the call moves at its next step. */
  readonly maxRoundMs: number
  /** How states are kept between rounds: sealed, unless the service migrates from a store. */
  readonly states: StateCarrier
  /** For calls that outlive their requests. Absent without a store. */
  readonly tasks?: TaskHost
  /** How long a worker without a heartbeat keeps its leases in the store. */
  readonly leaseMs: number
  /** Keeps single-use records, and journals too large for a token. */
  readonly store?: Pick<Store, 'once' | 'blobs'>
}
