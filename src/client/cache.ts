/**
 * Answers that a server allows to be kept for a while (`ttlMs`). One cache belongs to one client; its keys contain the
 * headers a request was sent with, so what was private to one login is never given to another. Only what came in a
 * single round gets here.
 */

import type { CacheHint } from '../protocol/result.ts'
import type { Clock } from './clock.ts'

export interface Cache {
  get(key: string): unknown
  put(key: string, value: unknown, hint: CacheHint): void
  /** Forgets every key that begins like this. */
  forget(prefix: string): void
}

const MAX_ENTRIES = 64

export function createCache(clock: Clock): Cache {
  const entries = new Map<string, { readonly value: unknown; readonly until: number }>()
  return {
    get(key) {
      const entry = entries.get(key)
      if (entry === undefined || entry.until > clock.now()) return entry?.value
      entries.delete(key)
      return undefined
    },
    put(key, value, { ttlMs = 0 }) {
      if (ttlMs <= 0) return
      const [oldest] = entries.keys()
      if (entries.size >= MAX_ENTRIES && oldest !== undefined) entries.delete(oldest)
      entries.set(key, { value, until: clock.now() + ttlMs })
    },
    forget(prefix) {
      for (const key of entries.keys()) if (key.startsWith(prefix)) entries.delete(key)
    },
  }
}

/** For clients that want none. */
export const noCache: Cache = { get: () => undefined, put() {}, forget() {} }
