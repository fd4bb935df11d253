/**
 * The time of one request. Its signal is aborted when the request took too long, when the whole call did, or when the
 * caller gave up; progress starts the first of these anew, never the second.
 */

import { RondoError } from '../errors.ts'
import type { Clock } from './clock.ts'

export interface LegTimes {
  /** Milliseconds for this request. */
  readonly timeout: number
  /** When the whole call must be over, if there is such a time. */
  readonly deadlineAt?: number
  /** Whether the deadline goes on while somebody is asked. */
  readonly countHumanTime?: boolean
}

export interface Leg {
  readonly signal: AbortSignal
  /** The server showed that it is at work. */
  touch(): void
  /** Somebody is being asked: the time does not count until the function it gives is called. */
  pause(): () => void
  /** From now on the request may take as long as it likes: a subscription that stands. */
  relax(): void
  abort(reason: unknown): void
  /** The request is over; stops the clock. */
  end(): void
}

export function openLeg(clock: Clock, times: LegTimes, outer?: AbortSignal): Leg {
  const { timeout, countHumanTime = false } = times
  let deadlineAt = times.deadlineAt ?? Number.POSITIVE_INFINITY
  let pauses = 0
  let pausedAt = 0
  let over = false
  const controller = new AbortController()
  // Many legs may share one signal, and Node warns of more than ten listeners on it.
  const outside = outer && AbortSignal.any([outer])
  const giveUp = () => controller.abort(outside?.reason)
  let stop = () => {}
  const touch = () => {
    stop()
    if (over || (pauses > 0 && !countHumanTime)) return
    const left = Math.max(0, deadlineAt - clock.now())
    const allowed = pauses > 0 ? Number.POSITIVE_INFINITY : timeout
    // Decided here and not when the time is up: timers may fire a little before it.
    const reason = () =>
      left <= allowed
        ? new RondoError('LIMIT_CLIENT_DEADLINE')
        : new RondoError('LIMIT_CLIENT_TIMEOUT', `The server did not answer within ${timeout} ms`)
    const ms = Math.min(allowed, left)
    if (ms < Number.POSITIVE_INFINITY) stop = clock.after(ms, () => controller.abort(reason()))
  }
  const resume = () => {
    pauses -= 1
    if (pauses === 0 && !countHumanTime) deadlineAt += clock.now() - pausedAt
    if (!controller.signal.aborted) touch()
  }
  if (outside?.aborted) giveUp()
  else {
    outside?.addEventListener('abort', giveUp, { once: true })
    touch()
  }
  return {
    signal: controller.signal,
    touch,
    pause() {
      if (pauses === 0) pausedAt = clock.now()
      pauses += 1
      touch()
      return resume
    },
    relax: () => stop(),
    abort: (reason) => controller.abort(reason),
    end() {
      over = true
      stop()
      outside?.removeEventListener('abort', giveUp)
    },
  }
}
