/** Time as our client uses it; injected, so that tests own it. */

export interface Clock {
  /** Milliseconds since the epoch. */
  now(): number
  /** Calls `run` once after `ms`; gives a function that prevents it. */
  after(ms: number, run: () => void): () => void
}

export const systemClock: Clock = {
  now: () => Date.now(),
  after(ms, run) {
    const timer = setTimeout(run, ms)
    return () => clearTimeout(timer)
  },
}

/** Resolves after `ms`, or rejects with the signal's reason as soon as it is aborted. */
export function sleep(clock: Clock, ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason)
    const abort = () => {
      cancel()
      reject(signal?.reason)
    }
    const cancel = clock.after(ms, () => {
      signal?.removeEventListener('abort', abort)
      resolve()
    })
    signal?.addEventListener('abort', abort, { once: true })
  })
}

/* Time as the engine needs it, so that tests can turn it by hand. */

export interface StoreClock {
  /** Ms since the epoch. */
  now(): number
  /** Ms that never step back, from an arbitrary start. */
  elapsed(): number
  /** Calls `fn` once, `ms` from now; gives a function that prevents it. */
  after(ms: number, fn: () => void): () => void
  /** The same, for what is no reason to keep the process alive. */
  idly(ms: number, fn: () => void): () => void
}

export const storeClock: StoreClock = {
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
export function repeat(clock: StoreClock, ms: () => number, fn: () => Promise<void> | void): () => void {
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

/** Calls `tick` every `ms` until the function it gives is called. */
export type Every = (ms: number, tick: () => void) => () => void

/** A tick that throws is told to `onError`, and the next one comes all the same. */
export function createEvery(onError: (error: unknown) => void): Every {
  return (ms, tick) => {
    const guarded = (): void => {
      try {
        tick()
      } catch (error) {
        onError(error)
      }
    }
    const timer: unknown = setInterval(guarded, ms)
    // On Node a heartbeat must not keep the process alive; elsewhere a timer is a number.
    if (typeof timer === 'object' && timer !== null && 'unref' in timer) (timer as { unref(): void }).unref()
    return () => clearInterval(timer as number)
  }
}

/*
 * Calls a function when the running code has nothing left to do at this moment: every promise reaction that could run
 * has run. A macrotask does that; microtasks would run in between the author's own.
 */

export type Idle = (fn: () => void) => void

function channelIdle(): Idle {
  const { port1, port2 } = new MessageChannel()
  const queue: (() => void)[] = []
  port1.onmessage = () => queue.shift()?.()
  return (fn) => {
    queue.push(fn)
    port2.postMessage(0)
  }
}

let channel: Idle | undefined

export const idle: Idle = (fn) => {
  if (typeof globalThis.setImmediate === 'function') return void globalThis.setImmediate(fn)
  // Made when it is first needed: a page that only loads the client may have no channels.
  channel ??= channelIdle()
  channel(fn)
}

/** What `work` gives, or the signal's reason as soon as it is aborted; work that does not watch the signal is left alone. */
export function orAbort<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const abort = () => reject(signal.reason)
    if (signal.aborted) abort()
    else signal.addEventListener('abort', abort, { once: true })
    work.then(resolve, reject).finally(() => signal.removeEventListener('abort', abort))
  })
}
