/** The events of the log. They hold names, counts and times; never content, never a token. */

import type { AskEntryKind } from '../journal/journal.ts'
import type { FlowMethod } from '../protocol/call.ts'
import type { MoveReason } from '../replay/run-state.ts'

/** The members of every line. */
export interface LogOrigin {
  /** `info`, `warn` or `error`. */
  readonly level: 'info' | 'warn' | 'error'
  /**
   * The process: the option `instance`, by default host name, process id and a random part. The store names the
   * worker of a task the same way.
   */
  readonly instance: string
}

/** The place of a log line: its flow, and its task if the flow became one. */
export interface LogPlace {
  /** Id of the call, if it belongs to one. */
  readonly flow?: string
  /** Number of the round. */
  readonly round?: number
  /** Id of the task, if it belongs to one. */
  readonly task?: string
  /** The turn of the task. */
  readonly turn?: number
}

/** A request, or a turn of a task, ran a handler (info). */
export interface RoundEvent extends LogOrigin {
  readonly event: 'round'
  /** Id of the call, the same in all its rounds. */
  readonly flow: string
  /** Number of the round, from 1. */
  readonly round: number
  /** `tools/call`, `prompts/get` or `resources/read`. */
  readonly method: FlowMethod
  /**
   * The name of the tool or prompt; the URI of a resource, or the template that it matched, because a URI can
   * contain arguments.
   */
  readonly target: string
  /**
   * `complete`; `tool_error`: a result with `isError`; `input_required`; `sleeping`: a task that is parked until a
   * time; `waiting`: a task that is parked until an [event](docs/guide/time-and-events.md) arrives; `moved`: handed
   * back with a state alone; `task`; `refused`.
   */
  readonly outcome:
    | 'complete'
    | 'tool_error'
    | 'input_required'
    | 'sleeping'
    | 'waiting'
    | 'moved'
    | 'task'
    | 'refused'
  /** Key and kind of each question that was sent. */
  readonly asks?: readonly { readonly key: string; readonly kind: AskEntryKind | 'manual' }[]
  /** Names of the [events from outside](docs/guide/time-and-events.md) that a task waits for. */
  readonly events?: readonly string[]
  /** The reason why the call was handed back: `effect`, `drain`, `shed`, `time`. */
  readonly moved?: MoveReason
  /** Id of the task that the call became, or whose turn this was. */
  readonly task?: string
  /** The turn of the task. */
  readonly turn?: number
  /** The [error code](docs/reference/errors.md) of a refusal. */
  readonly code?: string
  /** Number of operations whose results came from the journal. */
  readonly replayed: number
  /** Number of operations that ran. */
  readonly executed: number
  /** Length of the state that was sent. */
  readonly stateBytes?: number
  /** Id of the key that sealed it. */
  readonly keyId?: string
  /** The version of the tool that sealed the incoming state, if it differs from the running one. */
  readonly sealedVersion?: string
  /** The revision of the client, in a [gateway](docs/guide/gateway.md). */
  readonly protocolVersion?: string
  /** The server to which a gateway sent the call. */
  readonly upstream?: string
  /** The revision of that server. */
  readonly upstreamVersion?: string
  /** Duration of the round. */
  readonly ms: number
}

/**
 * A state that did not open (warn).
 *
 * The client gets the same sentence for every reason; only the log tells them apart. A few `expired` are normal: people came
 * back late. Many `commitment`, `tag` or `principal` suggest an attack. `key` after a rotation means that a key was removed
 * before the longest flow had ended.
 */
export interface StateRefusedEvent extends LogOrigin {
  readonly event: 'state_refused'
  /** Id of the call, if the state is one of this service. */
  readonly flow?: string
  /** The round that was refused. */
  readonly round?: number
  /** Method of the request; absent where the state itself contains the request. */
  readonly method?: FlowMethod
  /** Target of the request; absent in the same case. */
  readonly target?: string
  /**
   * `size`, `encoding`, `key`, `commitment`, `tag`, `shape`: not a state of this service, or damaged; `early`,
   * `expired`, `flow-expired`: outside its time; `principal`, `method`, `request`, `turn`, `protocol`: issued for
   * something else; `missing`: a handle that the store does not know, or a turn that no instance remembers;
   * `question`: in turns, a state for another question; `used`, `epoch`: a single-use state that was used already,
   * or that the store has forgotten.
   */
  readonly reason: string
  /** Id of the key that sealed it, if it could be read. */
  readonly keyId?: string
}

/**
 * A caller that `authenticate` refused (warn).
 *
 * Only if the refusal has a `reason`, as every refusal of a token by [`oauthResource`](docs/reference/options.md#oauthresource)
 * has. The client gets the same response for all of them. The sentence names the setting to change; of the token it quotes at
 * most what is public: issuer, audience, type, algorithm and key id.
 *
 * Anybody can cause such lines, so each kind of reason has at most 5 lines a minute, and one caller causes at most 3 of them;
 * 40 kinds are told apart. The rest are counted in a `warning`. A caller is an address (behind a proxy, see
 * [`addressHeader`](docs/reference/options.md)).
 *
 * An `authenticate` that throws, does not settle or returns something invalid refuses the caller too. That is a `warning` with
 * the error, bounded in the same way; each line of your code that throws is a kind.
 */
export interface CallerRefusedEvent extends LogOrigin {
  readonly event: 'caller_refused'
  /** 401, 403 or 503. */
  readonly status: number
  /** The mistake, and the remedy for an operator. */
  readonly reason: string
}

/**
 * A handler threw (error).
 *
 * The client gets a result that says that the tool failed. It sees the error itself only if `dev` is on.
 */
export interface FaultEvent extends LogOrigin {
  readonly event: 'fault'
  /** Id of the call. */
  readonly flow: string
  /** Number of the round. */
  readonly round: number
  /** Id of the task, if the call is one. */
  readonly task?: string
  /** The turn of the task. */
  readonly turn?: number
  /** The method, as in `RoundEvent`. */
  readonly method: FlowMethod
  /** The tool, prompt or resource, as in `RoundEvent`. */
  readonly target: string
  /** The thrown value; the original error, with its stack, if a step or an effect threw it in this round. */
  readonly error: unknown
}

/**
 * An attempt failed and is retried (warn).
 *
 * A step or an effect with the option [`retry`](docs/guide/retries.md) threw, and will run again. The last attempt, if it
 * fails too, leaves no such line: its error goes to the handler.
 */
export interface RetryEvent extends LogOrigin {
  readonly event: 'retry'
  /** Id of the call. */
  readonly flow: string
  /** Number of the round. */
  readonly round: number
  /** Id of the task, if the call is one. */
  readonly task?: string
  /** The turn of the task. */
  readonly turn?: number
  /** The method, as in `RoundEvent`. */
  readonly method: FlowMethod
  /** The tool, prompt or resource, as in `RoundEvent`. */
  readonly target: string
  /** `step` or `effect`. */
  readonly work: string
  /** Its name in the handler. */
  readonly key: string
  /** The attempt that failed, from 1. */
  readonly attempt: number
  /** The time until the next attempt. */
  readonly delayMs: number
  /** The thrown value. */
  readonly error: unknown
}

/**
 * Effects were undone (warn, error if some could not be).
 *
 * A call ended without success, and the effects that have an [undo function](docs/guide/undo.md) were undone, by the call
 * itself or by a worker.
 */
export interface UndoEvent extends LogOrigin {
  readonly event: 'undo'
  /** Id of the call. */
  readonly flow: string
  /** Number of the round. */
  readonly round: number
  /** Id of the task, if the call is one. */
  readonly task?: string
  /** The turn of the task. */
  readonly turn?: number
  /** The method, as in `RoundEvent`. */
  readonly method: FlowMethod
  /** The tool, prompt or resource, as in `RoundEvent`. */
  readonly target: string
  /** Effects that were undone, the last that began first. */
  readonly undone: readonly string[]
  /** Effects that could not be undone. A worker tries them again; in a line of the worker, its task has failed. */
  readonly failed: readonly string[]
}

/**
 * A handler takes long (warn).
 *
 * It has run for `limits.slowHandlerMs` without waiting for an answer, and continues. A handler that never ends leaves this
 * line and no other.
 */
export interface SlowEvent extends LogOrigin {
  readonly event: 'slow'
  /** Id of the call. */
  readonly flow: string
  /** Number of the round. */
  readonly round: number
  /** Id of the task, if the call is one. */
  readonly task?: string
  /** The turn of the task. */
  readonly turn?: number
  /** The method, as in `RoundEvent`. */
  readonly method: FlowMethod
  /** The tool, prompt or resource, as in `RoundEvent`. */
  readonly target: string
  /** The time that it has run. */
  readonly ms: number
}

export interface Finding {
  /** `differs`, `not_sealed`, `not_stored`, `fell_back`, `spilled`, `store_failed`. */
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
  /** The reason why the seal did not open, or the error of the store. */
  readonly reason?: string
  /** Id of the call, where it is known. */
  readonly flow?: string
  /** The number of times that this process has found this. */
  readonly count: number
  /** The number of states that this process has kept or opened. */
  readonly of: number
}

/**
 * On the way from stored to sealed state (warn).
 *
 * Logged only if the [option](docs/reference/options.md) `continuation` is not `sealed`.
 * [From stored to sealed state](docs/migrate/from-stored-to-sealed.md) explains the findings.
 */
export interface ContinuationEvent extends LogOrigin, Finding {
  readonly event: 'continuation'
}

/** Everything else an operator should see (warn). */
export interface WarningEvent extends LogOrigin, LogPlace {
  readonly event: 'warning'
  /** The event in one sentence. */
  readonly message: string
  /** The error that was caught, if any. */
  readonly error?: unknown
}

/**
 * A server begins to open its store (info).
 *
 * Logged by `listen` and `stdio` when the keys are loaded. The address is not known yet. `fetch` and `nodeHandler` log neither
 * this nor `ready`.
 */
export interface StartEvent extends LogOrigin {
  readonly event: 'start'
  /** Name of the server. */
  readonly name: string
  /** Its version. */
  readonly version: string
  /** The protocol versions it speaks. */
  readonly revisions: readonly string[]
  /** Names of the keys, the one that seals first. */
  readonly keys: readonly string[]
  /** `postgres`, `sqlite`, `restate`, `memory`, `custom` or `none`. */
  readonly store: string
}

/** A server serves: its store is open and its port is bound (info). */
export interface ReadyEvent extends LogOrigin {
  readonly event: 'ready'
  /** The URL that is served, with the port that was bound, or `stdio`. */
  readonly address: string
  /** Time since `start` was called for. */
  readonly ms: number
}

/**
 * A server stops (info).
 *
 * On a signal, on `close`, and over stdio at the end of the input.
 */
export interface DrainEvent extends LogOrigin {
  readonly event: 'drain'
  /** `begun`: the instance is no longer ready; `finished`: its ports are closed and its tasks are handed back. */
  readonly phase: 'begun' | 'finished'
  /** The duration. */
  readonly ms?: number
}

/** A worker and a task (info, warn or error). */
export interface TaskEvent extends LogOrigin {
  readonly event: 'task'
  /**
   * `claimed` (info); `taken_over`: the worker that had the task died or hangs; `lost`: this turn no longer counts;
   * `failed`: the turn threw and will be retried; `given_up` (error): it threw or died too often.
   */
  readonly phase: 'claimed' | 'taken_over' | 'lost' | 'failed' | 'given_up'
  /** Id of the call, unless the task is sealed with a key that this instance does not have. */
  readonly flow?: string
  /** The round in which the call became a task. */
  readonly round?: number
  /** Id of the task. */
  readonly task: string
  /** The turn. */
  readonly turn: number
  /** The number of turns that threw or died since the task last made progress. */
  readonly failures?: number
  /** The reason why it was lost. */
  readonly reason?: string
  /** The error that the turn threw. */
  readonly error?: unknown
}

/** A client of an earlier era connects or leaves (info). */
export interface SessionEvent extends LogOrigin {
  readonly event: 'session'
  /** `opened` or `closed`. */
  readonly phase: 'opened' | 'closed'
  /** A digest of the session's id, because whoever knows the id can use the session. */
  readonly session: string
  /** The version that was agreed on. */
  readonly protocolVersion: string
}

/**
 * A request was refused before anything ran (warn).
 *
 * A caller that is not authenticated or not permitted (401, 403), a `Host` or an `Origin` that is not allowed (403), too many
 * tasks or too much in flight (429), too many sessions (503). A request that is not valid (400) is the client's mistake and has
 * no line. Each reason is logged at most once in ten seconds.
 */
export interface RefusedEvent extends LogOrigin {
  readonly event: 'refused'
  /** The HTTP status. */
  readonly status: number
  /** The [error code](docs/reference/errors.md). */
  readonly code: string
  /** The reason, and the option that would allow it. */
  readonly message: string
  /** Requests refused for this reason since the last such line. */
  readonly count: number
}

/** A line of an [extension](docs/guide/extensions.md) (info; warn if it has an error). */
export interface ExtensionEvent extends LogOrigin {
  readonly event: 'extension'
  /** The name of the extension. */
  readonly extension: string
  /** The event in one sentence. */
  readonly message: string
  /** The error, if there is one. */
  readonly error?: unknown
}

/** An event as a log function receives it. */
export type LogEvent =
  | RoundEvent
  | StateRefusedEvent
  | CallerRefusedEvent
  | FaultEvent
  | RetryEvent
  | UndoEvent
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
  undo: 'warn',
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
  if (facts.event === 'undo' && facts.failed.length > 0) return 'error'
  if (facts.event !== 'task') return LEVELS[facts.event]
  if (facts.phase === 'given_up') return 'error'
  return facts.phase === 'claimed' ? 'info' : 'warn'
}
