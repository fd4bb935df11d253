/** What callers can say about one call, and what every part of the loop is given. */

import { displayText } from '../form/clean-text.ts'
import type { Notice } from '../protocol/reply.ts'
import { TASKS_EXTENSION, type TaskState } from '../protocol/task.ts'
import type { ClientCapabilities, LogLevel } from '../protocol/wire.ts'
import type { Peer, SendOptions } from './peer.ts'
import type { FlowRequest, FlowResult, PendingCall } from './pending.ts'
import type { RoundPolicy } from './policy.ts'
import { type Answers, capabilitiesFor, type QuestionKind } from './question.ts'
import type { ToolBook } from './reader.ts'

/** What `start` and `resume` give: the result, a call that waits for answers, or one that goes on as a task. */
export type DriveResult<R extends FlowRequest = FlowRequest> =
  | { readonly status: 'complete'; readonly result: FlowResult<R>; readonly rounds: number }
  | { readonly status: 'input_required'; readonly pending: PendingCall<R> }
  | { readonly status: 'task'; readonly pending: PendingCall<R> }

export type ProgressNotice = Extract<Notice, { kind: 'progress' }>
export type LogNotice = Extract<Notice, { kind: 'log' }>

export type CallLimits = Pick<Limits, 'maxRounds' | 'timeoutMs' | 'deadlineMs' | 'countHumanTime'>

export interface FlowOptions extends Partial<CallLimits> {
  /** Cancels the call, whatever it is doing; a task is cancelled too, unless `resume` only waits for it. */
  readonly signal?: AbortSignal
  readonly onProgress?: (progress: ProgressNotice) => void
  readonly onLog?: (log: LogNotice) => void
  readonly logLevel?: LogLevel
  /** Looks at every round before it is answered, after the client's own policies. */
  readonly onRound?: RoundPolicy | readonly RoundPolicy[]
  /** Sees the call whenever it changed, before anything else happens: write it down here to survive a crash. */
  readonly onPending?: (pending: PendingCall) => void | Promise<void>
  /** Sees how a task stands whenever that changed. */
  readonly onTask?: (task: TaskState) => void
  /**
   * Asks for a task that is kept this long, where it is the client who asks for tasks: at 2025-11-25, if the tool may run
   * as one, and in `DRAFT-2026-v1`.
   */
  readonly taskTtlMs?: number
  /** `traceparent` and its kin, sent with every leg. */
  readonly trace?: Readonly<Record<string, string>>
}

/** How tasks are followed: told by the server where it does that, by looking alone, or not at all. */
export type TaskMode = 'listen' | 'poll' | 'off'

export interface Flows {
  readonly peer: Peer
  readonly answers: Answers
  readonly policies: readonly RoundPolicy[]
  readonly tools: ToolBook
  readonly tasks: TaskMode
  /** From 0 to 1; spreads the looks of many clients. */
  readonly random: () => number
  /** Lists the tools anew. */
  refreshTools(options: SendOptions): Promise<unknown>
}

export interface Driving extends FlowOptions {
  /** What may be asked in this call. */
  readonly kinds: ReadonlySet<QuestionKind>
  /** Stop after every round, also where there is nothing to answer. */
  readonly everyRound?: boolean
  /** The caller wants the call back where somebody is asked. */
  readonly suspends?: boolean
}

/** What a request declares: what may be asked, and that a tool call may become a task. */
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

/** What is sent with every leg of a call. */
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
    onNotice(notice) {
      if (notice.kind === 'progress') return onProgress?.({ ...notice, message: shown(notice.message) })
      if (notice.kind === 'log')
        return onLog?.({ ...notice, data: shown(notice.data), logger: shown(notice.logger) })
    },
  }
}

/** Texts are for people to read; other data is handed over as it is. */
function shown<T>(value: T): T {
  return (typeof value === 'string' ? displayText(value) : value) as T
}

/* How much of a server our client puts up with. Every bound has an option and an error of its own (R9). */

export interface Limits {
  /** How often one call may be answered and sent again. 10, as in other clients. */
  readonly maxRounds: number
  /** Milliseconds one request may take. Progress from the server starts it anew. Two minutes. */
  readonly timeoutMs: number
  /** Milliseconds a whole call may take, all rounds together. Ten minutes. */
  readonly deadlineMs: number
  /** Whether the deadline also counts the time people take to answer, and the time a call lies pending. No. */
  readonly countHumanTime: boolean
  /** Bytes of one answer. 16 MiB. */
  readonly maxResponseBytes: number
  /** Bytes of one `requestState`. 1 MiB. */
  readonly maxStateBytes: number
  /** Questions in one round. 32. */
  readonly maxQuestions: number
  /** Size of all questions of a round, schemas included: characters of their strings and keys, plus 8 for every value. 256 Ki. */
  readonly maxQuestionSize: number
  /** Pages of one list. 100. */
  readonly maxPages: number
}

export const LIMITS: Limits = {
  maxRounds: 10,
  timeoutMs: 120_000,
  deadlineMs: 600_000,
  countHumanTime: false,
  maxResponseBytes: 16 * 1_048_576,
  maxStateBytes: 1_048_576,
  maxQuestions: 32,
  maxQuestionSize: 262_144,
  maxPages: 100,
}

/** The given limits over the defaults. A limit that is no number of at least zero is a mistake of the caller. */
export function withLimits(given: Partial<Limits>, base: Limits = LIMITS): Limits {
  const limits: Record<string, unknown> = { ...base }
  for (const name of Object.keys(LIMITS)) {
    const value = (given as Record<string, unknown>)[name]
    if (value === undefined) continue
    if (name !== 'countHumanTime' && !(typeof value === 'number' && value >= 0)) {
      throw new TypeError(`${name} must be a number of at least 0, not ${String(value)}`)
    }
    limits[name] = value
  }
  return limits as unknown as Limits
}
