/**
 * The signal of a run: it fires when the client is gone, or when the run is suspended or has ended. It costs nothing until it
 * is read.
 *
 * R11 A listener that throws is reported. The platform would throw its error once more, where nobody can catch it, and that
 * ends the process. Signals that an author derives from it (`AbortSignal.any`) are the author's (decision 0012).
 */

import { quietly } from '../lib/quietly.ts'
import type { Line } from '../protocol/call.ts'

export interface RunSignal {
  get(): AbortSignal
  abort(): void
}

export function createRunSignal(line: Line, onError: (error: unknown) => void): RunSignal {
  let controller: AbortController | undefined
  let stop = (): void => {}
  let over = false
  return {
    get() {
      if (!controller) {
        const made = new AbortController()
        controller = made
        guardListeners(made.signal, onError)
        if (over || line.closed) made.abort()
        else stop = line.onClose(() => made.abort())
      }
      return controller.signal
    },
    abort() {
      over = true
      stop()
      controller?.abort()
    },
  }
}

type Listener = EventListenerOrEventListenerObject

/** Replaces the members of a signal that take a listener, so that what a listener throws goes to `onError`. */
export function guardListeners(signal: AbortSignal, onError: (error: unknown) => void): void {
  const add = signal.addEventListener.bind(signal)
  const remove = signal.removeEventListener.bind(signal)
  const guarded = new WeakMap<Listener, EventListener>()
  const guard = (listener: Listener): EventListener => {
    const known = guarded.get(listener)
    if (known) return known
    const call = (event: Event): unknown =>
      typeof listener === 'function' ? listener.call(signal, event) : listener.handleEvent(event)
    const quiet: EventListener = quietly(call, onError)
    guarded.set(listener, quiet)
    return quiet
  }
  let onabort: AbortSignal['onabort'] = null
  Object.defineProperties(signal, {
    addEventListener: {
      value(type: string, listener: Listener | null, options?: AddEventListenerOptions | boolean) {
        if (listener) add(type, guard(listener), options)
      },
    },
    removeEventListener: {
      value(type: string, listener: Listener | null, options?: EventListenerOptions | boolean) {
        if (listener) remove(type, guard(listener), options)
      },
    },
    onabort: {
      get: () => onabort,
      set(listener: unknown) {
        if (onabort) remove('abort', guard(onabort as EventListener))
        onabort = typeof listener === 'function' ? (listener as EventListener) : null
        if (onabort) add('abort', guard(onabort as EventListener))
      },
    },
  })
}
