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
import type {
  CallToolResult,
  GetPromptResult,
  InputRequest,
  InputRequests,
  InputResponse,
  InputResponses,
  ReadResourceResult,
} from '../protocol/wire.ts'
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
  /** Where it was reached: a URL or a command line. For people and for reconnecting; never compared. */
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

/** The questions that have no answer yet, in the server's order. */
export function openQuestions(pending: PendingCall): [key: string, question: InputRequest][] {
  return Object.entries(pending.questions).filter(([key]) => !Object.hasOwn(pending.answers, key))
}

/** Adds the answer to one question, or replaces it. Refuses keys that were not asked and answers of the wrong shape. */
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
 * Abandons the call and drops its state and answers. The server holds nothing for it and is not notified. A task
 * continues until it is cancelled with `client.task(taskId).cancel()`.
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
