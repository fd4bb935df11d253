/**
 * Follows a call that became a task: hands over the answers it has, then waits until the task asks or has ended.
 *
 * F1 Answers go out before anything is waited for, and a key whose answer the server has is never shown again (E3); in
 * the draft a key that stays open was not answered usefully, and is shown again (D6). F2 A
 * failed task is the server's error, a cancelled one an error of its own, and a completed one the result. F3 Waiting is
 * work: it counts against the deadline, while the time people take does not. F4 To stop waiting does not end the task.
 * F5 At 2025-11-25 a task that asks is waited for: its questions are pushed meanwhile, and handlers answer them.
 */

import { RondoError } from '../../errors.ts'
import { sleep } from '../../lib/clock.ts'
import type { TaskState } from '../../protocol/task.ts'
import type { InputResponses } from '../../protocol/wire.ts'
import {
  type DriveResult,
  type Driving,
  declare,
  type Flows,
  type Limits,
  withLimits,
} from '../flow-options.ts'
import { deadlineOf, delivered, deliveryOf } from '../operation.ts'
import { type Leg, openLeg, type Peer, PeerError, type SendOptions } from '../peer.ts'
import type { FlowRequest, FlowResult, PendingCall, PendingTask } from '../pending.ts'
import { answerableKinds } from '../question.ts'
import { createPushedRounds, type PushedRounds, takeRound } from '../round.ts'
import { guard } from '../transport/transport.ts'
import { getTask, updateTask, withContent } from './request.ts'
import { isPassing, MAX_LOST, watchTask } from './watch.ts'

export async function followTask<R extends FlowRequest>(
  flows: Flows,
  begun: PendingCall<R>,
  task: PendingTask,
  options: Driving,
): Promise<DriveResult<R>> {
  const { peer } = flows
  const answers = deliveryOf(begun)
  const limits = withLimits(options, peer.limits)
  const startedAt = peer.clock.now()
  const deadlineAt = deadlineOf(begun, limits, startedAt)
  const outer = options.signal ? AbortSignal.any([options.signal, peer.closed]) : peer.closed
  const { countHumanTime } = limits
  const time = openLeg(peer.clock, { timeoutMs: Number.POSITIVE_INFINITY, deadlineAt, countHumanTime }, outer)
  const sending = toSending(flows, options, limits, time)
  let leave = () => {}
  try {
    if (answers) await deliverAnswers(peer, task, answers, { ...sending, requestState: begun.state })
    const isFinal = peer.dialect.tasks === 'declared'
    const pending = delivered(begun, task, isFinal)
    if (answers) await options.onPending?.(pending)
    const pushed = pausing(createPushedRounds(flows, pending, options, limits), time)
    leave = follow(flows, task, time, pushed)
    const told = await waitForTask(flows, pending, options, sending, pushed)
    if ('status' in told) return told
    const round = { limits, options, startedAt }
    const asked = await takeRound(flows, told.pending, told, round)
    await options.onPending?.(asked)
    return { status: 'input_required', pending: asked }
  } finally {
    leave()
    time.end()
  }
}

/** A server may push the questions of a task on any stream, also while nobody looks at it. */
function follow(
  { peer, answers }: Flows,
  { taskId }: PendingTask,
  leg: Leg,
  { take }: PushedRounds,
): () => void {
  const pushes = peer.dialect.tasks === 'pushed' && answerableKinds(answers).size > 0
  return (pushes && peer.session?.follow({ leg, task: taskId, onQuestion: take })) || (() => {})
}

/** Tasks have neither progress nor logs. */
function toSending(
  flows: Flows,
  { kinds, trace }: Driving,
  { timeoutMs }: Limits,
  { signal }: Leg,
): SendOptions & { readonly signal: AbortSignal } {
  return { signal, timeoutMs, capabilities: declare(flows, kinds, 'tools/call'), trace }
}

interface Asking<R extends FlowRequest> {
  readonly pending: PendingCall<R>
  readonly questions: NonNullable<TaskState['inputRequests']>
  readonly state?: string
}

/** Looks until there is a result or a question that was not answered yet. */
async function waitForTask<R extends FlowRequest>(
  flows: Flows,
  pending: PendingCall<R>,
  options: Driving,
  sending: SendOptions & { readonly signal: AbortSignal },
  pushed: PushedRounds,
): Promise<Asking<R> | Extract<DriveResult<R>, { status: 'complete' }>> {
  const { task } = pending
  if (task === undefined) throw new TypeError('This call is not a task')
  // Only where the server decides about tasks does it also tell of them.
  const mode = flows.peer.dialect.tasks === 'declared' ? flows.tasks : 'poll'
  const watch = watchTask(flows.peer, task, { mode, random: flows.random, sending })
  const tell = createTeller(flows, options)
  try {
    for (;;) {
      const seen = await watch.next()
      tell(seen)
      const state = isPushing(flows, seen) ? await awaitPushed(flows, seen, options, sending, pushed) : seen
      if (state.status === 'completed') {
        tell(state)
        return { status: 'complete', result: state.result as unknown as FlowResult<R>, rounds: pushed.rounds }
      }
      assertGoesOn(state)
      const fresh = Object.entries(state.inputRequests ?? {}).filter(([key]) => !task.answered.includes(key))
      if (state.status !== 'input_required' || fresh.length === 0) continue
      const { pollIntervalMs = task.pollIntervalMs } = state
      const kept = { ...pending, task: { ...task, pollIntervalMs, lookedAt: watch.lookedAt } }
      return { pending: kept, questions: Object.fromEntries(fresh), state: state.requestState }
    }
  } finally {
    watch.close()
  }
}

function isPushing({ peer }: Flows, { status }: TaskState): boolean {
  return peer.dialect.tasks === 'pushed' && status === 'input_required'
}

/** Waits for the result while the questions come. Where that takes long, the task is looked at again. */
async function awaitPushed(
  { peer, answers }: Flows,
  state: TaskState,
  { suspends }: Driving,
  sending: SendOptions,
  { take }: PushedRounds,
): Promise<TaskState> {
  if (answerableKinds(answers).size === 0) {
    const why = `at ${peer.dialect.version} nobody sees its questions but who answers them at once: give a handler`
    throw new RondoError(suspends ? 'INPUT_PENDING' : 'INPUT_NO_HANDLER', `The task asks, and ${why}`)
  }
  try {
    const after = await withContent(peer, state, { ...sending, onQuestion: take })
    if (after.status !== 'failed') return after
    // The wait may have failed, not the task.
    const now = await getTask(peer, state.taskId, sending)
    if (now.status !== 'input_required') return now
    const why = `The task asks, and its questions did not come: ${after.error?.message ?? 'no reason was given'}`
    throw new RondoError('INPUT_PENDING', why)
  } catch (error) {
    if (!isPassing(error) || sending.signal?.aborted) throw error
    return { ...state, status: 'working' }
  }
}

/** The time people take does not count against the deadline. */
function pausing(pushed: PushedRounds, time: Leg): PushedRounds {
  return {
    get rounds() {
      return pushed.rounds
    },
    async take(question, signal) {
      const goOn = time.pause()
      try {
        return await pushed.take(question, signal)
      } finally {
        goOn()
      }
    },
  }
}

function assertGoesOn({ status, error, statusMessage }: TaskState): void {
  if (status === 'cancelled') throw new RondoError('PEER_TASK_CANCELLED', statusMessage)
  if (status === 'failed') throw new PeerError(error ?? { code: 0, message: 'The task failed' })
}

/** Tells the caller of each change once. A callback that throws breaks nothing. */
function createTeller({ peer }: Flows, { onTask }: Driving): (state: TaskState) => void {
  let last = ''
  return (state) => {
    const { status, statusMessage, lastUpdatedAt } = state
    const now = JSON.stringify([status, statusMessage, lastUpdatedAt])
    if (now === last) return
    last = now
    void guard(
      () => onTask?.(state),
      (error) => peer.onWarning(`A callback for a task threw: ${String(error)}`),
    )
  }
}

/*
 * Hands answers to a task, and again while its server is away: the task outlives that, and whoever answered need not answer
 * twice. Doing it twice does no harm, for the first answer to a key counts (E3).
 */

const SHORTEST_MS = 50

async function deliverAnswers(
  peer: Peer,
  { taskId, pollIntervalMs }: PendingTask,
  answers: InputResponses,
  sending: SendOptions & { readonly signal: AbortSignal; readonly requestState?: string },
): Promise<void> {
  for (let lost = 0; ; lost++) {
    try {
      return await updateTask(peer, taskId, answers, sending)
    } catch (error) {
      if (!isPassing(error) || lost >= MAX_LOST || sending.signal.aborted) throw error
    }
    await sleep(peer.clock, Math.max(SHORTEST_MS, pollIntervalMs) * 2 ** lost, sending.signal)
  }
}
