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
}

export interface Leg {
  readonly signal: AbortSignal
  /** The server showed that it is at work. */
  touch(): void
  /** From now on the request may take as long as it likes: a subscription that stands. */
  relax(): void
  abort(reason: unknown): void
  /** The request is over; stops the clock. */
  end(): void
}

export function openLeg(clock: Clock, times: LegTimes, outer?: AbortSignal): Leg {
  const { timeout, deadlineAt = Number.POSITIVE_INFINITY } = times
  const controller = new AbortController()
  const giveUp = () => controller.abort(outer?.reason)
  let stop = () => {}
  const touch = () => {
    stop()
    const left = Math.max(0, deadlineAt - clock.now())
    // Decided here and not when the time is up: timers may fire a little before it.
    const reason = () =>
      left <= timeout
        ? new RondoError('LIMIT_CLIENT_DEADLINE')
        : new RondoError('LIMIT_CLIENT_TIMEOUT', `The server did not answer within ${timeout} ms`)
    const ms = Math.min(timeout, left)
    if (ms < Number.POSITIVE_INFINITY) stop = clock.after(ms, () => controller.abort(reason()))
  }
  if (outer?.aborted) giveUp()
  else {
    outer?.addEventListener('abort', giveUp, { once: true })
    touch()
  }
  return {
    signal: controller.signal,
    touch,
    relax: () => stop(),
    abort: (reason) => controller.abort(reason),
    end() {
      stop()
      outer?.removeEventListener('abort', giveUp)
    },
  }
}
