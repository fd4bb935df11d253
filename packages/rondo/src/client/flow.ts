/**
 * Drives a multi-round call with the pure functions of `pending.ts`: send, vet, apply policies, have the questions
 * answered, send again (C6). Between two rounds it holds a pending call and nothing else. `task/follow.ts` follows a call
 * that became a task.
 */

import { RondoError } from '../errors.ts'
import { cleanText, displayText } from '../form/clean-text.ts'
import { sleep } from '../lib/clock.ts'
import { isRecord } from '../lib/json.ts'
import type { Received, TaskState } from '../protocol/reply.ts'
import type { InputRequests } from '../protocol/wire.ts'
import type { DriveResult } from './flow-options.ts'
import type { Limits } from './limits.ts'
import { withLimits } from './limits.ts'
import { MAX_MESSAGE, openLeg, PeerError } from './peer.ts'
import {
  becomeTask,
  deadlineOf,
  type FlowLeg,
  type FlowRequest,
  type FlowResult,
  flowCallOf,
  legOf,
  openQuestions,
  type PendingCall,
  pauseOf,
} from './pending.ts'
import type { Driving, Flows, SendOptions } from './port.ts'
import { answerableKinds } from './question.ts'
import { createPushedRounds, declare, fulfil, takeRound, vetRound } from './round.ts'
import { followTask } from './task/follow.ts'
import { dropTask, toDisplay } from './task/strategy.ts'

/** The outcome of one round. */
export type RoundResult<R extends FlowRequest = FlowRequest> =
  | { readonly resultType: 'complete'; readonly result: FlowResult<R> }
  | {
      readonly resultType: 'input_required'
      /** Empty where the server only asks for a retry. */
      readonly inputRequests: InputRequests
      readonly requestState?: string
    }

/** The call continues as a task. */
export interface RoundTask {
  readonly resultType: 'task'
  readonly task: TaskState
}

/** Runs a call to its end from any round; handlers answer. */
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
    // Nobody else knows this task. One that the caller resumed is the caller's to cancel.
    if (pending.task && !begun.task && !isFromServer(error)) await dropTask(flows.peer, pending.task.taskId)
    throw error
  }
}

/** Errors after which a task has ended, cannot be reached, or continues for a client that reconnects. */
const FROM_SERVER = new Set([
  'PEER_ERROR',
  'PEER_TASK_CANCELLED',
  'PEER_UNREACHABLE',
  'PEER_BUSY',
  'PEER_HTTP',
])

function isFromServer(error: unknown): boolean {
  return error instanceof RondoError && FROM_SERVER.has(error.code)
}

/** Sends rounds until the server asks, makes the call a task or returns the result. A call that is a task is followed. */
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
    const { answers, peer } = flows
    return await fulfil(pending, { answers, peer, signal: time.signal, onAnswer: options.onPending })
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
  const leg = { ...legOf(pending), ...(await taskOf(flows, pending, options)) }
  const pause = pauseOf(pending)
  // A stored call has waited already; one from a machine whose clock is ahead must not wait longer than the pause.
  const wait = Math.min(pause, pending.askedAt + pause - startedAt, deadlineAt - startedAt)
  if (wait > 0) await sleep(peer.clock, wait, options.signal)
  if (peer.clock.now() >= deadlineAt) throw new RondoError('LIMIT_CLIENT_DEADLINE')
  const pushed = createPushedRounds(flows, pending, options, limits)
  const sending = sendOptions(flows, pending, options, limits, deadlineAt)
  const received = await sendLeg(flows, leg, { ...sending, onQuestion: pushed.take })
  if (received.kind === 'error') throw new PeerError(received.error)
  if (received.kind === 'complete') {
    const unasked = options.suspends ? unaskedIn(flows, received.result) : undefined
    if (unasked !== undefined) throw unasked
    return { status: 'complete', result: received.result as unknown as FlowResult<R>, rounds: pushed.rounds }
  }
  if (received.kind === 'task') {
    const now = peer.clock.now()
    return { status: 'task', pending: becomeTask(pending, received.task, now, now - startedAt) }
  }
  const asked = await takeRound(flows, pending, received, { limits, options, startedAt })
  return { status: 'input_required', pending: asked }
}

/** Sends one round with the caller's own state and responses. Questions are vetted, since people may see them. */
export async function sendRound<R extends FlowRequest>(
  flows: Flows,
  begun: PendingCall<R>,
  raw: Pick<FlowLeg, 'inputResponses' | 'requestState'>,
  options: Driving,
): Promise<RoundResult<R> | RoundTask> {
  const { peer } = flows
  const limits = withLimits(options, peer.limits)
  const pushed = createPushedRounds(flows, begun, options, limits)
  const sending = sendOptions(flows, begun, options, limits, Number.POSITIVE_INFINITY)
  const leg = { ...flowCallOf(begun.request), ...raw }
  const received = await sendLeg(flows, leg, { ...sending, onQuestion: pushed.take })
  switch (received.kind) {
    case 'error':
      throw new PeerError(received.error)
    case 'complete': {
      const unasked = unaskedIn(flows, received.result)
      if (unasked !== undefined) throw unasked
      return { resultType: 'complete', result: received.result as unknown as FlowResult<R> }
    }
    case 'task':
      if (flows.tasks !== 'off') return { resultType: 'task', task: toDisplay(received.task) }
      throw new RondoError(
        'PEER_BAD_RESPONSE',
        'The server made this call a task, which the client did not allow',
      )
    case 'input_required': {
      const inputRequests = vetRound(received, limits, options.kinds, options.apps)
      const { state } = received
      return {
        resultType: 'input_required',
        inputRequests,
        ...(state !== undefined && { requestState: state }),
      }
    }
  }
}

/** The messages in which servers of these revisions report that the client did not declare what they need to ask. */
const UNASKED = /cannot be asked|\belicitation\b/i

/**
 * In a session the handshake declares what may be asked, which is nothing without handlers. A server that wants to ask then
 * returns an error as its result, and a caller who waits for a question would take it for the end of the work.
 */
function unaskedIn(
  { peer, answers }: Flows,
  result: Readonly<Record<string, unknown>>,
): RondoError | undefined {
  if (!peer.channel.discovery || result.isError !== true || answerableKinds(answers).has('form'))
    return undefined
  const [first] = Array.isArray(result.content) ? result.content : []
  const text: unknown = isRecord(first) ? first.text : undefined
  if (typeof text !== 'string' || !UNASKED.test(text)) return undefined
  const why = `Nobody can be asked: this session of ${peer.dialect.version} declared no handlers, so the server does not ask. Pass handlers to connect (answers).`
  return new RondoError('INPUT_PENDING', `${why} The server returned: ${cleanText(text, MAX_MESSAGE)}`, {
    data: result,
  })
}

/** The `task` field, in dialects where the client asks for tasks. */
async function taskOf(
  flows: Flows,
  { request }: PendingCall,
  options: Driving,
): Promise<Pick<FlowLeg, 'task'>> {
  if (flows.tasks === 'off' || request.method !== 'tools/call') return {}
  const task = await flows.peer.dialect.tasks.request?.(flows, request.name, options)
  return task === undefined ? {} : { task }
}

const HEADER_MISMATCH = -32020
const METHOD_NOT_FOUND = -32601

/**
 * Sends one request of a call. What is known of the server's tools may be missing or stale: a server that refuses for that
 * reason has done nothing yet, so the tools are listed again, and the request is sent once more if that changes it.
 */
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
  const mayRequest = flows.tasks !== 'off' && peer.dialect.tasks.request !== undefined
  if (received.error.code !== METHOD_NOT_FOUND || leg.task || !mayRequest) return received
  await flows.refreshTools(options)
  if (tools.taskSupport(leg.target) !== 'required') return received
  return peer.send({ ...leg, task: {} }, { ...options, mirrored })
}

/** The options of every request of a call. */
function sendOptions(
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
    capabilities: declare(flows, options, request.method),
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
