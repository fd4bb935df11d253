/**
 * Time: clocks that are passed as parameters so that tests control them, timers, waiting for promises with a signal, and
 * spans of time as people write them.
 */

/** The clock of the client. */
export interface Clock {
  /** Milliseconds since the epoch. */
  now(): number
  /** Calls `run` once after `ms`; returns a function that cancels it. */
  after(ms: number, run: () => void): () => void
}

/** The longest wait of a timer. Platforms fire one that waits longer at once. */
const LONGEST_TIMER_MS = 2 ** 31 - 1

export const systemClock: Clock = { now: () => Date.now(), after: startTimer }

function startTimer(ms: number, run: () => void): () => void {
  let timer: ReturnType<typeof setTimeout>
  const wait = (left: number): void => {
    if (left <= LONGEST_TIMER_MS) timer = setTimeout(run, left)
    else timer = setTimeout(() => wait(left - LONGEST_TIMER_MS), LONGEST_TIMER_MS)
  }
  wait(ms)
  return () => clearTimeout(timer)
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

/** The clock of the store and its engine. */
export interface StoreClock {
  /** Milliseconds since the epoch. */
  now(): number
  /** Monotonic milliseconds from an arbitrary start. */
  elapsed(): number
  /** Calls `fn` once after `ms`; returns a function that cancels it. */
  after(ms: number, fn: () => void): () => void
  /** Like `after`, but does not keep the process alive. */
  idly(ms: number, fn: () => void): () => void
}

export const storeClock: StoreClock = {
  now: () => Date.now(),
  elapsed: () => performance.now(),
  after: startTimer,
  idly(ms, fn) {
    const timer = setTimeout(fn, ms).unref()
    return () => clearTimeout(timer)
  },
}

/** Calls `fn` repeatedly, `ms()` after each call has settled; returns a function that stops it. `fn` must not reject. */
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

/** Calls `tick` every `ms` until the function it returns is called. */
export type Every = (ms: number, tick: () => void) => () => void

/** Reports a tick that throws to `onError`; the next one runs anyway. */
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

/**
 * Calls a function when the running code has nothing left to do: every promise reaction that could run has run. A
 * macrotask does that; a microtask would run between those of the author.
 */
export type Idle = (fn: () => void) => void

let channel: Idle | undefined

/** Created on first use: a page that only loads the client may have no `MessageChannel`. */
const channelIdle: Idle = (fn) => {
  channel ??= createChannelIdle()
  channel(fn)
}

function createChannelIdle(): Idle {
  const { port1, port2 } = new MessageChannel()
  const queue: (() => void)[] = []
  port1.onmessage = () => queue.shift()?.()
  return (fn) => {
    queue.push(fn)
    port2.postMessage(0)
  }
}

/** Taken once: a test that replaces the global timers must not stop the runtime. */
export const idle: Idle =
  typeof globalThis.setImmediate === 'function' ? globalThis.setImmediate : channelIdle

/** Settles like `work`, or rejects with the signal's reason as soon as it is aborted. The work itself is not stopped. */
export function orAbort<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const abort = () => reject(signal.reason)
    if (signal.aborted) abort()
    else signal.addEventListener('abort', abort, { once: true })
    work.then(resolve, reject).finally(() => signal.removeEventListener('abort', abort))
  })
}

/** Milliseconds, or text such as `'90 s'`, `'15 min'`, `'3 days'`, `'1 h 30 min'`. */
export type Duration = number | string

const UNITS: Readonly<Record<string, number>> = {
  ms: 1,
  millisecond: 1,
  s: 1000,
  sec: 1000,
  second: 1000,
  m: 60_000,
  min: 60_000,
  minute: 60_000,
  h: 3_600_000,
  hour: 3_600_000,
  d: 86_400_000,
  day: 86_400_000,
  w: 604_800_000,
  week: 604_800_000,
}

const PART = /\s*(\d{1,15}(?:\.\d{1,9})?)\s*([a-z]+)\s*/y

/** Returns whole milliseconds of 0 or more, or undefined for anything that is not a span of time. */
export function toMilliseconds(duration: unknown): number | undefined {
  const ms = typeof duration === 'string' ? parse(duration) : duration
  return typeof ms === 'number' && Number.isFinite(ms) && ms >= 0 ? Math.ceil(ms) : undefined
}

function parse(text: string): number | undefined {
  if (text.length > 100) return undefined
  const lower = text.toLowerCase()
  let total = 0
  PART.lastIndex = 0
  while (PART.lastIndex < lower.length) {
    const [, count, unit = ''] = PART.exec(lower) ?? []
    const ms = count === undefined ? undefined : msOf(unit)
    if (ms === undefined) return undefined
    total += Number(count) * ms
  }
  return lower.trim() === '' ? undefined : total
}

function msOf(unit: string): number | undefined {
  const singular = unit.length > 2 && unit.endsWith('s') ? unit.slice(0, -1) : unit
  return Object.hasOwn(UNITS, singular) ? UNITS[singular] : undefined
}

const NAMES = [
  ['day', 86_400_000],
  ['hour', 3_600_000],
  ['minute', 60_000],
  ['second', 1000],
] as const

/** Says how long a span is, in its two largest units: "3 days", "1 hour 30 minutes". */
export function describeDuration(ms: number): string {
  let rest = Math.max(0, ms)
  const parts: string[] = []
  for (const [name, size] of NAMES) {
    const count = Math.floor(rest / size)
    rest -= count * size
    if (count > 0) parts.push(`${count} ${name}${count === 1 ? '' : 's'}`)
    else if (parts.length > 0) break
  }
  return parts.length > 0 ? parts.slice(0, 2).join(' ') : `${Math.ceil(rest)} ms`
}
