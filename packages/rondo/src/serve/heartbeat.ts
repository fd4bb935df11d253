/**
 * Calls that take long: their heartbeat, and the log line of a slow handler. Hosts and proxies abandon a request that is
 * silent for a minute, some even before its first byte.
 *
 * beat 1 A heartbeat is due only after a whole interval without anything else. beat 2 It is progress if the client sent a
 * token, since progress restarts the timeouts of clients, and a comment of the stream otherwise. beat 3 Progress only
 * grows: a heartbeat is slightly above the last value, and what the handler reports later still counts. beat 4 While the
 * store does not respond, a response that has not begun waits for it, up to half a minute: if the store fails, the status
 * says so.
 *
 * One timer watches all calls of an entrance. It ticks four times per interval and counts from the first tick that sees
 * a call, so a call that ends quickly costs nothing, and a heartbeat is late by a quarter of its interval at most.
 */

import { placeOf, subjectOf } from '../carry/carrier.ts'
import type { FlowHost, RunningRound } from '../carry/host.ts'
import type { Every } from '../lib/clock.ts'
import type { SlowHandlers, WatchedCall } from './port.ts'

/** Starts to watch; ends by itself, and then calls `onIdle`, as soon as there are no calls. */
export type Watch = (calls: () => Iterable<WatchedCall>, onIdle?: () => void) => void

/** Returns nothing if slow handlers are not logged. Rounds of tasks and of mounted servers count too. */
export function createSlowHandlers({
  running,
  limits: { slowHandlerMs },
  platform,
  log,
}: Pick<FlowHost, 'running' | 'limits' | 'platform' | 'log'>): SlowHandlers | undefined {
  if (slowHandlerMs === 0) return undefined
  const logged = new WeakSet<RunningRound>()
  return {
    everyMs: Math.min(slowHandlerMs / TICKS, MAX_INTERVAL),
    check() {
      for (const round of running) {
        const ms = platform.now() - round.began
        if (ms < slowHandlerMs || logged.has(round)) continue
        logged.add(round)
        log({ event: 'slow', ...placeOf(round), ...subjectOf(round), ms })
      }
    },
  }
}

export interface WatchSettings {
  /** How long a call may be silent before it shows that it is alive; 0 for never. */
  readonly heartbeatMs: number
  readonly slow?: SlowHandlers
  /** Whether the store does not respond. */
  readonly isStuck?: () => boolean
  readonly every: Every
  readonly onError: (error: unknown) => void
}

const TICKS = 4

/** Half of what hosts and proxies give a request. */
const MAX_WAIT_MS = 30_000

/** Returns nothing if there is nothing to watch for. */
export function createWatch({
  heartbeatMs,
  slow,
  isStuck,
  every,
  onError,
}: WatchSettings): Watch | undefined {
  const intervals = [heartbeatMs / TICKS, slow?.everyMs ?? 0].filter((ms) => ms > 0)
  if (intervals.length === 0) return undefined
  const tickMs = Math.min(...intervals)
  /** True if an interval of `ms` ends with this tick. */
  const isDue = (age: number, ms: number): boolean =>
    ms > 0 && Math.floor((age * tickMs) / ms) > Math.floor(((age - 1) * tickMs) / ms)

  const waits = (line: NonNullable<WatchedCall['line']>, age: number): boolean =>
    line.begun === false && age * tickMs < MAX_WAIT_MS && isStuck?.() === true
  const check = (one: WatchedCall, age: number): void => {
    if (one.line && waits(one.line, age)) return
    if (isDue(age, heartbeatMs)) one.line?.beat(one.call?.progressToken)
  }

  return (calls, onIdle) => {
    /** Ticks since a call was first seen. */
    let ages = new Map<WatchedCall, number>()
    const stop = every(tickMs, () => {
      const next = new Map<WatchedCall, number>()
      for (const one of calls()) {
        const age = (ages.get(one) ?? -1) + 1
        next.set(one, age)
        try {
          if (age > 0) check(one, age)
        } catch (error) {
          onError(error)
        }
      }
      ages = next
      slow?.check()
      if (next.size > 0) return
      stop()
      onIdle?.()
    })
  }
}

/** A longer timer would fire at once. */
export const MAX_INTERVAL: number = 2 ** 31 - 1

const DECIMALS = 6
/** From here on a step of the last decimal is lost in rounding, and the step grows with the number. */
const LARGE = 10 ** DECIMALS
const DIGITS = 2 * DECIMALS + 1

/** The smallest progress that every client accepts as more than this one, with few digits: hosts show it to people. */
function justAbove(progress: number): number {
  const size = Math.abs(progress)
  if (size < LARGE) return Number((progress + 1 / LARGE).toFixed(DECIMALS))
  return Number((progress + size / LARGE ** 2).toPrecision(DIGITS))
}

/** The messages that one call has sent so far, as far as its heartbeat needs them. */
export class Pulse {
  #spoke = false
  #progress: number | undefined

  /** `progress` is the last progress that another instance reported. */
  constructor(progress?: number) {
    this.#progress = progress
  }

  /** Records a notification of the call; returns its parameters as they are to be sent. */
  say(method: string, params: Record<string, unknown>): Record<string, unknown> {
    this.#spoke = true
    if (method !== 'notifications/progress') return params
    const reported = params.progress as number
    const progress =
      this.#progress === undefined || reported > this.#progress ? reported : justAbove(this.#progress)
    this.#progress = progress
    return progress === reported ? params : { ...params, progress }
  }

  /** True if nothing was said since this was last called. */
  isQuiet(): boolean {
    const quiet = !this.#spoke
    this.#spoke = false
    return quiet
  }

  /** Progress that says only that the call is alive. */
  beat(progressToken: string | number): Record<string, unknown> {
    this.#progress = this.#progress === undefined ? 0 : justAbove(this.#progress)
    return { progressToken, progress: this.#progress }
  }
}
