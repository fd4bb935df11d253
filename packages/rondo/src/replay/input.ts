/**
 * The input of a run: what a carrier passes to `replay`. Types, and the two plain cases of `Background`.
 */

import { RondoError } from '../errors.ts'
import type { BegunEffect, Entry, EntryKind, Journal, WorkEntryKind } from '../journal/journal.ts'
import type { Idle } from '../lib/clock.ts'
import type { Line, Principal } from '../protocol/call.ts'
import type { Observed } from '../protocol/observer.ts'
import type {
  ClientCapabilities,
  InputRequest,
  InputResponses,
  JsonSchema,
  LogLevel,
} from '../protocol/wire.ts'
import type { ApprovalRequest, ApprovalVerdict } from '../tool/approval.ts'
import type { Context, EffectOptions } from '../tool/context.ts'
import type { TextBounds } from '../tool/schema/judge.ts'
import type { MoveReason, OpenQuestion } from './run-state.ts'

/**
 * Everything that a run is given: the journal, the facts about the request that the handler can read, and the functions of the
 * carrier. `RunState` adds what changes while the handler runs.
 */
export interface ReplayInput {
  readonly handler: (ctx: Context) => unknown
  readonly journal: Journal
  readonly incoming: Incoming
  readonly flow: string
  readonly round: number
  readonly principal: Principal | undefined
  readonly client: Context['client']
  readonly protocolVersion: string
  readonly line: Line
  readonly progressToken?: string | number
  readonly logLevel?: LogLevel
  readonly background: Background
  /** Opens hooks for events from outside. Absent unless the run is a task. */
  readonly hooks?: Hooks
  /** Asks people for decisions. Absent unless the run is a task. */
  readonly approvals?: Approvals
  /** Runs an effect unless the store has its result. `branch` identifies what the client had answered when it was called. */
  once?(key: string, branch: string, act: () => unknown): Promise<unknown>
  /** Called before each attempt of an effect or an undo. Rejects if this run must not change anything any more. */
  admit?(): Promise<void>
  /** Keeps effects that can be undone, or says why it cannot. */
  readonly undoing?: Undoing | { readonly missing: string }
  /** Keeps the labels of a task, or says why this server has none. Absent where nothing is stored. */
  readonly labelling?: Labelling | { readonly missing: string }
  /** This run undoes these effects and does nothing else. */
  readonly undoes?: readonly Undoable[]
  inputResponses(): InputResponses | undefined
  readonly requestState: string | undefined
  readonly relatedTaskIds?: readonly string[]
  readonly meta?: Readonly<Record<string, unknown>>
  readonly platform: Platform
  readonly limits: ReplayLimits
  /** Why this instance wants to release the call now, if it does; `executed` counts the work done in this round. */
  mayMove(executed: number): MoveReason | undefined
  /** The client holds the flow's id (R6). Default: if the request came with a state. */
  readonly anchored?: boolean
  readonly trace?: RunTrace
  /** In development: an effect begins that was called while a confirmation before it had no outcome. Both by their labels. */
  onOutrun?(effect: string, confirmation: string): void
  /** Nobody looks at the operations of this run: they, and the schemas of its questions, are not kept until its end. */
  readonly unwatched?: boolean
  /** Nothing new may run. */
  readonly frozen?: boolean
  /** Telemetry of this run. */
  readonly observed?: Observed
  /** Makes an entry durable before the handler sees its result. */
  persist?(entry: Entry): Promise<void>
  /** Makes the end of an open operation durable: a sleep, a question with a time limit. */
  persistDeadline?(key: string, due: number): Promise<void>
  /** Makes a failed attempt of a step or an effect durable, with the time of the next one. */
  persistAttempt?(key: string, count: number, due: number): Promise<void>
  /** Makes it durable that an effect with an undo function begins. */
  persistBegun?(effect: BegunEffect, lineage: string | undefined): Promise<void>
  /** An attempt of a step or an effect failed and will be retried. */
  onRetry?(failed: FailedAttempt): void
  /** The rules for sleeps in this run. */
  sleeping(): Sleeping
  /** Calls `arrival` for what arrives while the handler runs; it returns false once the run is over. */
  onArrival?(arrival: (arrived: Arrival) => boolean): void
  /** Shows questions to the client while the handler runs. Resolves when that is durable. */
  publish?(questions: ReadonlyMap<string, OpenQuestion>, journal: Pick<Journal, 'reasks'>): Promise<void>
  /** Closes an offer that was published. Resolves when that is durable. */
  withdraw?(key: string): Promise<void>
  /** A mistake of the author that the call does not end with: a failed `ctx.defer`, a listener of `ctx.signal` that throws. */
  onAsideError?(error: unknown): void
}

/** An event from outside for the hook of this key, or the answer to a question that was published. */
export type Arrival =
  | { readonly hook: string; readonly value: unknown }
  | { readonly question: string; readonly digest: string; readonly answer: unknown }

export interface ReplayLimits extends TextBounds {
  /** Entries of a journal; then `LIMIT_ENTRIES`. Default: 1000. */
  readonly maxEntries: number
  /** Questions that may be open at once; then `LIMIT_QUESTIONS`. Default: 16. */
  readonly maxQuestions: number
  /**
   * Times a question is asked again because its answer was invalid, or because it was reworded; then `INPUT_REJECTED` or
   * `REPLAY_QUESTION_CHANGES`. Default: 3.
   */
  readonly maxReasks: number
  /**
   * The time that all functions passed to `ctx.defer` may delay the end of the call; then the call no longer waits for them, and
   * `LIMIT_DEFER` is logged. Default: 10 s.
   */
  readonly maxDeferMs: number
}

/** The environment of replay, which imports none of it. */
export interface Platform {
  now(): number
  idle: Idle
  digest(text: string): string
  /** Returns bytes that depend on the flow's seed and the label alone. */
  derive(seed: string, label: string): Uint8Array
  /** Calls `fn` after `ms` of real time, unless the function it returns is called first. */
  after(ms: number, fn: () => void): () => void
  /** Like `after`, while a call does nothing but sleep: a test may let that time pass at once. Default: `after`. */
  rest?(ms: number, fn: () => void): () => void
  readonly scope: Scope
}

/** Tells which work the running code belongs to. `storage` is an `AsyncLocalStorage`. */
export interface Scope {
  readonly storage: {
    run<T>(mark: object, fn: () => T): T
    getStore(): object | undefined
    disable(): void
  }
  /** The number of steps and effects that are running. */
  running: number
}

/** The part of a request that a run reads: answers, events, and the state they came with. */
export interface Incoming {
  /** A sealed journal came with it: the client holds the flow's id. */
  readonly anchored: boolean
  /** Digests of the questions that were shown, by key. */
  readonly asked: Readonly<Record<string, string>>
  readonly answers: Readonly<Record<string, unknown>> | undefined
  /** The answers came with the first request, before anything was asked. */
  readonly unasked?: boolean
  /** An earlier run came as far as it could: what it reported up to there is not reported again. */
  readonly resumed?: boolean
  /** When the answers arrived, which decides whether they came in time. Default: now. */
  readonly arrivedAt?: number
  /** Events from outside, by the key of their hook. */
  readonly events?: ReadonlyMap<string, unknown>
  readonly capabilities: ClientCapabilities
}

/** Opens hooks, where that is possible: in a task. */
export interface Hooks {
  /** Resolves with the id of the hook when it is durable. Opening it again has no effect. It takes no event from `until` on. */
  open(
    key: string,
    request: { readonly schema?: JsonSchema; readonly about?: unknown },
    until: number | undefined,
  ): Promise<string>
  /** Resolves when the hook takes no more events, and an event that it took before has arrived. */
  close(key: string): Promise<void>
}

/** What is asked, apart from what the carrier knows. */
export type AskedApproval = Omit<ApprovalRequest, 'id' | 'flow' | 'task' | 'tool' | 'args' | 'caller'>

/** Asks people, where that is possible: in a task. */
export interface Approvals {
  /** The tool, its arguments and the caller, as they enter the digest. */
  readonly bound: unknown
  /** Whether there is anybody to ask. */
  available(): boolean
  open(id: string, asked: AskedApproval): Promise<void>
  use(id: string, attempt: number, expired: boolean): Promise<ApprovalVerdict>
  /** The run waits for this hook: `what` says so in the status of the task. */
  waits(hook: string, what: string): void
  /** The handler learns a verdict, in this run or again. */
  learned(key: string, verdict: 'approved' | 'denied'): void
}

/** The rules for sleeps in a run. */
export interface Sleeping {
  /** A run that only sleeps ends, and another one continues when the first sleep is over. Else the request waits. */
  readonly parks: boolean
  /** The time that a request may wait for a sleep. */
  readonly inlineMs: number
  /** Whether a call with a longer sleep leaves its request, or why it cannot. */
  readonly beyond: 'leave' | string
  /** When the flow ends at the latest: a wait that ends later is refused. */
  readonly until?: number
  /** The round of a request: when its time is up, how long it may take, and whether the call may be handed back then. */
  readonly round?: { readonly until: number; readonly ms: number; readonly handsBack: boolean }
  /** Sleeps end at once, as if the time had passed (development mode). Called with the length of each. */
  skip?(ms: number): void
}

/** Why a journal is kept: an effect is about to begin, it has an outcome, or an undo is about to begin or has one. */
export type UndoNews = 'intent' | 'outcome' | 'undo'

/** Keeps effects that can be undone where a worker finds them if their call never ends. */
export interface Undoing {
  /** A state of this call counts once. Otherwise the call is handed back before the effect begins. */
  readonly isLinear: boolean
  /** Makes the journal durable. Rejects if the call was given up meanwhile, unless something was undone. */
  keep(journal: Journal, news: UndoNews): Promise<void>
  /** How often an undo is retried, in place of the default. */
  readonly retry?: RetryPolicy
}

/** Keeps labels by which an operator finds the task. */
export interface Labelling {
  /** Makes the labels durable, beside those that the task has already. */
  keep(labels: ReadonlyMap<string, string>): Promise<void>
}

export interface RetryPolicy {
  readonly times: number
  readonly delayMs: number
  readonly factor: number
  readonly maxDelayMs: number
}

/** The names of the effects that were undone, and of those that could not be. */
export type UndoReport = Awaited<ReturnType<Context['undo']>>

/** An effect that can be undone, as the handler called it. */
export interface Undoable {
  readonly key: string
  readonly undo: NonNullable<EffectOptions['undo']>
  /** The time for one attempt, in ms. */
  readonly timeout?: number
  /** Resolves when the effect has an outcome. */
  readonly settled: Promise<unknown>
}

/** A failed attempt that will be retried. */
export interface FailedAttempt {
  readonly kind: WorkEntryKind
  readonly key: string
  /** From 1. */
  readonly attempt: number
  /** When the next attempt begins, ms since the epoch. */
  readonly due: number
  readonly error: unknown
}

/** The status message of a task. */
export interface StatusPort {
  setStatus(message: string): void
  /** The handler set a status message in an earlier run. */
  statusWasSet?(): void
  /** A step or an effect begins. */
  begins?(kind: 'step' | 'effect', key: string): void
}

/** The tasks of a run: whether it can become one, and its status message if it is one. */
export interface Background extends StatusPort {
  /** This run can leave its request and continue as a task. */
  readonly possible: boolean
  /** The handler called `ctx.background()`, which is not possible. */
  stays?(): void
  /** Why the run cannot do what needs a task, if it can neither leave nor is one. */
  whyNot?(what: string): RondoError
}

/** A run that has no task and cannot become one. */
export const FOREGROUND: Background = { possible: false, setStatus: () => {} }
export const CAN_LEAVE: Background = { ...FOREGROUND, possible: true }

/** The error of an operation that only a task can do. `why` says what stands in the way. */
export function needsTask(what: string, why = 'This call cannot become one.'): RondoError {
  return new RondoError('REPLAY_NO_TASK', `Only a task can wait for ${what}. ${why}`)
}

/** In development: notes when and from where each operation is called, and under which key an effect runs. */
export interface RunTrace {
  called(name: string, kind: EntryKind): void
  recorded?(entry: Entry): void
  /** The status message of the task. */
  status?(message: string): void
  keyed(name: string, effectKey: string): void
  /** An attempt failed and will be retried; from 1. */
  retried?(name: string, attempt: number): void
  /** The question as a changed program would ask it. */
  reword?(name: string, request: InputRequest): InputRequest
}
