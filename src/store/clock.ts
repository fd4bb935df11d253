/** Time as the engine needs it, so that tests can turn it by hand. */

export interface Clock {
  /** Ms since the epoch. */
  now(): number
  /** Ms that never step back, from an arbitrary start. */
  elapsed(): number
  /** Calls `fn` once, `ms` from now; gives a function that prevents it. */
  after(ms: number, fn: () => void): () => void
  /** The same, for what is no reason to keep the process alive. */
  idly(ms: number, fn: () => void): () => void
}

export const systemClock: Clock = {
  now: () => Date.now(),
  elapsed: () => performance.now(),
  after(ms, fn) {
    const timer = setTimeout(fn, ms)
    return () => clearTimeout(timer)
  },
  idly(ms, fn) {
    const timer = setTimeout(fn, ms).unref()
    return () => clearTimeout(timer)
  },
}

/** Calls `fn` again and again, `ms()` after each call has ended, until stopped. `fn` must not reject. */
export function repeat(clock: Clock, ms: () => number, fn: () => Promise<void> | void): () => void {
  let stopped = false
  let cancel = () => {}
  const next = () => {
    cancel = clock.idly(ms(), async () => {
      await fn()
      if (!stopped) next()
    })
  }
  next()
  return () => {
    stopped = true
    cancel()
  }
}
