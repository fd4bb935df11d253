/**
 * A call between two rounds as plain JSON: all that any process needs to continue it, and nothing else.
 *
 * pending 1: Nothing here does I/O or reads a clock; every function returns a new value.
 * pending 2: `state` is the server's, byte for byte (C2).
 * pending 3: Answers belong to the questions of this round (C4); the next round begins without any.
 * pending 4: `round` 0 is a call that was not sent yet.
 */

import { RondoError } from '../errors.ts'
import type { FlowCall, FlowMethod } from '../protocol/call.ts'
import type { TaskState } from '../protocol/reply.ts'
import type {
  CallToolResult,
  GetPromptResult,
  InputRequest,
  InputRequests,
  InputResponse,
  InputResponses,
  ReadResourceResult,
} from '../protocol/wire.ts'
import type { Limits } from './limits.ts'
import { answerProblem } from './question.ts'

export interface ToolRequest {
  readonly method: 'tools/call'
  readonly name: string
  readonly arguments?: Readonly<Record<string, unknown>>
}

export interface PromptRequest {
  readonly method: 'prompts/get'
  readonly name: string
  readonly arguments?: Readonly<Record<string, string>>
}

export interface ResourceRequest {
  readonly method: 'resources/read'
  readonly uri: string
}

export type FlowRequest = ToolRequest | PromptRequest | ResourceRequest

interface FlowResults {
  'tools/call': CallToolResult
  'prompts/get': GetPromptResult
  'resources/read': ReadResourceResult
}

/** The final result of a request. */
export type FlowResult<R extends FlowRequest = FlowRequest> = FlowResults[R['method']]

export interface PendingServer {
  /** The place at which the server was reached: a URL or a command line. For people and for reconnecting; never compared. */
  readonly target: string
  /** Its own name. A call is not resumed at a server of another name. */
  readonly name?: string
  readonly version?: string
}

/** The task that a call has become; the server works on it whether or not a client polls. */
export interface PendingTask {
  readonly taskId: string
  readonly createdAt: number
  /** How long the server keeps it from its creation; null for no limit. */
  readonly ttlMs: number | null
  readonly pollIntervalMs: number
  /** When the task was last polled. */
  readonly lookedAt: number
  /** Keys whose answers the server has. It may still list them for a while; they are not asked again. */
  readonly answered: readonly string[]
}

export interface PendingCall<R extends FlowRequest = FlowRequest> {
  /** The version of this format. */
  readonly version: 1
  /** Identifies the call in a store or a log. The server does not know it. */
  readonly id: string
  readonly server: PendingServer
  readonly protocolVersion: string
  readonly request: R
  /** How often the server has asked so far. */
  readonly round: number
  /** `requestState`; absent where the server sent none. */
  readonly state?: string
  /** Empty where the server only asks for a retry. */
  readonly questions: InputRequests
  /** The answers given so far. */
  readonly answers: InputResponses
  /** When the call began, when the server asked: milliseconds since the epoch. */
  readonly startedAt: number
  readonly askedAt: number
  /** Milliseconds of work so far, without the time people took. */
  readonly workMs: number
  /** Rounds without a question, up to and including this one, since the last question. */
  readonly idleRounds: number
  /** Present once the call continues as a task. */
  readonly task?: PendingTask
  /** The call was abandoned. */
  readonly abandoned?: true
}

/**
 * Returns the questions of a pending call that have no answer yet, in the server's order.
 *
 * @example
 * ```ts
 * for (const [name, question] of openQuestions(pending)) console.log(name, question.params)
 * ```
 */
export function openQuestions(pending: PendingCall): [key: string, question: InputRequest][] {
  return Object.entries(pending.questions).filter(([key]) => !Object.hasOwn(pending.answers, key))
}

/**
 * Adds the answer to one question of a pending call, or replaces it, and returns the call with it. Refuses keys that were not asked
 * and answers of the wrong shape.
 *
 * @example
 * ```ts
 * const answered = answer(pending, 'seat', { action: 'accept', content: { seat: 'inside' } })
 * ```
 */
export function answer<R extends FlowRequest>(
  pending: PendingCall<R>,
  key: string,
  response: InputResponse,
): PendingCall<R> {
  assertAlive(pending)
  const question = Object.hasOwn(pending.questions, key) ? pending.questions[key] : undefined
  if (question === undefined) throw new RondoError('INPUT_ANSWER', `The server asked no question "${key}"`)
  const problem = answerProblem(question, response)
  if (problem !== undefined) {
    throw new RondoError('INPUT_ANSWER', `The answer to "${key}" does not fit: ${problem}`)
  }
  return { ...pending, answers: { ...pending.answers, [key]: response } }
}

/**
 * Abandons a pending call and drops its state and answers. The server holds nothing for it and is not notified. A task
 * continues until it is cancelled with `client.task(taskId).cancel()`.
 *
 * @example
 * ```ts
 * const abandoned = abandon(pending)
 * ```
 */
export function abandon<R extends FlowRequest>(pending: PendingCall<R>): PendingCall<R> {
  const { state: _, task: __, ...rest } = pending
  return { ...rest, questions: {}, answers: {}, abandoned: true }
}

export function assertAlive(pending: PendingCall): void {
  if (pending.abandoned) throw new RondoError('INPUT_PENDING', 'This call was abandoned')
}

/** The part of the request that is the same in every round (C3). */
export function flowCallOf(request: FlowRequest): {
  kind: 'flow'
  method: FlowMethod
  target: string
  args: FlowCall['args']
} {
  return request.method === 'resources/read'
    ? { kind: 'flow', method: request.method, target: request.uri, args: {} }
    : { kind: 'flow', method: request.method, target: request.name, args: request.arguments ?? {} }
}

// The multi-round call as pure functions over a pending call: what to send, how a response changes the call, how long to
// wait, how much time is left. `flow.ts` drives them.
//
// operation 1: A request has the original parameters, this round's answers and exactly the state that came (C2, C3, C4).
// operation 2: Nothing is sent while a question is open (C1).
// operation 3: Every function returns a value that can be stored and resumed elsewhere (C11).

export type FlowLeg = Pick<
  FlowCall,
  'kind' | 'method' | 'target' | 'args' | 'inputResponses' | 'requestState' | 'task'
>

interface CallOrigin {
  readonly id: string
  readonly server: PendingServer
  readonly protocolVersion: string
  readonly now: number
}

/** Creates a call that was not sent yet. */
export function begin<R extends FlowRequest>(request: R, origin: CallOrigin): PendingCall<R> {
  const { id, server, protocolVersion, now } = origin
  return {
    version: 1,
    id,
    server,
    protocolVersion,
    request,
    round: 0,
    questions: {},
    answers: {},
    startedAt: now,
    askedAt: now,
    workMs: 0,
    idleRounds: 0,
  }
}

/** The next request of the call. */
export function legOf(pending: PendingCall): FlowLeg {
  assertAnswered(pending)
  return {
    ...flowCallOf(pending.request),
    ...(Object.keys(pending.answers).length > 0 && { inputResponses: pending.answers }),
    ...(pending.state !== undefined && { requestState: pending.state }),
  }
}

function assertAnswered(pending: PendingCall): void {
  assertAlive(pending)
  const open = openQuestions(pending).map(([key]) => `"${key}"`)
  if (open.length > 0) throw new RondoError('INPUT_MISSING', `Not answered yet: ${open.join(', ')}`)
}

export interface AskedRound {
  readonly questions: InputRequests
  readonly state?: string
  /** The request that brought them, as telemetry names it. */
  readonly span?: string
}

/** The call after the server asked again, in questions that were vetted. Throws if it asks too often (C8). */
export function ask<R extends FlowRequest>(
  pending: PendingCall<R>,
  asked: AskedRound & { readonly now: number; readonly tookMs: number },
  limits: Pick<Limits, 'maxRounds'>,
): PendingCall<R> {
  const { state: _, ...rest } = pending
  if (pending.round >= limits.maxRounds) {
    throw new RondoError('LIMIT_CLIENT_ROUNDS', `The server still asks after ${limits.maxRounds} rounds`)
  }
  return {
    ...rest,
    round: pending.round + 1,
    ...(asked.state !== undefined && { state: asked.state }),
    questions: asked.questions,
    answers: {},
    askedAt: asked.now,
    workMs: pending.workMs + Math.max(0, asked.tookMs),
    idleRounds: Object.keys(asked.questions).length === 0 ? pending.idleRounds + 1 : 0,
  }
}

const POLL_MS = 1_000

/** The call after the server made it a task, which is polled and not sent again. */
export function becomeTask<R extends FlowRequest>(
  pending: PendingCall<R>,
  task: TaskState,
  now: number,
  tookMs: number,
): PendingCall<R> {
  const { state: _, ...rest } = pending
  const { taskId, createdAt, ttlMs, pollIntervalMs = POLL_MS } = task
  return {
    ...rest,
    questions: {},
    answers: {},
    workMs: pending.workMs + Math.max(0, tookMs),
    idleRounds: 0,
    task: { taskId, createdAt, ttlMs, pollIntervalMs, lookedAt: now, answered: [] },
  }
}

/** The answers to send to a task, if there are any (C1). */
export function deliveryOf(pending: PendingCall): InputResponses | undefined {
  assertAnswered(pending)
  return Object.keys(pending.answers).length > 0 ? pending.answers : undefined
}

/** The call after its answers were delivered; with `isFinal` an answered key is never asked again. */
export function delivered<R extends FlowRequest>(
  pending: PendingCall<R>,
  task: PendingTask,
  isFinal: boolean,
): PendingCall<R> {
  const keys = isFinal ? Object.keys(pending.answers) : []
  const answered = [...new Set([...task.answered, ...keys])]
  const { state: _, ...rest } = pending
  return { ...rest, questions: {}, answers: {}, task: { ...task, answered } }
}

const FIRST_PAUSE_MS = 50
const LONGEST_PAUSE_MS = 250

/** The pause before the next request: none after a question, otherwise 50 ms doubling to 250 ms (C9). */
export function pauseOf(pending: PendingCall): number {
  if (pending.idleRounds === 0) return 0
  return Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** (pending.idleRounds - 1))
}

/** When the whole call must be over (C12). Human time counts only with `countHumanTime`. */
export function deadlineOf(
  pending: PendingCall,
  limits: Pick<Limits, 'deadlineMs' | 'countHumanTime'>,
  now: number,
): number {
  if (limits.countHumanTime) return pending.startedAt + limits.deadlineMs
  return now + limits.deadlineMs - pending.workMs
}
