/**
 * Stops without losing a call: new work is refused, calls in flight get a grace period (the service hands them back at
 * their next step or ask), then everything is closed. Stopping is idempotent.
 *
 * `onSignals` does this on SIGTERM and SIGINT: all servers of the process stop, then the process exits; a second signal
 * exits at once. `onRejections` keeps unhandled rejections from ending the process (decision 0012).
 */

interface StopSteps {
  /** Called first: load balancers learn that this instance leaves. */
  readonly leave?: () => void
  /** How long to serve on after `leave`. */
  readonly delayMs?: number
  /** Refuses new work. */
  readonly begin: () => void
  /** Resolves when nothing is in flight. */
  readonly idle: () => Promise<void>
  /** Closes everything that is still open. */
  readonly finish: () => Promise<void>
  /** How long to wait for `idle`. */
  readonly graceMs?: number
}

export function createStop({
  leave,
  delayMs = 0,
  begin,
  idle,
  finish,
  graceMs = 10_000,
}: StopSteps): () => Promise<void> {
  let stopping: Promise<void> | undefined
  return () => {
    stopping ??= (async () => {
      leave?.()
      if (delayMs > 0) await new Promise((resolve) => setTimeout(resolve, delayMs))
      begin()
      await atMost(idle(), graceMs)
      await finish()
    })()
    return stopping
  }
}

/** Waits for `promise`, for `ms` at most. */
export async function atMost(promise: Promise<void>, ms: number): Promise<void> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, ms)
  })
  await Promise.race([promise, late])
  clearTimeout(timer)
}

type Stop = () => Promise<void>

/** What is used of `process`. */
export interface SignalSource {
  on(signal: 'SIGTERM' | 'SIGINT', listener: () => void): unknown
  off(signal: 'SIGTERM' | 'SIGINT', listener: () => void): unknown
  exit(code: number): unknown
}

interface SignalHub {
  /** Calls `stop` on the first signal; returns a function that removes the listener. */
  add(stop: Stop): () => void
}

/** `flushed` resolves when `exit` loses no line of the log. */
export function createSignalHub(
  source: SignalSource,
  flushed: () => Promise<void> = () => Promise.resolve(),
): SignalHub {
  const stops = new Set<Stop>()
  let signalled = false

  const onSignal = (): void => {
    if (signalled) {
      source.exit(130)
      return
    }
    signalled = true
    const all = [...stops].map((stop) => stop())
    Promise.allSettled(all).then(async (results) => {
      try {
        await flushed()
      } catch {
        // Somebody replaced `process.stderr`. A process that was told to exit does.
      }
      source.exit(results.some((result) => result.status === 'rejected') ? 1 : 0)
    })
  }

  return {
    add(stop) {
      if (stops.size === 0 && !signalled) {
        source.on('SIGTERM', onSignal)
        source.on('SIGINT', onSignal)
      }
      stops.add(stop)
      return () => {
        if (!stops.delete(stop) || stops.size > 0 || signalled) return
        source.off('SIGTERM', onSignal)
        source.off('SIGINT', onSignal)
      }
    },
  }
}

/** How long a process that exits waits for a reader of its log that is behind. */
const FLUSH_MS = 2_000

/** Resolves when the reader of this stream has everything, or is gone, or takes too long. */
async function flushedBy(stream: NodeJS.WriteStream): Promise<void> {
  if (stream.writableLength === 0) return
  const written = new Promise<void>((resolve) => {
    // Without a listener, the error of a broken pipe would end the process.
    stream.once('error', () => resolve())
    stream.write('', () => resolve())
  })
  await atMost(written, FLUSH_MS)
}

let hub: SignalHub | undefined

/** Calls `stop` when this process is told to exit; returns a function that undoes this. */
export function onSignals(stop: Stop): () => void {
  hub ??= createSignalHub(process, () => flushedBy(process.stderr))
  return hub.add(stop)
}

const listeners = new Set<(reason: unknown) => void>()

function notifyListeners(reason: unknown): void {
  for (const listener of listeners) listener(reason)
}

/** Receives unhandled rejections, which then do not end the process; returns a function that undoes this. */
export function onRejections(listener: (reason: unknown) => void): () => void {
  if (listeners.size === 0) process.on('unhandledRejection', notifyListeners)
  listeners.add(listener)
  return () => {
    if (listeners.delete(listener) && listeners.size === 0) process.off('unhandledRejection', notifyListeners)
  }
}
