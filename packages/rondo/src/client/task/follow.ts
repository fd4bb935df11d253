/**
 * Follows a call that became a task: sends the answers it has, then waits until the task asks or has ended.
 *
 * follow 1: Answers are sent before anything is awaited, and a key that the server has the answer to is never shown again
 * (E3); in the draft a key that stays open was not answered usefully, and is shown again (D6).
 * follow 2: A failed task throws the server's error, a cancelled one PEER_TASK_CANCELLED; a completed one returns its result.
 * follow 3: Waiting counts against the deadline; the time people take does not.
 * follow 4: To stop waiting does not cancel the task.
 * follow 5: Questions that are pushed while the task is followed are answered by handlers.
 */

import { RondoError } from '../../errors.ts'
import { cleanText } from '../../form/clean-text.ts'
import { sleep } from '../../lib/clock.ts'
import type { TaskState } from '../../protocol/reply.ts'
import type { InputResponses } from '../../protocol/wire.ts'
import type { DriveResult, TaskMode } from '../flow-options.ts'
import { type Limits, withLimits } from '../limits.ts'
import { MAX_MESSAGE, openLeg, PeerError } from '../peer.ts'
import {
  deadlineOf,
  delivered,
  deliveryOf,
  type FlowRequest,
  type FlowResult,
  type PendingCall,
  type PendingTask,
} from '../pending.ts'
import type { Driving, Flows, Leg, Peer, PushedRounds, SeenTask, SendOptions, TaskStreams } from '../port.ts'
import { createPushedRounds, declare, takeRound } from '../round.ts'
import { guard, type ResponseHead } from '../transport/transport.ts'
import { getTask, isTransient, toDisplay } from './strategy.ts'

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
    const pending = delivered(begun, task, peer.dialect.tasks.answersAreFinal)
    if (answers) await options.onPending?.(pending)
    const pushed = pausing(createPushedRounds(flows, pending, options, limits), time)
    // The server may push questions on any stream, also between two polls.
    leave = peer.dialect.tasks.follow?.(flows, task.taskId, time, pushed) ?? leave
    const news = await waitForTask(flows, pending, options, sending, pushed)
    if ('status' in news) return news
    const asked = await takeRound(flows, news.pending, news, { limits, options, startedAt })
    await options.onPending?.(asked)
    return { status: 'input_required', pending: asked }
  } finally {
    leave()
    time.end()
  }
}

/** Tasks have neither progress nor logs. */
function toSending(
  flows: Flows,
  options: Driving,
  { timeoutMs }: Limits,
  { signal }: Leg,
): SendOptions & { readonly signal: AbortSignal } {
  return { signal, timeoutMs, capabilities: declare(flows, options, 'tools/call'), trace: options.trace }
}

interface Asking<R extends FlowRequest> {
  readonly pending: PendingCall<R>
  readonly questions: NonNullable<TaskState['inputRequests']>
  readonly state?: string
}

/** Waits until there is a result or a question that was not answered yet. */
async function waitForTask<R extends FlowRequest>(
  flows: Flows,
  pending: PendingCall<R>,
  options: Driving,
  sending: SendOptions & { readonly signal: AbortSignal },
  pushed: PushedRounds,
): Promise<Asking<R> | Extract<DriveResult<R>, { status: 'complete' }>> {
  const { task } = pending
  if (task === undefined) throw new TypeError('This call is not a task')
  const { tasks } = flows.peer.dialect
  const mode = tasks.notifies ? flows.tasks : 'poll'
  const { random, streams } = flows
  const watch = watchTask(flows.peer, task, { mode, streams, random, sending })
  const report = createReporter(flows, options)
  try {
    for (;;) {
      const seen = await watch.next()
      report(seen)
      const asks = seen.status === 'input_required'
      const state = (asks && (await tasks.awaitPushed?.(flows, seen, options, sending, pushed))) || seen
      if (state.status === 'completed') {
        report(state)
        return { status: 'complete', result: state.result as unknown as FlowResult<R>, rounds: pushed.rounds }
      }
      assertNotFailed(state)
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

/** The time people take does not count against the deadline. */
function pausing(pushed: PushedRounds, time: Leg): PushedRounds {
  return {
    get rounds() {
      return pushed.rounds
    },
    async take(question, signal) {
      const resume = time.pause()
      try {
        return await pushed.take(question, signal)
      } finally {
        resume()
      }
    },
  }
}

function assertNotFailed({ status, error, statusMessage }: TaskState): void {
  if (status === 'cancelled')
    throw new RondoError(
      'PEER_TASK_CANCELLED',
      statusMessage && cleanText(statusMessage, MAX_MESSAGE, 'many'),
    )
  if (status === 'failed') throw new PeerError(error ?? { code: 0, message: 'The task failed' })
}

/** Reports each change to the caller once. A callback that throws breaks nothing. */
function createReporter({ peer }: Flows, { onTask }: Driving): (state: TaskState) => void {
  let last = ''
  return (state) => {
    const { status, statusMessage, lastUpdatedAt } = state
    const now = JSON.stringify([status, statusMessage, lastUpdatedAt])
    if (now === last) return
    last = now
    void guard(
      () => onTask?.(state),
      (error) => peer.onWarning(`onTask threw: ${String(error)}`),
    )
  }
}

/** Sends answers to a task, and retries while its server is away: the first answer to a key counts (E3). */
async function deliverAnswers(
  peer: Peer,
  { taskId, pollIntervalMs }: PendingTask,
  answers: InputResponses,
  sending: SendOptions & { readonly signal: AbortSignal; readonly requestState?: string },
): Promise<void> {
  for (let failures = 0; ; failures++) {
    try {
      return await peer.dialect.tasks.answer(peer, taskId, answers, sending)
    } catch (error) {
      if (!isTransient(error) || failures >= MAX_FAILURES || sending.signal.aborted) throw error
    }
    const wait = Math.min(LONGEST_MS, Math.max(SHORTEST_MS, pollIntervalMs) * 2 ** failures)
    await sleep(peer.clock, wait, sending.signal)
  }
}

// Waits for the next state of a task. Polling is authoritative: never sooner than the server's interval after the last
// poll, with jitter so that many clients do not poll at once. Where the server notifies of changes, polls become rare, and
// a notification counts like a poll.

interface TaskWatcher {
  /** The next state that was polled or notified. Rejects when the signal is aborted. */
  next(): Promise<SeenTask>
  /** When the server was last polled. */
  readonly lookedAt: number
  close(): void
}

export interface WatchOptions {
  readonly mode: TaskMode
  readonly streams: TaskStreams
  readonly random: () => number
  readonly sending: SendOptions & { readonly signal: AbortSignal }
}

const SHORTEST_MS = 50
const LONGEST_MS = 3_600_000
/** The factor between polls while the server sends notifications. */
const RARER = 10
const JITTER = 0.1
/** How many requests in a row may fail: the task survives a restart of its server, and so does following it. */
const MAX_FAILURES = 5
const WOKEN = Symbol('woken')

/** `Retry-After` in ms: seconds, or a date. Undefined for anything else. */
function toWaitMs(retryAfter: string | null | undefined, now: number): number | undefined {
  if (!retryAfter) return undefined
  if (/^\d+$/.test(retryAfter)) return Number(retryAfter) * 1000
  const at = /^\w{3}, .{20,30} GMT$/.test(retryAfter) ? Date.parse(retryAfter) : Number.NaN
  return Number.isNaN(at) ? undefined : Math.max(0, at - now)
}

function watchTask(
  peer: Peer,
  task: PendingTask,
  { mode, streams, random, sending }: WatchOptions,
): TaskWatcher {
  const { taskId } = task
  let interval = task.pollIntervalMs
  // The time may come from a machine whose clock is ahead.
  let lookedAt = Math.min(task.lookedAt, peer.clock.now())
  let polls = 0
  let chance = random()
  let failures = 0
  /** When the server wants to be polled again, according to `Retry-After`. */
  let notBefore = 0
  let notified: SeenTask | undefined
  let live = false
  let wake = () => {}

  const pause = (): number => {
    const rarer = live && polls > 0 ? RARER : 1
    const backoff = 2 ** failures
    const wanted = Math.max(SHORTEST_MS, interval) * rarer * backoff * (1 + JITTER * chance)
    return Math.min(LONGEST_MS, wanted)
  }
  const rest = async (ms: number): Promise<void> => {
    const woken = new AbortController()
    wake = () => woken.abort(WOKEN)
    await sleep(peer.clock, ms, AbortSignal.any([sending.signal, woken.signal])).catch((reason) => {
      if (reason !== WOKEN) throw reason
    })
  }
  const poll = async (): Promise<SeenTask | undefined> => {
    lookedAt = peer.clock.now()
    polls += 1
    chance = random()
    let asked: number | undefined
    const onHead = ({ retryAfter }: ResponseHead): void => {
      asked = toWaitMs(retryAfter, peer.clock.now())
    }
    try {
      const state = await getTask(peer, taskId, { ...sending, onHead })
      failures = 0
      return state
    } catch (error) {
      failures += 1
      if (!isTransient(error) || failures > MAX_FAILURES || sending.signal.aborted) throw error
      return undefined
    } finally {
      notBefore = asked === undefined ? 0 : peer.clock.now() + Math.min(asked, LONGEST_MS)
    }
  }
  const follower = {
    taskId,
    changed(state: TaskState) {
      notified = toDisplay(state)
      wake()
    },
    live(isLive: boolean) {
      live = isLive
      wake()
    },
  }
  // Without a stream the task is polled at the server's interval.
  const leave = mode === 'listen' ? streams.follow(follower, sending.capabilities) : () => {}
  return {
    async next() {
      for (;;) {
        sending.signal.throwIfAborted()
        const wait = Math.max(lookedAt + pause(), notBefore) - peer.clock.now()
        if (notified === undefined && wait > 0) await rest(wait)
        else {
          const state = notified ?? (await poll())
          notified = undefined
          interval = state?.pollIntervalMs ?? interval
          if (state !== undefined) return state
        }
      }
    },
    get lookedAt() {
      return lookedAt
    },
    close: leave,
  }
}
