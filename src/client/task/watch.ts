/**
 * Waits for the next state of a task. Polling is authoritative: never sooner than the server's interval after the last
 * poll, with jitter so that many clients do not poll at once. Where the server notifies of changes, polls become rare, and
 * a notification counts like a poll.
 */

import { sleep } from '../../lib/clock.ts'

import type { TaskMode } from '../flow-options.ts'
import type { Peer, SendOptions } from '../peer.ts'
import type { PendingTask } from '../pending.ts'
import { subscribe } from '../subscribe.ts'
import type { ResponseHead } from '../transport/transport.ts'
import { getTask, isTransient, type SeenTask, toDisplay } from './strategy.ts'

interface TaskWatcher {
  /** The next state that was polled or notified. Rejects when the signal is aborted. */
  next(): Promise<SeenTask>
  /** When the server was last polled. */
  readonly lookedAt: number
  close(): void
}

export interface WatchOptions {
  readonly mode: TaskMode
  readonly random: () => number
  readonly sending: SendOptions & { readonly signal: AbortSignal }
}

const SHORTEST_MS = 50
const LONGEST_MS = 3_600_000
/** The factor between polls while the server sends notifications. */
const RARER = 10
const JITTER = 0.1
/** How many requests in a row may fail: the task survives a restart of its server, and so does following it. */
export const MAX_FAILURES = 5
const WOKEN = Symbol('woken')

export function watchTask(
  peer: Peer,
  task: PendingTask,
  { mode, random, sending }: WatchOptions,
): TaskWatcher {
  const { taskId } = task
  const stop = new AbortController()
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
      asked = /^\d{1,9}$/.test(retryAfter ?? '') ? Number(retryAfter) * 1000 : undefined
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
  const listen = async (): Promise<void> => {
    const signal = AbortSignal.any([sending.signal, stop.signal])
    // A notification contains only questions of the kinds that this request declares.
    const { capabilities } = sending
    const subscription = subscribe(peer, { taskIds: [taskId] }, { signal, capabilities })
    const { taskIds = [] } = await subscription.filter
    if (!taskIds.includes(taskId)) return subscription.close()
    live = true
    for await (const change of subscription) {
      if (change.kind !== 'task' || change.task.taskId !== taskId) continue
      notified = toDisplay(change.task)
      wake()
    }
  }
  if (mode === 'listen') {
    // Without a subscription the task is polled at the server's interval.
    listen()
      .catch(() => {})
      .finally(() => {
        live = false
        wake()
      })
  }
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
    close: () => stop.abort(),
  }
}
