/**
 * A call that works in silence shows that it is alive: hosts and proxies give up on a request of which they hear nothing
 * for a minute, and some do even before the first byte.
 *
 * beat 1 A beat is due only after a whole interval without anything else. beat 2 It is progress where the client gave a token,
 * since that starts the clocks of clients anew, and a comment of the stream otherwise. beat 3 Progress only grows: a beat is a
 * hair more than the last, and what the handler reports later still counts.
 */

import { justAbove } from '../carry/push.ts'
import { misuse } from '../errors.ts'
import type { Every } from '../lib/clock.ts'

export interface BeatOptions {
  /** How long a call may be silent before it shows that it is alive; 0 for never. */
  readonly heartbeatMs: number
  readonly every: Every
}

export const HEARTBEAT_MS = 5_000

/** A timer takes no more, and would fire at once. */
const MAX_INTERVAL = 2 ** 31 - 1

export function assertInterval(name: string, value: unknown, least: 0 | 1): void {
  if (value === undefined || (typeof value === 'number' && value >= least && value <= MAX_INTERVAL)) return
  const off = least === 0 ? ', or 0 for never' : ''
  throw misuse(`${name} must be a number of milliseconds from 1 to ${MAX_INTERVAL}${off}.`)
}

/** Calls `beat` at every interval until it returns false, or until the function this returns is called. */
export function startBeating({ heartbeatMs, every }: BeatOptions, beat: () => boolean): () => void {
  if (heartbeatMs === 0) return () => {}
  const stop = every(heartbeatMs, () => {
    if (!beat()) stop()
  })
  return stop
}

/** What one call has said so far, as far as its beats need it. */
export class Pulse {
  #spoke = false
  #progress: number | undefined

  /** The call says something: the parameters as they go out. */
  say(method: string, params: Record<string, unknown>): Record<string, unknown> {
    this.#spoke = true
    if (method !== 'notifications/progress') return params
    const told = params.progress as number
    const progress = this.#progress === undefined || told > this.#progress ? told : justAbove(this.#progress)
    this.#progress = progress
    return progress === told ? params : { ...params, progress }
  }

  /** True if nothing was said since it was asked last. */
  isQuiet(): boolean {
    const quiet = !this.#spoke
    this.#spoke = false
    return quiet
  }

  /** Progress that says no more than that the call is alive. */
  beat(progressToken: string | number): Record<string, unknown> {
    this.#progress = this.#progress === undefined ? 0 : justAbove(this.#progress)
    return { progressToken, progress: this.#progress }
  }
}
