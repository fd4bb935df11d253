/**
 * Tasks, single use and spilled journals in PostgreSQL: the store for a fleet. Needs no session of its own, so it works
 * behind a transaction pooler. Times are the database's, so instances may disagree about the time.
 */

import { misuse } from '../../errors.ts'
import { createHintBus } from '../input-slots.ts'
import type { BlobStore, OnceAttempt, OnceClaim, OnceSlot, OnceStore, Store } from '../store.ts'
import { createResilientPool, type PgPool } from './driver.ts'
import { createOwnerTasks } from './owner-tasks.ts'
import { assertSchema, assertTables, createEpoch, migrate } from './schema.ts'
import { createNotifier, createSession, nowAt, type PostgresSession } from './session.ts'
import { createOperatorTasks, createWorkerTasks } from './worker-tasks.ts'

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

/** Single use on PostgreSQL: the primary key decides who is first; who is not looks at what is there. */
function createPostgresOnce(session: PostgresSession): OnceStore {
  const { schema, query, now } = session
  const life = createLife(session)
  const once = `${schema}.once`
  const renew = `UPDATE ${once} SET hold_until = ${nowAt('$4')} + $5::bigint
    WHERE flow = $1 AND round = $2 AND claimant = $3 AND response IS NULL RETURNING 1`
  const settle = `UPDATE ${once} SET response = coalesce(response, $4)
    WHERE flow = $1 AND round = $2 AND digest = $3 RETURNING response`

  const take = async (
    { flow, round, digest, epoch, expiresAt }: OnceSlot,
    { claimant, holdMs }: OnceAttempt,
  ) => {
    const rows = await query(
      `INSERT INTO ${once} AS o (flow, round, digest, claimant, hold_until, expires_at)
      SELECT $1, $2, $3, $4, ${nowAt('$7')} + $5::bigint, $6::bigint
      WHERE $6::bigint > ${nowAt('$7')} AND ${await life.isCurrent('$8')}
      ON CONFLICT (flow, round) DO UPDATE SET claimant = excluded.claimant, hold_until = excluded.hold_until
      WHERE o.digest = excluded.digest AND o.response IS NULL
        AND (o.claimant = excluded.claimant OR o.hold_until <= ${nowAt('$7')})
      RETURNING 1`,
      [flow, round, digest, claimant, holdMs, expiresAt, now(), epoch],
    )
    return rows.length > 0
  }
  const look = async ({ flow, round, digest, epoch, expiresAt }: OnceSlot): Promise<OnceClaim> => {
    const [row] = await query(
      `SELECT ${await life.isCurrent('$5')} AS current, $3::bigint > ${nowAt('$4')} AS valid, o.digest, o.response,
        o.hold_until - ${nowAt('$4')} AS retry
      FROM (SELECT 1) one LEFT JOIN ${once} o ON o.flow = $1 AND o.round = $2`,
      [flow, round, expiresAt, now(), epoch],
    )
    if (row?.current !== true) return { kind: 'refused', reason: 'epoch' }
    if (row.valid !== true) return { kind: 'refused', reason: 'expired' }
    if (row.digest !== null && row.digest !== digest) return { kind: 'refused', reason: 'used' }
    if (typeof row.response === 'string') return { kind: 'stored', response: row.response }
    // One that was let go in between is worth a try at once.
    return { kind: 'busy', retryMs: Math.max(Number(row.retry), 0) }
  }
  return {
    epoch: life.epoch,
    renewEpoch: life.renew,
    claim: async (slot, attempt) => ((await take(slot, attempt)) ? { kind: 'first' } : look(slot)),
    async renew({ flow, round }, { claimant, holdMs }) {
      return (await query(renew, [flow, round, claimant, now(), holdMs])).length > 0
    },
    async settle({ flow, round, digest }, response) {
      const [row] = await query(settle, [flow, round, digest, response])
      return row === undefined ? response : String(row.response)
    },
  }
}

/*
 * Which life of the database this is. Records of single use that a restore, a fail-over or a new server lost are
 * noticed by what such an event changes: the cluster, its timeline, or the table itself. Then the epoch is renewed, and
 * what was handed out before is refused.
 */

export interface PostgresLife {
  /** The epoch, renewed first if this is another life. */
  epoch(): Promise<string>
  renew(): Promise<string>
  /** SQL that is true if `parameter` is the epoch of this very life. */
  isCurrent(parameter: string): Promise<string>
}

function createLife(session: PostgresSession): PostgresLife {
  const { schema, query, pool, ready } = session
  let expression: Promise<string> | undefined
  const life = () => {
    expression ??= describeLife(session)
    return expression
  }
  const value = (key: string) => `(SELECT value FROM ${schema}.meta WHERE key = '${key}')`
  const renew = async (onlyIfChanged: boolean) => {
    await ready()
    const current = await life()
    return pool.transaction(async (run) => {
      await run("SELECT pg_advisory_xact_lock(hashtext('rondo'), hashtext($1))", [schema])
      const [row] = await run(`SELECT ${value('epoch')} AS epoch, ${value('life')} = ${current} AS same`)
      if (onlyIfChanged && row?.same === true) return String(row.epoch)
      const epoch = createEpoch()
      await run(`UPDATE ${schema}.meta SET value = ${current} WHERE key = 'life'`)
      await run(`UPDATE ${schema}.meta SET value = $1 WHERE key = 'epoch'`, [epoch])
      return epoch
    })
  }
  return {
    async epoch() {
      const [row] = await query(
        `SELECT ${value('epoch')} AS epoch, ${value('life')} = ${await life()} AS same`,
        [],
      )
      return row?.same === true ? String(row.epoch) : renew(true)
    },
    renew: () => renew(false),
    isCurrent: async (parameter) =>
      `(${value('epoch')} = ${parameter} AND ${value('life')} = ${await life()})`,
  }
}

/** The timeline is read off the name of the current log file: it changes the moment a standby takes over. */
async function describeLife({ schema, query }: PostgresSession): Promise<string> {
  const table = `'${schema}.once'::regclass::oid::text`
  const timeline = 'left(pg_walfile_name(pg_current_wal_lsn()), 8)'
  const cluster = '(SELECT system_identifier::text FROM pg_control_system())'
  const full = `concat_ws(' ', ${cluster}, ${timeline}, ${table})`
  try {
    await query(`SELECT ${full}`, [])
    return full
  } catch {
    // Some hosts do not let everybody ask for the cluster's identity.
    return table
  }
}
