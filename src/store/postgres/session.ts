/** What the parts of a PostgreSQL store share: queries on prepared tables, the clock, the hints. */

import { randomBytes } from 'node:crypto'
import { RondoError } from '../../errors.ts'
import type { HintBus } from '../input-slots.ts'
import type { Hint } from '../task-store.ts'
import { type Answer, type PgClient, type PgRow, type ResilientPool, toStoreError } from './driver.ts'

/**
 * The time, in SQL. The database's clock decides for all instances; tests give another as a parameter. It must be stable
 * within a statement, or no index on times could be used.
 */
export const nowAt = (parameter: string): string =>
  `coalesce(${parameter}::bigint, (extract(epoch FROM statement_timestamp()) * 1000)::bigint)`

export interface PostgresSession {
  readonly schema: string
  /** Runs a statement; the tables are there. */
  query(text: string, values: unknown[]): Promise<PgRow[]>
  /** The same, and tells whether it had to be repeated. */
  ask(text: string, values: unknown[]): Promise<Answer>
  readonly pool: ResilientPool
  /** The time as a parameter: null for the database's own. */
  now(): number | null
  readonly hints: HintBus
  /** Tells this process and the others. */
  tell(hint: Hint): void
  ready(): Promise<void>
}

export interface SessionOptions {
  readonly pool: ResilientPool
  readonly schema: string
  readonly now: (() => number) | undefined
  readonly hints: HintBus
  readonly notify: (hint: Hint) => void
  /** Makes sure of the tables. */
  readonly prepare: (pool: ResilientPool, schema: string) => Promise<void>
}

const isForbidden = (error: unknown): boolean => (error as { code?: unknown }).code === '42501'

const forbidden = (cause: unknown): RondoError =>
  new RondoError('STORE_SCHEMA', 'this role may neither use the tables nor make them', { cause })

export function createSession(options: SessionOptions): PostgresSession {
  const { pool, schema, now, hints, notify, prepare } = options
  let prepared: Promise<void> | undefined
  const ready = async () => {
    prepared ??= prepare(pool, schema)
    try {
      await prepared
    } catch (error) {
      prepared = undefined
      throw isForbidden(error) ? forbidden(error) : toStoreError(error)
    }
  }
  const ask = async (text: string, values: unknown[]) => {
    await ready()
    try {
      return await pool.query(text, values)
    } catch (error) {
      throw toStoreError(error)
    }
  }
  return {
    schema,
    pool,
    hints,
    ready,
    ask,
    query: async (text, values) => (await ask(text, values)).rows,
    now: () => now?.() ?? null,
    tell(hint) {
      hints.tell(hint)
      notify(hint)
    },
  }
}

/*
 * Hints between processes, by LISTEN and NOTIFY. They only make things faster: polling finds everything without them,
 * as it must behind a pooler that does not pass them on.
 *
 * NOTIFY takes a lock on commit that all databases of the server share, so it is never part of a transaction
 * that writes, and a process has at most one under way: what happens meanwhile goes with the next.
 */

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
