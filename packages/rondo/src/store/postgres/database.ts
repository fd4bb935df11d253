/**
 * The parts that a PostgreSQL store shares: queries on prepared tables, the clock, the hints.
 *
 * Hints travel between processes by LISTEN and NOTIFY. They only save time: polling is authoritative, as it must be behind
 * a pooler that does not pass them on. NOTIFY takes a lock on commit that all databases of the server share, so it is never
 * part of a transaction that writes, and a process has at most one in progress: later hints share the next one.
 */

import { randomBytes } from 'node:crypto'
import type { TaskOwner } from '../task-engine.ts'
import type { Fence, Hint, HintBus } from '../task-store.ts'
import { type Execution, type PgClient, type PgRow, type ResilientPool, toStoreError } from './driver.ts'

/**
 * The time, in SQL: the database's clock, which decides for all instances, unless a test passes another as the parameter.
 * It must be stable within a statement, or indexes on times could not be used.
 */
export const nowAt = (parameter: string): string =>
  `coalesce(${parameter}::bigint, (extract(epoch FROM statement_timestamp()) * 1000)::bigint)`

export interface PostgresDatabase {
  readonly schema: string
  /** Runs a statement after the tables were prepared. */
  query(text: string, values: unknown[]): Promise<PgRow[]>
  /** Like `query`, and returns whether the statement was retried. */
  execute(text: string, values: unknown[]): Promise<Execution>
  readonly pool: ResilientPool
  /** The time as a parameter; null for the database's clock. */
  now(): number | null
  readonly hints: HintBus
  /** The slots of tasks as this process last read or wrote them under a fence: a guess, which every write checks. */
  readonly seenSlots: WeakMap<Fence, SeenSlots>
  /** Small tasks as this process parked them, for the answers that arrive here: guesses too. */
  readonly parkedHere: ParkedRows
  /** Publishes to this process and to the others. */
  publish(hint: Hint): void
  ready(): Promise<void>
}

export interface SeenSlots {
  readonly revision: number
  /** The column `inputs` as text; null if the task never had a slot. */
  readonly inputs: string | null
  /** The owner, if it is known here. */
  readonly tenant?: string
  readonly principal?: string
}

/** Of a row with the columns of a lease and its revision. */
export function toSeen({ revision, inputs, tenant, principal }: PgRow): SeenSlots {
  return { revision, inputs, tenant, principal } as SeenSlots
}

export interface ParkedRows {
  keep(id: string, row: PgRow): void
  /** Each guess is used once. */
  take(id: string, owner: TaskOwner): PgRow | undefined
}

const MAX_PARKED = 1_000
const MAX_PARKED_BYTES = 4_096

function createParkedRows(): ParkedRows {
  const rows = new Map<string, PgRow>()
  return {
    keep(id, row) {
      if ((row.inputs as string).length > MAX_PARKED_BYTES) return
      rows.set(id, row)
      const [oldest] = rows.keys()
      if (rows.size > MAX_PARKED && oldest !== undefined) rows.delete(oldest)
    },
    take(id, { tenant, principal }) {
      const row = rows.get(id)
      if (row?.tenant !== tenant || row.principal !== principal) return undefined
      rows.delete(id)
      return row
    },
  }
}

interface DatabaseOptions {
  readonly pool: ResilientPool
  readonly schema: string
  readonly now: (() => number) | undefined
  readonly hints: HintBus
  readonly notify: (hint: Hint) => void
  /** Creates or checks the tables. */
  readonly prepare: (pool: ResilientPool, schema: string) => Promise<void>
}

export function createDatabase(options: DatabaseOptions): PostgresDatabase {
  const { pool, schema, now, hints, notify, prepare } = options
  let prepared: Promise<void> | undefined
  const ready = async () => {
    prepared ??= prepare(pool, schema)
    try {
      await prepared
    } catch (error) {
      prepared = undefined
      throw toStoreError(error)
    }
  }
  const execute = async (text: string, values: unknown[]) => {
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
    seenSlots: new WeakMap(),
    parkedHere: createParkedRows(),
    ready,
    execute,
    query: async (text, values) => (await execute(text, values)).rows,
    now: () => now?.() ?? null,
    publish(hint) {
      hints.publish(hint)
      notify(hint)
    },
  }
}

interface Notifier {
  notify(hint: Hint): void
  /** Publishes the hints of other processes; returns a function that stops it. */
  listen(publish: (hint: Hint) => void): () => void
}

/** A hint need not survive a crash, so its commit does not wait for the disk. */
const NOTIFY = "SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, $2)"

const KINDS: readonly Hint['kind'][] = ['changed', 'due', 'bus']

/** The least time between two messages of a process. */
const SPACING_MS = 10

export function createNotifier(pool: ResilientPool, channel: string): Notifier {
  const self = randomBytes(6).toString('base64url')
  return {
    notify: createSender(pool, channel, self),
    listen: (publish) => listen(pool, channel, self, publish),
  }
}

function createSender(pool: ResilientPool, channel: string, self: string): (hint: Hint) => void {
  let kinds = new Set<Hint['kind']>()
  let sending = false
  const send = async () => {
    sending = true
    while (kinds.size > 0) {
      const payload = [self, ...kinds].join(' ')
      kinds = new Set()
      await pool.query(NOTIFY, [channel, payload]).catch(() => {})
      await new Promise((resolve) => setTimeout(resolve, SPACING_MS).unref())
    }
    sending = false
  }
  return (hint) => {
    kinds.add(hint.kind)
    if (!sending) void send()
  }
}

function listen(
  pool: ResilientPool,
  channel: string,
  self: string,
  publish: (hint: Hint) => void,
): () => void {
  let client: PgClient | undefined
  let stopped = false
  let tries = 0
  let timer: NodeJS.Timeout | undefined
  const receive = ({ payload = '' }: { payload?: string }) => {
    const [from, ...kinds] = payload.split(' ')
    if (from === self) return
    for (const kind of KINDS) if (kinds.includes(kind)) publish({ kind })
  }
  const reconnect = () => {
    if (!stopped) timer = setTimeout(connect, Math.min(100 * 2 ** tries++, 5_000)).unref()
  }
  const attach = async (fresh: PgClient) => {
    client = fresh
    const lost = () => {
      if (client !== fresh) return
      client = undefined
      fresh.release(true)
      reconnect()
    }
    fresh.on('error', lost)
    fresh.on('notification', receive)
    await fresh.query(`LISTEN ${channel}`).catch(lost)
    if (client !== fresh) return
    tries = 0
    // Anything may have happened before we listened.
    for (const kind of KINDS) publish({ kind })
  }
  const connect = async () => {
    try {
      const fresh = await pool.connect()
      if (stopped) fresh.release(true)
      else await attach(fresh)
    } catch {
      reconnect()
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
