/**
 * A call between two rounds, as plain JSON: all that any process needs to go on with it, and nothing else.
 *
 * 1. Nothing here does I/O or reads a clock; every function gives a new value. 2. `state` is the server's, byte for byte
 * (C2). 3. Answers belong to the questions of this round only (C4); the next round begins without any. 4. `round` 0 is
 * a call that was not sent yet.
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

export interface PendingServer {
  /** Where it was reached: a URL or a command line. For people and for reconnecting; never compared. */
  readonly target: string
  /** The name it gave itself. A call is not resumed at a server of another name. */
  readonly name?: string
  readonly version?: string
}

/** The task that a call has become; the server works on it whether or not anybody looks. */
export interface PendingTask {
  readonly taskId: string
  readonly createdAt: number
  /** How long the server keeps it, from its creation on; null for no limit. */
  readonly ttlMs: number | null
  readonly pollIntervalMs: number
  /** When the server was last asked how it stands. */
  readonly lookedAt: number
  /** Keys whose answers the server has. It may name them a little longer; nobody is asked twice. */
  readonly answered: readonly string[]
}

export interface PendingCall<R extends FlowRequest = FlowRequest> {
  /** The version of this format. */
  readonly version: 1
  /** Names the call in a store or a log. The server does not know it. */
  readonly id: string
  readonly server: PendingServer
  readonly protocolVersion: string
  readonly request: R
  /** How often the server has asked so far. */
  readonly round: number
  /** `requestState`; absent where the server gave none. */
  readonly state?: string
  /** Empty where the server only wants to be called again. */
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
  /** There once the call goes on as a task. */
  readonly task?: PendingTask
  /** The call was given up. */
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
  if (question === undefined) throw new RondoError('INPUT_ANSWER', `The server did not ask "${key}"`)
  const problem = answerProblem(question, response)
  if (problem !== undefined) {
    throw new RondoError('INPUT_ANSWER', `The answer to "${key}" does not fit: ${problem}`)
  }
  return { ...pending, answers: { ...pending.answers, [key]: response } }
}

/**
 * Gives the call up. The server holds nothing for it and is not told; state and answers are forgotten. A task is another
 * matter: it goes on until it is cancelled with `client.task(taskId).cancel()`.
 */
export function abandon<R extends FlowRequest>(pending: PendingCall<R>): PendingCall<R> {
  const { state: _, task: __, ...rest } = pending
  return { ...rest, questions: {}, answers: {}, abandoned: true }
}

export function assertAlive(pending: PendingCall): void {
  if (pending.abandoned) throw new RondoError('INPUT_PENDING', 'This call was given up')
}

/* The three requests that may take several rounds, as a caller writes them and as they are stored. */

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

/** What a request gives when it is done. */
export type FlowResult<R extends FlowRequest = FlowRequest> = FlowResults[R['method']]

/** The part of the request that stays the same on every leg (C3). */
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
