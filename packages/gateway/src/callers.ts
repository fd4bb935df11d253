/**
 * What each caller is offered by upstreams that know their callers (`credentials`).
 *
 * W5 A list is read with the caller's own credentials, and no other caller gets it.
 * W8 While the upstream does not answer, a caller gets the list that it got last.
 *
 * Lists are kept for half a minute, of the callers that asked last.
 */

import type { Principal } from 'rondo'
import type { Clock } from 'rondo/client'
import { ownerKey, reasonOf, type Upstream } from './upstream.ts'

const FRESH_MS = 30_000
const RETRY_MS = 1_000
const MAX_LISTS = 500

interface List<E> {
  readAt: number
  readonly entries: Promise<ReadonlyMap<string, E>>
  /** The last list that was read. */
  known?: ReadonlyMap<string, E>
}

export interface CallerLists<E> {
  /** Reads what a caller is offered, unless that was done a moment ago. Never rejects. */
  of(upstream: Upstream, principal: Principal): Promise<ReadonlyMap<string, E>>
  /** What the caller was offered last, without a request. */
  known(upstream: Upstream, principal: Principal | undefined): ReadonlyMap<string, E> | undefined
  /** The upstream says that its lists changed. */
  forget(upstream: Upstream): void
}

export function createCallerLists<E>(parts: {
  readonly clock: Clock
  read(upstream: Upstream, principal: Principal): Promise<ReadonlyMap<string, E>>
  warn(message: string): void
}): CallerLists<E> {
  const lists = new Map<string, List<E>>()
  const keyOf = ({ name, options }: Upstream, principal: Principal | undefined): string =>
    `${name}\n${ownerKey(principal, options)}`
  return {
    of(upstream, principal) {
      const key = keyOf(upstream, principal)
      const last = lists.get(key)
      if (last !== undefined && parts.clock.now() - last.readAt < FRESH_MS) return last.entries
      const entries = parts.read(upstream, principal).catch((error: unknown) => {
        parts.warn(`What "${upstream.name}" offers to a caller could not be read: ${reasonOf(error)}.`)
        list.readAt -= FRESH_MS - RETRY_MS
        return last?.known ?? new Map<string, E>()
      })
      const list: List<E> = { readAt: parts.clock.now(), entries, ...(last?.known && { known: last.known }) }
      void entries.then((known) => {
        list.known = known
      })
      // Those that were asked for last stay.
      lists.delete(key)
      lists.set(key, list)
      const [oldest] = lists.keys()
      if (lists.size > MAX_LISTS && oldest !== undefined) lists.delete(oldest)
      return entries
    },
    known: (upstream, principal) => lists.get(keyOf(upstream, principal))?.known,
    forget({ name }) {
      for (const [key, { known, entries }] of lists)
        if (key.startsWith(`${name}\n`))
          lists.set(key, { readAt: Number.NEGATIVE_INFINITY, entries, ...(known && { known }) })
    },
  }
}
