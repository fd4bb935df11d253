/**
 * Drives a multi-round call over the pure steps of `operation.ts`: send, vet, let the policies look, have the questions
 * answered, send again (C6). What it holds between two steps is a pending call and nothing more. A call that became a
 * task is followed by `follow-task.ts` from there on.
 */

import { RondoError } from '../errors.ts'
import type { RoundResult } from './client.ts'
import { sleep } from './clock.ts'
import { type Driving, type Flows, type Step, sendOptions } from './flow-options.ts'
import { type FlowRequest, type FlowResult, flowCallOf } from './flow-request.ts'
import { followTask } from './follow-task.ts'
import { fulfil } from './fulfil.ts'
import { openLeg } from './leg.ts'
import { withLimits } from './limits.ts'
import { becomeTask, deadlineOf, type FlowLeg, legOf, pauseOf } from './operation.ts'
import { PeerError } from './peer-error.ts'
import { openQuestions, type PendingCall } from './pending.ts'
import { createPushedRounds } from './pushed-rounds.ts'
import { sendLeg, taskWish } from './send-leg.ts'
import { takeRound } from './take-round.ts'
import { dropTask } from './task-request.ts'
import { vetRound } from './vet-round.ts'

/** Runs the call to its end, from wherever it is; handlers answer. */
export async function runFlow<R extends FlowRequest>(
  flows: Flows,
  begun: PendingCall<R>,
  options: Driving,
): Promise<Extract<Step<R>, { status: 'complete' }>> {
  let pending = begun
  try {
    for (;;) {
      if (openQuestions(pending).length > 0) pending = await answerRound(flows, pending, options)
      const step = await advance(flows, pending, options)
      if (step.status === 'complete') return step
      pending = step.pending
    }
  } catch (error) {
    // Nobody waits for it any more, and nobody has its id. One that was written down is its keeper's to cancel.
    if (pending.task && !begun.task && !isOfServer(error)) await dropTask(flows.peer, pending.task.taskId)
    throw error
  }
}

/** Errors after which a task has ended, cannot be reached, or goes on for whoever connects again. */
const OF_SERVER = new Set(['PEER_ERROR', 'PEER_TASK_CANCELLED', 'PEER_GONE', 'PEER_BUSY', 'PEER_HTTP'])

function isOfServer(error: unknown): boolean {
  return error instanceof RondoError && OF_SERVER.has(error.code)
}

/** Sends the call on until the server asks something, makes a task of it, or is done. A task is waited for. */
export async function advance<R extends FlowRequest>(
  flows: Flows,
  begun: PendingCall<R>,
  options: Driving,
): Promise<Step<R>> {
  let pending = begun
  if (pending.task) return followTask(flows, pending, pending.task, options)
  for (;;) {
    const step = await sendOnce(flows, pending, options)
    if (step.status === 'complete') return step
    await options.onPending?.(step.pending)
    pending = step.pending
    if (step.status === 'task' || options.everyRound || openQuestions(pending).length > 0) return step
  }
}

async function answerRound<R extends FlowRequest>(
  flows: Flows,
  pending: PendingCall<R>,
  options: Driving,
): Promise<PendingCall<R>> {
  const { clock } = flows.peer
  const limits = withLimits(options, flows.peer.limits)
  const deadlineAt = limits.countHumanTime ? deadlineOf(pending, limits, clock.now()) : undefined
  const time = openLeg(clock, { timeout: Number.POSITIVE_INFINITY, deadlineAt }, options.signal)
  try {
    return await fulfil(pending, { answers: flows.answers, signal: time.signal, onAnswer: options.onPending })
  } finally {
    time.end()
  }
}

async function sendOnce<R extends FlowRequest>(
  flows: Flows,
  pending: PendingCall<R>,
  options: Driving,
): Promise<Step<R>> {
  const { peer } = flows
  const limits = withLimits(options, peer.limits)
  const startedAt = peer.clock.now()
  const deadlineAt = deadlineOf(pending, limits, startedAt)
  const leg = { ...legOf(pending), ...(await taskWish(flows, pending, options)) }
  const pause = pauseOf(pending)
  // A call that lay for a while need not wait; one from a machine whose clock is ahead waits no longer than others.
  const wait = Math.min(pause, pending.askedAt + pause - startedAt, deadlineAt - startedAt)
  if (wait > 0) await sleep(peer.clock, wait, options.signal)
  if (peer.clock.now() >= deadlineAt) throw new RondoError('LIMIT_CLIENT_DEADLINE')
  const pushed = createPushedRounds(flows, pending, options, limits)
  const sending = sendOptions(flows, pending, options, limits, deadlineAt)
  const received = await sendLeg(flows, leg, { ...sending, onQuestion: pushed.take })
  if (received.kind === 'error') throw new PeerError(received.error)
  if (received.kind === 'complete') {
    return { status: 'complete', result: received.result as unknown as FlowResult<R>, rounds: pushed.rounds }
  }
  if (received.kind === 'task') {
    const now = peer.clock.now()
    return { status: 'task', pending: becomeTask(pending, received.task, now, now - startedAt) }
  }
  const asked = await takeRound(flows, pending, received, { limits, options, startedAt })
  return { status: 'input_required', pending: asked }
}

/** One leg with whatever the caller gives. The questions are vetted, since people may be shown them. */
export async function sendRound<R extends FlowRequest>(
  flows: Flows,
  begun: PendingCall<R>,
  raw: Pick<FlowLeg, 'inputResponses' | 'requestState'>,
  options: Driving,
): Promise<RoundResult<R>> {
  const { peer } = flows
  const limits = withLimits(options, peer.limits)
  const pushed = createPushedRounds(flows, begun, options, limits)
  const sending = sendOptions(flows, begun, options, limits, Number.POSITIVE_INFINITY)
  const leg = { ...flowCallOf(begun.request), ...raw }
  const received = await sendLeg(flows, leg, { ...sending, onQuestion: pushed.take })
  switch (received.kind) {
    case 'error':
      throw new PeerError(received.error)
    case 'complete':
      return { resultType: 'complete', result: received.result as unknown as FlowResult<R> }
    case 'task':
      throw new RondoError('PEER_ANSWER', 'The server made a task of a call that did not allow it')
    case 'input_required': {
      const inputRequests = vetRound(received, limits, options.kinds)
      const { state } = received
      return {
        resultType: 'input_required',
        inputRequests,
        ...(state !== undefined && { requestState: state }),
      }
    }
  }
}
