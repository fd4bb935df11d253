/**
 * The multi-round call as pure steps over a pending call: what to send now, what an answer makes of it, how long to wait,
 * how much time is left. The loop in `run-flow.ts` and callers who drive rounds themselves stand on the same steps.
 *
 * O1 A leg has the original request, this round's answers, and exactly the state that came (C2, C3, C4). O2 No leg is sent
 * while a question is open (C1). O3 Every step gives a value that can be written down and taken up elsewhere (C11).
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

export interface CallOrigin {
  readonly id: string
  readonly server: PendingServer
  readonly protocolVersion: string
  readonly now: number
}

/** A call that was not sent yet. */
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

/** What to send now. */
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
  if (open.length > 0) throw new RondoError('INPUT_MISSING', `No answer yet to ${open.join(', ')}`)
}

export interface Asked {
  /** Already vetted. */
  readonly questions: InputRequests
  readonly state?: string
  readonly now: number
  /** How long the leg took, pause included. */
  readonly tookMs: number
}

/** The call after the server asked once more. Refuses a server that asks too often (C8). */
export function ask<R extends FlowRequest>(
  pending: PendingCall<R>,
  asked: Asked,
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

/** The call once the server made a task of it: from here on it is looked at, not sent again. */
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

/** What a task is to be told now, if anything (C1). */
export function deliveryOf(pending: PendingCall): InputResponses | undefined {
  assertAnswered(pending)
  return Object.keys(pending.answers).length > 0 ? pending.answers : undefined
}

/** The call once the server has its answers; `isFinal` where a key is never asked again. */
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

/** How long to wait before the next leg: not at all after a question, 50 ms doubling to 250 ms without one (C9). */
export function pauseOf(pending: PendingCall): number {
  if (pending.idleRounds === 0) return 0
  return Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** (pending.idleRounds - 1))
}

/** When the whole call must be over (C12). Human time does not count unless the limits say so. */
export function deadlineOf(
  pending: PendingCall,
  limits: Pick<Limits, 'deadlineMs' | 'countHumanTime'>,
  now: number,
): number {
  if (limits.countHumanTime) return pending.startedAt + limits.deadlineMs
  return now + limits.deadlineMs - pending.workMs
}
