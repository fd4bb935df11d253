/** The options and limits of a call, and what the parts of its loop share. */

import { displayText } from '../form/clean-text.ts'
import { defaultsOf, flag, number, type OptionsOf } from '../options.ts'
import type { QuestionKind } from '../protocol/common/request.ts'
import { type Notice, TASKS_EXTENSION, type TaskState } from '../protocol/reply.ts'
import type { ClientCapabilities, LogLevel } from '../protocol/wire.ts'
import type { Peer, SendOptions } from './peer.ts'
import type { FlowRequest, FlowResult, PendingCall } from './pending.ts'
import type { RoundPolicy } from './policy.ts'
import { type Answers, capabilitiesFor } from './question.ts'
import type { ToolBook } from './reader.ts'

/** What `start` and `resume` return: the result, a call that waits for answers, or one that continues as a task. */
export type DriveResult<R extends FlowRequest = FlowRequest> =
  | { readonly status: 'complete'; readonly result: FlowResult<R>; readonly rounds: number }
  | { readonly status: 'input_required'; readonly pending: PendingCall<R> }
  | { readonly status: 'task'; readonly pending: PendingCall<R> }

/** Limits on what a server may use up. Every limit has an option and an error of its own (R9). */
export interface Limits {
  /** How often a call may be answered and sent again; then `LIMIT_CLIENT_ROUNDS`. Other clients allow 10 too. Default: 10. */
  readonly maxRounds: number
  /** The time for one request; progress restarts it. Then `LIMIT_CLIENT_TIMEOUT`. Default: 2 minutes. */
  readonly timeoutMs: number
  /** The time for all requests of a call; then `LIMIT_CLIENT_DEADLINE`. Default: 10 minutes. */
  readonly deadlineMs: number
  /** Counts the time people take to answer, and the time a call is stored, towards the deadline. Default: `false`. */
  readonly countHumanTime: boolean
  /** Bytes of one response; then `LIMIT_CLIENT_BYTES`. All pages of a list together may be twice as large. Default: 16 MiB. */
  readonly maxResponseBytes: number
  /** Bytes of one `requestState`; then `LIMIT_CLIENT_STATE`. Default: 1 MiB. */
  readonly maxStateBytes: number
  /** Questions in one round; then `LIMIT_CLIENT_QUESTIONS`. Default: 32. */
  readonly maxQuestions: number
  /**
   * Size of all questions of a round, schemas included: characters of their strings and keys, plus 8 for every value. Then
   * `LIMIT_CLIENT_QUESTIONS`. Default: 262,144.
   */
  readonly maxQuestionSize: number
  /** Pages of one list; then `LIMIT_CLIENT_PAGES`. Default: 100. */
  readonly maxPages: number
}

export const LIMIT_OPTIONS: OptionsOf<Limits> = {
  maxRounds: number(10),
  timeoutMs: number(120_000),
  deadlineMs: number(600_000),
  countHumanTime: flag(false),
  maxResponseBytes: number(16 * 1_048_576),
  maxStateBytes: number(1_048_576),
  maxQuestions: number(32),
  maxQuestionSize: number(262_144),
  maxPages: number(100),
}

/**
 * The limits of a client that sets none of its own: how long it waits, how often it may be asked, and how much it reads.
 *
 * @example
 * ```ts
 * const client = await connect('https://tables.example.com/mcp', { timeoutMs: 2 * LIMITS.timeoutMs })
 * ```
 */
export const LIMITS: Limits = defaultsOf(LIMIT_OPTIONS)

export type ProgressNotice = Extract<Notice, { kind: 'progress' }>
export type LogNotice = Extract<Notice, { kind: 'log' }>

export type CallLimits = Pick<Limits, 'maxRounds' | 'timeoutMs' | 'deadlineMs' | 'countHumanTime'>

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

export interface Flows {
  readonly peer: Peer
  readonly answers: Answers
  readonly policies: readonly RoundPolicy[]
  readonly tools: ToolBook
  readonly tasks: TaskMode
  /** From 0 to 1, for the jitter between polls. */
  readonly random: () => number
  /** Lists the tools again. */
  refreshTools(options: SendOptions): Promise<unknown>
}

export interface Driving extends FlowOptions {
  /** The kinds of questions that the server may ask in this call. */
  readonly kinds: ReadonlySet<QuestionKind>
  /** Return after every round, including those without questions. */
  readonly everyRound?: boolean
  /** Return the call to the caller where the server asks. */
  readonly suspends?: boolean
}

/** The capabilities a request declares: what may be asked, and that a tool call may become a task. */
export function declare(
  { tasks }: Pick<Flows, 'tasks'>,
  kinds: ReadonlySet<QuestionKind>,
  method: FlowRequest['method'],
): ClientCapabilities {
  const asked = capabilitiesFor(kinds)
  return tasks === 'off' || method !== 'tools/call'
    ? asked
    : { ...asked, extensions: { [TASKS_EXTENSION]: {} } }
}

/** The options of every request of a call. */
export function sendOptions(
  flows: Flows,
  { request }: PendingCall,
  options: Driving,
  limits: Limits,
  deadlineAt: number,
): SendOptions {
  const { onProgress, onLog, logLevel } = options
  return {
    signal: options.signal,
    timeoutMs: limits.timeoutMs,
    deadlineAt,
    countHumanTime: limits.countHumanTime,
    capabilities: declare(flows, options.kinds, request.method),
    progress: onProgress !== undefined,
    logLevel: logLevel ?? (onLog && 'info'),
    trace: options.trace,
    meta: options.meta,
    onNotice(notice) {
      if (notice.kind === 'progress') return onProgress?.({ ...notice, message: toShown(notice.message) })
      if (notice.kind === 'log')
        return onLog?.({ ...notice, data: toShown(notice.data), logger: toShown(notice.logger) })
    },
  }
}

/** Cleans text for display; other data stays as it is. */
function toShown<T>(value: T): T {
  return (typeof value === 'string' ? displayText(value) : value) as T
}

/** Applies the given limits over `base`; other options are ignored. */
export function withLimits(given: Partial<Limits>, base: Limits = LIMITS): Limits {
  const own = Object.entries(given).filter(([name, value]) => name in LIMITS && value !== undefined)
  return { ...base, ...Object.fromEntries(own) }
}
