/**
 * Drives a multi-round call over the pure steps of `operation.ts`: send, vet, let the policies look, have the questions
 * answered, send again (C6). What it holds between two steps is a pending call and nothing more. A call that became a
 * task is followed by `follow-task.ts` from there on.
 */

import { RondoError } from '../errors.ts'
import { sleep } from '../lib/clock.ts'
import type { Received } from '../protocol/reply.ts'
import type { RoundResult } from './client.ts'
import { type DriveResult, type Driving, type Flows, sendOptions, withLimits } from './flow-options.ts'
import { becomeTask, deadlineOf, type FlowLeg, legOf, pauseOf } from './operation.ts'
import { openLeg, PeerError, type SendOptions } from './peer.ts'
import { type FlowRequest, type FlowResult, flowCallOf, openQuestions, type PendingCall } from './pending.ts'
import { createPushedRounds, fulfil, takeRound, vetRound } from './round.ts'
import { followTask } from './task/follow.ts'
import { dropTask } from './task/request.ts'

/** Runs the call to its end, from wherever it is; handlers answer. */
export async function runFlow<R extends FlowRequest>(
  flows: Flows,
  begun: PendingCall<R>,
  options: Driving,
): Promise<Extract<DriveResult<R>, { status: 'complete' }>> {
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
): Promise<DriveResult<R>> {
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
  const time = openLeg(clock, { timeoutMs: Number.POSITIVE_INFINITY, deadlineAt }, options.signal)
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
): Promise<DriveResult<R>> {
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

/*
 * Sends one leg of a call as the server wants it. What the server's tools say about themselves may be unknown or old: a
 * server that misses something has done nothing yet, so its tools are listed anew, and if that teaches something the leg
 * is sent once more.
 */

/** In dialects where the client asks for tasks: where the caller does, and where the tool exists only as one. */
async function taskWish(
  flows: Flows,
  { request }: PendingCall,
  { taskTtlMs, signal }: Driving,
): Promise<Pick<FlowLeg, 'task'>> {
  const { peer, tools } = flows
  if (!asksForTasks(flows) || request.method !== 'tools/call') return {}
  const { name } = request
  // In the draft a call may become a task later, whatever its tool says. Before it what the tool says binds, so it has to
  // be known: servers in the field answer a call that should have been a task with a result that looks like the tool's.
  const must = peer.dialect.tasks === 'pushed'
  if (must && !tools.learned) await flows.refreshTools({ signal })
  const support = tools.taskSupport(name)
  if (support !== 'required' && (taskTtlMs === undefined || (must && support !== 'optional'))) return {}
  return { task: taskTtlMs === undefined ? {} : { ttlMs: taskTtlMs } }
}

function asksForTasks({ peer, tasks }: Flows): boolean {
  return tasks !== 'off' && (peer.dialect.tasks === 'asked' || peer.dialect.tasks === 'pushed')
}

const HEADER_MISMATCH = -32020
const METHOD_NOT_FOUND = -32601

async function sendLeg(flows: Flows, leg: FlowLeg, options: SendOptions): Promise<Received> {
  const { peer, tools } = flows
  if (leg.method !== 'tools/call') return peer.send(leg, options)
  const mirrors = peer.transport.kind !== 'stdio'
  const mirrored = mirrors ? tools.mirrored(leg.target) : undefined
  const received = await peer.send(leg, { ...options, mirrored })
  if (received.kind !== 'error') return received
  if (mirrors && received.error.code === HEADER_MISMATCH) {
    await flows.refreshTools(options)
    const fresh = tools.mirrored(leg.target)
    if (fresh === undefined || JSON.stringify(fresh) === JSON.stringify(mirrored)) return received
    return peer.send(leg, { ...options, mirrored: fresh })
  }
  if (received.error.code !== METHOD_NOT_FOUND || leg.task || !asksForTasks(flows)) return received
  await flows.refreshTools(options)
  if (tools.taskSupport(leg.target) !== 'required') return received
  return peer.send({ ...leg, task: {} }, { ...options, mirrored })
}
