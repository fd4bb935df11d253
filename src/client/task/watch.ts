/**
 * Waits for news of one task. Looking is the truth: never sooner than the server's interval after the last look, and a
 * little later by chance, so that many clients do not come at once. Where the server tells of changes itself, looks
 * become rare; what it tells is taken as if it had been looked at.
 */

import { RondoError } from '../../errors.ts'
import { sleep } from '../../lib/clock.ts'
import type { TaskState } from '../../protocol/task.ts'
import type { TaskMode } from '../flow-options.ts'
import type { Peer, SendOptions } from '../peer.ts'
import type { PendingTask } from '../pending.ts'
import { subscribe } from '../subscribe.ts'
import { getTask, toShown } from './request.ts'

export interface TaskWatch {
  /** The next state that was told or seen. Rejects when the signal fires. */
  next(): Promise<TaskState>
  /** When the server was last looked at. */
  readonly lookedAt: number
  close(): void
}

export interface Watching {
  readonly mode: TaskMode
  readonly random: () => number
  readonly sending: SendOptions & { readonly signal: AbortSignal }
}

const SHORTEST_MS = 50
const LONGEST_MS = 3_600_000
/** How much rarer looks become while the server tells by itself. */
const RARER = 10
const JITTER = 0.1
/** How often in a row a request may not get through: the task outlives a restart of its server, and so do we. */
export const MAX_LOST = 5
const WOKEN = Symbol('woken')

export function watchTask(peer: Peer, task: PendingTask, { mode, random, sending }: Watching): TaskWatch {
  const { taskId } = task
  const stop = new AbortController()
  let interval = task.pollIntervalMs
  // A clock that is ahead elsewhere must not make us wait longer than others.
  let lookedAt = Math.min(task.lookedAt, peer.clock.now())
  let looks = 0
  let chance = random()
  let lost = 0
  let told: TaskState | undefined
  let live = false
  let wake = () => {}

  const pause = (): number => {
    const rarer = live && looks > 0 ? RARER : 1
    const backoff = 2 ** lost
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
  const look = async (): Promise<TaskState | undefined> => {
    lookedAt = peer.clock.now()
    looks += 1
    chance = random()
    try {
      const state = await getTask(peer, taskId, sending)
      lost = 0
      return state
    } catch (error) {
      lost += 1
      if (!isPassing(error) || lost > MAX_LOST || sending.signal.aborted) throw error
      return undefined
    }
  }
  const listen = async (): Promise<void> => {
    const signal = AbortSignal.any([sending.signal, stop.signal])
    const subscription = subscribe(peer, { taskIds: [taskId] }, { signal })
    const { taskIds = [] } = await subscription.filter
    if (!taskIds.includes(taskId)) return subscription.close()
    live = true
    for await (const change of subscription) {
      if (change.kind !== 'task' || change.task.taskId !== taskId) continue
      told = toShown(change.task)
      wake()
    }
  }
  if (mode === 'listen') {
    // A server that does not tell is looked at, as often as it wants to be.
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
        const wait = lookedAt + pause() - peer.clock.now()
        if (told === undefined && wait > 0) await rest(wait)
        else {
          const state = told ?? (await look())
          told = undefined
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

const PASSING = new Set(['PEER_GONE', 'PEER_BUSY', 'LIMIT_CLIENT_TIMEOUT'])

/** The task outlives it. */
export function isPassing(error: unknown): boolean {
  return error instanceof RondoError && PASSING.has(error.code)
}
