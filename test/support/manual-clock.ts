/** A clock that stands still until a test moves it. */

import type { Clock } from '../../packages/rondo/src/client.ts'

export interface ManualClock extends Clock {
  /** Advances the clock; runs what is due, in order. */
  advance(ms: number): void
  /** Waits until a timer of `ms` is set, then advances the clock by as much. */
  elapse(ms: number): Promise<void>
  /** The number of timers that are set. */
  readonly open: number
}

interface Timer {
  readonly at: number
  readonly ms: number
  readonly run: () => void
}

export function createManualClock(start = 1_000_000): ManualClock {
  let time = start
  let timers: Timer[] = []
  let watchers: { readonly ms: number; readonly found: () => void }[] = []
  const clock: ManualClock = {
    now: () => time,
    after(ms, run) {
      const timer = { at: time + ms, ms, run }
      timers.push(timer)
      for (const watcher of watchers.filter((one) => one.ms === ms)) watcher.found()
      watchers = watchers.filter((one) => one.ms !== ms)
      return () => {
        timers = timers.filter((one) => one !== timer)
      }
    },
    advance(ms) {
      const end = time + ms
      for (;;) {
        const due = timers.filter((one) => one.at <= end).sort((a, b) => a.at - b.at)[0]
        if (due === undefined) break
        time = Math.max(time, due.at)
        timers = timers.filter((one) => one !== due)
        due.run()
      }
      time = end
    },
    async elapse(ms) {
      if (!timers.some((one) => one.ms === ms)) {
        await new Promise<void>((found) => watchers.push({ ms, found }))
      }
      clock.advance(ms)
    },
    get open() {
      return timers.length
    },
  }
  return clock
}
