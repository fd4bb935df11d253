import type { StoreClock } from '../../../packages/rondo/src/lib/clock.ts'
import { createManualClock } from '../manual-clock.ts'

export interface EngineClock extends StoreClock {
  /** Advances in small steps, and lets everything that becomes due run to its end. */
  pass(ms: number): Promise<void>
}

/** A manual clock for an engine over the in-memory store. */
export function createEngineClock(): EngineClock {
  const manual = createManualClock()
  return {
    now: manual.now,
    elapsed: manual.now,
    after: (ms, fn) => manual.after(ms, fn),
    idly: (ms, fn) => manual.after(ms, fn),
    async pass(ms) {
      await settle()
      for (let left = ms; left > 0; left -= 50) {
        manual.advance(Math.min(50, left))
        await settle()
      }
    },
  }
}

/** Everything here happens in microtasks; two turns of the event loop are more than enough. */
async function settle(): Promise<void> {
  for (let i = 0; i < 2; i++) await new Promise((resolve) => setImmediate(resolve))
}
