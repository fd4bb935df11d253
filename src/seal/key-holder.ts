/**
 * Holds the current ring for callers that must not wait: `ring` is a plain read once the holder is ready.
 *
 * H1 A refresh happens beside the requests, never in their way. H2 A refresh that fails keeps the ring there is and is
 * reported. H3 There is one load at a time. H4 A first load that fails is tried again by the next `ready()`.
 */

import { misuse } from '../errors.ts'
import type { KeyRing } from './key-ring.ts'

/** Where keys come from. */
export interface KeySource {
  load(): KeyRing | Promise<KeyRing>
  /** Load again after this many ms. Without it the first ring stays. */
  readonly refreshMs?: number
}

export interface KeyHolder {
  /** Undefined when the ring is there; otherwise a promise that resolves when it is. */
  ready(): Promise<void> | undefined
  /** The current ring. Throws before the holder is ready. */
  readonly ring: KeyRing
  /** Ends the refreshing. The ring stays. */
  close(): void
}

/** Calls `task` once after `ms`, without keeping the process alive; gives a function that calls it off. */
export type Schedule = (task: () => void, ms: number) => () => void

export interface KeyHolderOptions {
  /** Hears of every refresh that failed. */
  onError?: (error: unknown) => void
  schedule?: Schedule
}

/** The longest delay a timer takes; past it, it would fire at once. */
const MAX_DELAY_MS = 2 ** 31 - 1

export function createKeyHolder(source: KeySource, options: KeyHolderOptions = {}): KeyHolder {
  const { onError = () => {}, schedule = unrefTimer } = options
  let ring: KeyRing | undefined
  let loading: Promise<void> | undefined
  let callOff: (() => void) | undefined
  let closed = false

  function adopt(loaded: unknown): void {
    if (!isKeyRing(loaded)) throw misuse('A key source must give a key ring')
    ring = loaded
    plan()
  }

  function plan(): void {
    if (closed || source.refreshMs === undefined) return
    callOff = schedule(() => void refresh(), Math.min(source.refreshMs, MAX_DELAY_MS))
  }

  async function refresh(): Promise<void> {
    try {
      adopt(await source.load())
    } catch (error) {
      plan()
      onError(error)
    }
  }

  function load(): Promise<void> | undefined {
    try {
      const loaded = source.load()
      if (isKeyRing(loaded)) return void adopt(loaded)
      loading = Promise.resolve(loaded)
        .then(adopt)
        .finally(() => {
          loading = undefined
        })
      return loading
    } catch (error) {
      return Promise.reject(error)
    }
  }

  return {
    ready: () => (ring === undefined ? (loading ?? load()) : undefined),
    get ring() {
      if (ring === undefined) throw misuse('The keys are not loaded yet: await ready() first')
      return ring
    },
    close() {
      closed = true
      callOff?.()
    },
  }
}

function isKeyRing(value: unknown): value is KeyRing {
  return typeof value === 'object' && value !== null && 'kind' in value && value.kind === 'key-ring'
}

function unrefTimer(task: () => void, ms: number): () => void {
  const timer = setTimeout(task, ms)
  timer.unref()
  return () => clearTimeout(timer)
}
