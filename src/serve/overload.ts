/**
 * When an instance has too much to do: the operator's own function, or the delay of its event loop.
 */

import { monitorEventLoopDelay } from 'node:perf_hooks'
import { misuse } from '../errors.ts'
import type { ServerOptions } from './options.ts'

export interface Overload {
  overloaded(): boolean
  close(): void
}

const NEVER: Overload = { overloaded: () => false, close: () => {} }

/** How often the delay is looked at; in between, the last look counts. */
const WINDOW_MS = 250

export function createOverload(
  shed: ServerOptions['shed'],
  now: () => number,
  onError: (error: unknown) => void,
): Overload {
  if (shed === undefined) return NEVER
  if (typeof shed === 'function') return { overloaded: () => asks(shed, onError), close: () => {} }
  const { eventLoopDelayMs } = shed
  if (!(eventLoopDelayMs > 0))
    throw misuse('shed.eventLoopDelayMs must be a positive number of milliseconds.')
  const histogram = monitorEventLoopDelay({ resolution: 10 })
  histogram.enable()
  let seenAt = now()
  let overloaded = false
  return {
    overloaded() {
      if (now() - seenAt >= WINDOW_MS) {
        overloaded = histogram.percentile(90) / 1e6 >= eventLoopDelayMs
        histogram.reset()
        seenAt = now()
      }
      return overloaded
    },
    close: () => histogram.disable(),
  }
}

/** A function that throws sheds nothing, and is reported. */
function asks(shed: () => boolean, onError: (error: unknown) => void): boolean {
  try {
    return shed() === true
  } catch (error) {
    onError(error)
    return false
  }
}
