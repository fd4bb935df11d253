/**
 * The multi-round call as pure functions over a pending call: what to send, how a response changes the call, how long to
 * wait, how much time is left. `flow.ts` drives them.
 *
 * operation 1: A request has the original parameters, this round's answers and exactly the state that came (C2, C3, C4).
 * operation 2: Nothing is sent while a question is open (C1).
 * operation 3: Every function returns a value that can be stored and resumed elsewhere (C11).
 */

import { RondoError } from '../errors.ts'
import type { FlowCall } from '../protocol/call.ts'
import type { TaskState } from '../protocol/task.ts'
import type { InputRequests, InputResponses } from '../protocol/wire.ts'
import type { Limits } from './flow-options.ts'
import {
  assertAlive,
  type FlowRequest,
  flowCallOf,
  openQuestions,
  type PendingCall,
  type PendingServer,
  type PendingTask,
} from './pending.ts'

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
