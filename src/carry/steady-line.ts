/**
 * One request, many runs: under push the client sees a single call, and every run of its handler tells its past again.
 *
 * S1 Progress only grows over the whole call. S2 While the call waits, a sign of life is progress too: a hair more than
 * the last, so that clocks start anew and the handler's own next report still counts.
 */

import type { Line } from '../protocol/call.ts'

export interface SteadyLine extends Line {
  /** The last progress that was told. */
  readonly told: number | undefined
  /** Progress that says no more than that the call is alive, for a client that asked for progress. */
  sign(message: string): void
}

const HAIR = 1e-6
/** Where a hair is lost in the rounding, this part of the number is not. */
const SMALLEST_PART = 1e-12

/** The smallest progress after this one that every client takes for more. */
export function justAbove(progress: number): number {
  return progress + Math.max(HAIR, Math.abs(progress) * SMALLEST_PART)
}

/** `before` is the last progress that another instance told. */
export function steadyLine(
  line: Line,
  progressToken: string | number | undefined,
  before?: number,
): SteadyLine {
  let last = before

  return {
    get told() {
      return last
    },
    get closed() {
      return line.closed
    },
    onClose: (listener) => line.onClose(listener),
    notify(method, params) {
      if (method === 'notifications/progress') {
        const progress = params.progress as number
        if (last !== undefined && !(progress > last)) return
        last = progress
      }
      line.notify(method, params)
    },
    sign(message) {
      if (progressToken === undefined) return
      last = last === undefined ? 0 : justAbove(last)
      line.notify('notifications/progress', { progressToken, progress: last, message })
    },
  }
}
