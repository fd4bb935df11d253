/**
 * Hints between processes, by LISTEN and NOTIFY. They only make things faster: polling finds everything without them,
 * as it must behind a pooler that does not pass them on.
 *
 * NOTIFY takes a lock on commit that all databases of the server share, so it is never part of a transaction
 * that writes, and a process has at most one under way: what happens meanwhile goes with the next.
 */

import { randomBytes } from 'node:crypto'
import type { Hint } from '../task-store.ts'
import type { PgClient, ResilientPool } from './postgres-pool.ts'

export interface Notifier {
  notify(hint: Hint): void
  /** Hears the others; gives the end of it. */
  listen(tell: (hint: Hint) => void): () => void
}

/** Hints that may wait for the next message are worth more together. */
const SPACING_MS = 10

export function createNotifier(pool: ResilientPool, channel: string): Notifier {
  const self = randomBytes(6).toString('base64url')
  return { notify: createSender(pool, channel, self), listen: (tell) => listen(pool, channel, self, tell) }
}

function createSender(pool: ResilientPool, channel: string, self: string): (hint: Hint) => void {
  let kinds = new Set<Hint['kind']>()
  let sending = false
  const send = async () => {
    sending = true
    while (kinds.size > 0) {
      const payload = [self, ...kinds].join(' ')
      kinds = new Set()
      await pool.query('SELECT pg_notify($1, $2)', [channel, payload]).catch(() => {})
      await new Promise((resolve) => setTimeout(resolve, SPACING_MS).unref())
    }
    sending = false
  }
  return (hint) => {
    kinds.add(hint.kind)
    if (!sending) void send()
  }
}

function listen(pool: ResilientPool, channel: string, self: string, tell: (hint: Hint) => void): () => void {
  let client: PgClient | undefined
  let stopped = false
  let tries = 0
  let timer: NodeJS.Timeout | undefined
  const hear = ({ payload = '' }: { payload?: string }) => {
    const [from, ...kinds] = payload.split(' ')
    if (from === self) return
    for (const kind of ['changed', 'due'] as const) if (kinds.includes(kind)) tell({ kind })
  }
  const again = () => {
    if (!stopped) timer = setTimeout(connect, Math.min(100 * 2 ** tries++, 5_000)).unref()
  }
  const attach = async (fresh: PgClient) => {
    client = fresh
    const lost = () => {
      if (client !== fresh) return
      client = undefined
      fresh.release(true)
      again()
    }
    fresh.on('error', lost)
    fresh.on('notification', hear)
    await fresh.query(`LISTEN ${channel}`).catch(lost)
    if (client !== fresh) return
    tries = 0
    // Whatever happened while nobody listened.
    tell({ kind: 'changed' })
    tell({ kind: 'due' })
  }
  const connect = async () => {
    try {
      const fresh = await pool.connect()
      if (stopped) fresh.release(true)
      else await attach(fresh)
    } catch {
      again()
    }
  }
  void connect()
  return () => {
    stopped = true
    clearTimeout(timer)
    client?.release(true)
    client = undefined
  }
}
