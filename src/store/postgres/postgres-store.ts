/**
 * Tasks, single use and spilled journals in PostgreSQL: the store for a fleet. Needs no session of its own, so it works
 * behind a transaction pooler. Times are the database's, so instances may disagree about the time.
 */

import { misuse } from '../../errors.ts'
import type { BlobStore } from '../blob-store.ts'
import { createHintBus } from '../hint-bus.ts'
import type { Store } from '../store.ts'
import { createNotifier } from './notifier.ts'
import { createPostgresOnce } from './postgres-once.ts'
import { createOperatorTasks } from './postgres-operator-tasks.ts'
import { createOwnerTasks } from './postgres-owner-tasks.ts'
import { createResilientPool, type PgPool } from './postgres-pool.ts'
import { assertSchema, assertTables, migrate } from './postgres-schema.ts'
import { createSession, nowAt, type PostgresSession } from './postgres-session.ts'
import { createWorkerTasks } from './postgres-worker-tasks.ts'

export interface PostgresStoreOptions {
  /** Where the database is; without it the usual PG… variables of the environment say so. */
  connectionString?: string
  /** A pool of the package `pg` to use instead; it is left open. One of its connections listens for hints. */
  pool?: PgPool
  /** The schema that holds the tables; made if it is not there. */
  schema?: string
  /** Only to look: the tables must be there, and are neither made nor brought up to date. */
  readOnly?: boolean
  /** Connections of our own pool. */
  maxConnections?: number
  /** How long to go on trying when the database cannot be reached. */
  retryMs?: number
  /** False where LISTEN is of no use: behind a pooler that shares connections. Polling is enough. */
  listen?: boolean
  /** How often to look for what no hint told. */
  pollMs?: number
  /** Ms since the epoch, instead of the database's own clock: for tests. */
  now?: () => number
}

export function createPostgresStore(options: PostgresStoreOptions = {}): Store {
  const {
    schema = 'rondo',
    maxConnections = 10,
    retryMs = 10_000,
    listen = true,
    pollMs = 500,
    now,
  } = options
  assertSchema(schema)
  if (listen && maxConnections < 2)
    throw misuse('maxConnections must be 2 or more, since one connection listens: or set listen to false')
  const { connectionString, pool: given } = options
  const pool = createResilientPool({ connectionString, pool: given, maxConnections, retryMs })
  const notifier = createNotifier(pool, `rondo_${schema}`)
  const hints = createHintBus(() => (listen ? notifier.listen(hints.tell) : () => {}))
  const prepare = options.readOnly ? assertTables : migrate
  const notify = listen ? notifier.notify : () => {}
  const session = createSession({ pool, schema, now, hints, notify, prepare })
  return {
    tasks: {
      pollMs,
      onHint: hints.onHint,
      ...createOwnerTasks(session),
      ...createWorkerTasks(session),
      ...createOperatorTasks(session),
    },
    once: createPostgresOnce(session),
    blobs: createPostgresBlobs(session),
    ready: session.ready,
    sweep: (limit) => sweep(session, limit),
    async close() {
      // The connection that listens has to be given back first.
      hints.close()
      await pool.end()
    },
  }
}

function createPostgresBlobs({ query, now, schema }: PostgresSession): BlobStore {
  const put = `INSERT INTO ${schema}.blob (id, sealed, expires_at) VALUES ($1, $2, $3) ON CONFLICT (id) DO NOTHING`
  const get = `SELECT sealed FROM ${schema}.blob WHERE id = $1 AND expires_at > ${nowAt('$2')}`
  return {
    async put(id, sealed, expiresAt) {
      await query(put, [id, sealed, expiresAt])
    },
    async get(id) {
      const [row] = await query(get, [id, now()])
      return row?.sealed as string | undefined
    },
  }
}

/** Rows that somebody holds just now are left for the next time. */
async function sweep({ query, now, schema }: PostgresSession, limit: number): Promise<number> {
  const expired = (table: string, key: string) => `SELECT ${key} FROM ${schema}.${table}
    WHERE expires_at <= ${nowAt('$1')} ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED`
  const tasks = `WITH gone AS (DELETE FROM ${schema}.task WHERE id IN (${expired('task', 'id')}) RETURNING id),
    entries AS (DELETE FROM ${schema}.journal USING gone WHERE task = gone.id) SELECT id FROM gone`
  const once = `DELETE FROM ${schema}.once WHERE (flow, round) IN (${expired('once', 'flow, round')}) RETURNING 1`
  const blobs = `DELETE FROM ${schema}.blob WHERE id IN (${expired('blob', 'id')}) RETURNING 1`
  let count = 0
  for (const statement of [tasks, once, blobs]) count += (await query(statement, [now(), limit])).length
  return count
}
