/**
 * The world outside replay, on Node and on runtimes that have its crypto: clock, ids, digests, idle moments.
 */

import { AsyncLocalStorage } from 'node:async_hooks'
import { createHmac } from 'node:crypto'
import { digest } from '../lib/digest.ts'
import { drawBytes } from '../lib/draw-bytes.ts'
import { idle } from '../lib/idle.ts'
import { isThenable } from '../lib/is-thenable.ts'
import type { Scope } from '../replay/run-state.ts'
import type { FlowPlatform } from './flow-host.ts'

export interface PlatformOptions {
  now?: () => number
  randomId?: () => string
}

export function createPlatform({ now = Date.now, randomId = drawId }: PlatformOptions = {}): FlowPlatform {
  return {
    now,
    randomId,
    idle,
    digest,
    derive: (seed, label) => createHmac('sha256', seed).update(label).digest(),
    after,
    scope,
  }
}

const storage = new AsyncLocalStorage<object>()

let inside = 0

function leaveScope(): void {
  inside -= 1
  if (inside === 0) storage.disable()
}

/** Following who calls whom slows every promise of the process down, so it is on only while something is marked. */
export const scope: Scope = {
  within(mark, fn) {
    inside += 1
    let settling = false
    try {
      const value: unknown = storage.run(mark, fn)
      if (!isThenable(value)) return value as never
      settling = true
      // The author's thenable is asked once: some do their work each time.
      const promise = Promise.resolve(value)
      promise.then(leaveScope, leaveScope)
      return promise as never
    } finally {
      if (!settling) leaveScope()
    }
  },
  current: () => storage.getStore(),
}

// Taken once: a test that replaces the global timers must not stop the time of the runtime.
const { setTimeout, clearTimeout } = globalThis

/** Beyond this a timer would fire at once. */
const MAX_DELAY_MS = 2 ** 31 - 1

export function after(ms: number, fn: () => void): () => void {
  const timer = setTimeout(fn, Math.min(ms, MAX_DELAY_MS))
  return () => clearTimeout(timer)
}

function drawId(): string {
  return drawBytes(16).toString('base64url')
}
