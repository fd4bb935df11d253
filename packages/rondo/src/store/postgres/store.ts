/**
 * Tasks, single use, blobs, records and the bus in PostgreSQL: the store for a fleet. No statement depends on the one before
 * it on the same connection, so it works behind a transaction pooler. The database's clock counts, so the clocks of instances
 * may differ.
 */

import { misuse } from '../../errors.ts'
import { callable, defineOptions, flag, number, type OptionsOf, text, unchecked } from '../../options.ts'
import { BUS_LIMITS, createBus } from '../bus.ts'
import {
  type BlobStore,
  type Bus,
  createEpoch,
  type OnceAttempt,
  type OnceClaim,
  type OnceSlot,
  type OnceStore,
  RECORD_BYTES,
  type RecordStore,
  type Store,
} from '../store.ts'
import { createHintBus } from '../task-store.ts'
import { createAlarms, sweepAlarms } from './alarms.ts'
import { createApprovals, sweepApprovals } from './approvals.ts'
import { createDatabase, createNotifier, nowAt, type PostgresDatabase } from './database.ts'
import { createResilientPool, type PgPool, toStoreError } from './driver.ts'
import { createOperator, sweepOperator } from './operator.ts'
import { createOwnerTasks } from './owner-tasks.ts'
import { createPermits, sweepPermits } from './permits.ts'
import { assertSchema, assertTables, buildIndexes, checkTables, createTables, migrate } from './schema.ts'
import { createOperatorTasks, createWorkerTasks } from './worker-tasks.ts'

export interface PostgresStoreOptions {
  /** Connection string of the database. Default: the `PG…` environment variables. */
  connectionString?: string
  /** A `Pool` of the package `pg` to use instead. The store does not close it, and listens on one of its connections. Default: its own. */
  pool?: PgPool
  /** The schema that holds the tables; created if missing. Default: `rondo`. */
  schema?: string
  /** Connections of the store's own pool; at least 2, because one of them listens. Default: 10. */
  maxConnections?: number
  /** How long to retry while the database cannot be reached; then `STORE_UNAVAILABLE`. Default: 10 s. */
  retryMs?: number
  /** Set it to `false` behind a pooler in transaction mode, where LISTEN does not work: polling is enough. Default: `true`. */
  listen?: boolean
  /** How often to poll for changes that no notification reported. Default: 500 ms. */
  pollMs?: number
  /** Uses existing tables without changing them. Default: `false`. */
  readOnly?: boolean
  /** Ms since the Unix epoch, for tests. Default: the clock of the database. */
  now?: () => number
}

/** An address under another name must not be ignored: that would lead to the database that the environment names. */
const OTHERS = {
  url: 'connectionString',
  uri: 'connectionString',
  dsn: 'connectionString',
  host: 'connectionString',
  database: 'connectionString',
  max: 'maxConnections',
  client: 'pool',
}

const OPTIONS = defineOptions(
  'createPostgresStore',
  {
    connectionString: text(),
    pool: unchecked(),
    schema: text('rondo'),
    maxConnections: number(10, { min: 1 }),
    retryMs: number(10_000),
    listen: flag(true),
    pollMs: number(500),
    readOnly: flag(false),
    now: callable(),
  } satisfies OptionsOf<PostgresStoreOptions>,
  OTHERS,
)

/**
 * Creates a store in PostgreSQL, for any number of processes on any number of machines. Needs the package `pg`.
 *
 * @example
 * ```ts
 * const shared = createPostgresStore({ connectionString: 'postgres://db.example.com/tables' })
 * const fleet = createServer({ name: 'tables', version: '1.0.0', store: shared })
 * ```
 */
export function createPostgresStore(options: PostgresStoreOptions = {}): Store {
  const {
    schema,
    maxConnections,
    retryMs,
    listen,
    pollMs,
    readOnly,
    now,
    connectionString,
    pool: given,
  } = OPTIONS.read(options)
  assertSchema(schema)
  if (listen && maxConnections < 2)
    throw misuse(
      'maxConnections must be at least 2, because one connection listens: raise it, or set listen to false',
    )
  const prepares = listen && given === undefined
  const pool = createResilientPool({ connectionString, pool: given, maxConnections, retryMs, prepares })
  const notifier = createNotifier(pool, `rondo_${schema}`)
  const hints = createHintBus(() => (listen ? notifier.listen(hints.publish) : () => {}))
  const prepare = readOnly ? assertTables : migrate
  const notify = listen ? notifier.notify : () => {}
  const database = createDatabase({ pool, schema, now, hints, notify, prepare })
  return {
    kind: 'postgres',
    tasks: {
      pollMs,
      onHint: hints.onHint,
      ...createOwnerTasks(database),
      ...createWorkerTasks(database),
      ...createOperatorTasks(database),
    },
    once: createOnce(database),
    blobs: createBlobs(database),
    records: createRecords(database),
    bus: createPostgresBus(database, listen, pollMs),
    approvals: createApprovals(database),
    operator: createOperator(database),
    permits: createPermits(database),
    alarms: createAlarms(database),
    ready: database.ready,
    check: () => orStoreError(checkTables(pool, schema)),
    migrate: () => orStoreError(createTables(pool, schema).then(() => buildIndexes(pool, schema))),
    sweep: (limit) => sweep(database, limit),
    async close() {
      // Releases the connection that listens, which the pool waits for.
      hints.close()
      await pool.end()
    },
  }
}

async function orStoreError<T>(work: Promise<T>): Promise<T> {
  try {
    return await work
  } catch (error) {
    throw toStoreError(error)
  }
}

/** The primary key decides which claim is first; every other reads the existing row. */
function createOnce(database: PostgresDatabase): OnceStore {
  const { schema, query, now } = database
  const epochs = createEpochKeeper(database)
  const once = `${schema}.once`
  const renew = `UPDATE ${once} SET hold_until = ${nowAt('$4')} + $5::bigint
    WHERE flow = $1 AND round = $2 AND claimant = $3 AND response IS NULL RETURNING 1`
  const settle = `UPDATE ${once} SET response = coalesce(response, $4)
    WHERE flow = $1 AND round = $2 AND digest = $3 RETURNING response`

  const insert = async (
    { flow, round, digest, epoch, expiresAt }: OnceSlot,
    { claimant, holdMs }: OnceAttempt,
  ) => {
    const rows = await query(
      `INSERT INTO ${once} AS o (flow, round, digest, claimant, hold_until, expires_at)
      SELECT $1, $2, $3, $4, ${nowAt('$7')} + $5::bigint, $6::bigint
      WHERE $6::bigint > ${nowAt('$7')} AND ${await epochs.isCurrent('$8')}
      ON CONFLICT (flow, round) DO UPDATE SET claimant = excluded.claimant, hold_until = excluded.hold_until
      WHERE o.digest = excluded.digest AND o.response IS NULL
        AND (o.claimant = excluded.claimant OR o.hold_until <= ${nowAt('$7')})
      RETURNING 1`,
      [flow, round, digest, claimant, holdMs, expiresAt, now(), epoch],
    )
    return rows.length > 0
  }
  const read = async ({ flow, round, digest, epoch, expiresAt }: OnceSlot): Promise<OnceClaim> => {
    const [row] = await query(
      `SELECT ${await epochs.isCurrent('$5')} AS current, $3::bigint > ${nowAt('$4')} AS valid, o.digest, o.response,
        o.hold_until - ${nowAt('$4')} AS retry
      FROM (SELECT 1) one LEFT JOIN ${once} o ON o.flow = $1 AND o.round = $2`,
      [flow, round, expiresAt, now(), epoch],
    )
    if (row?.current !== true) return { kind: 'refused', reason: 'epoch' }
    if (row.valid !== true) return { kind: 'refused', reason: 'expired' }
    if (row.digest !== null && row.digest !== digest) return { kind: 'refused', reason: 'used' }
    if (typeof row.response === 'string') return { kind: 'stored', response: row.response }
    // If the hold was released in between, a retry can succeed at once.
    return { kind: 'busy', retryMs: Math.max(Number(row.retry), 0) }
  }
  return {
    epoch: epochs.epoch,
    renewEpoch: epochs.renew,
    claim: async (slot, attempt) => ((await insert(slot, attempt)) ? { kind: 'first' } : read(slot)),
    async renew({ flow, round }, { claimant, holdMs }) {
      return (await query(renew, [flow, round, claimant, now(), holdMs])).length > 0
    },
    async settle({ flow, round, digest }, response) {
      const [row] = await query(settle, [flow, round, digest, response])
      return row === undefined ? response : String(row.response)
    },
  }
}

function createBlobs({ query, now, schema }: PostgresDatabase): BlobStore {
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

/** Rows that are locked are left for the next sweep. */
async function sweep(database: PostgresDatabase, limit: number): Promise<number> {
  const { query, now, schema } = database
  const expired = (table: string, key: string) => `SELECT ${key} FROM ${schema}.${table}
    WHERE expires_at <= ${nowAt('$1')} ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED`
  const tasks = `WITH gone AS (DELETE FROM ${schema}.task WHERE id IN (${expired('task', 'id')}) RETURNING id),
    entries AS (DELETE FROM ${schema}.journal USING gone WHERE task = gone.id) SELECT id FROM gone`
  const once = `DELETE FROM ${schema}.once WHERE (flow, round) IN (${expired('once', 'flow, round')}) RETURNING 1`
  const blobs = `DELETE FROM ${schema}.blob WHERE id IN (${expired('blob', 'id')}) RETURNING 1`
  let count = await sweepApprovals(database, limit)
  count += await sweepOperator(database, limit)
  count += await sweepPermits(database, limit)
  count += await sweepAlarms(database, limit)
  const records = `DELETE FROM ${schema}.record WHERE id IN (${expired('record', 'id')}) RETURNING 1`
  const bounds = `DELETE FROM ${schema}.record_bound WHERE owner IN (${expired('record_bound', 'owner')})`
  await query(bounds, [now(), limit])
  const news = `DELETE FROM ${schema}.bus WHERE position IN (${expired('bus', 'position')}) RETURNING 1`
  for (const statement of [tasks, once, blobs, records, news])
    count += (await query(statement, [now(), limit])).length
  return count
}

interface EpochKeeper {
  /** The epoch, renewed first if the identity of the database changed. */
  epoch(): Promise<string>
  renew(): Promise<string>
  /** SQL that is true if `parameter` is the current epoch and the identity of the database is unchanged. */
  isCurrent(parameter: string): Promise<string>
}

/**
 * A restore, a fail-over or a new server may lose records of single use. Each of them changes the cluster, its timeline or
 * the table itself, so these make up the identity of the database (`life` in the table `meta`). When the identity changes,
 * a new epoch begins, and everything handed out before is refused.
 */
function createEpochKeeper(database: PostgresDatabase): EpochKeeper {
  const { schema, query, pool, ready } = database
  let expression: Promise<string> | undefined
  const identity = () => {
    expression ??= identityExpression(database)
    return expression
  }
  const value = (key: string) => `(SELECT value FROM ${schema}.meta WHERE key = '${key}')`
  const renew = async (onlyIfChanged: boolean) => {
    await ready()
    const current = await identity()
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
        `SELECT ${value('epoch')} AS epoch, ${value('life')} = ${await identity()} AS same`,
        [],
      )
      return row?.same === true ? String(row.epoch) : renew(true)
    },
    renew: () => renew(false),
    isCurrent: async (parameter) =>
      `(${value('epoch')} = ${parameter} AND ${value('life')} = ${await identity()})`,
  }
}

/** SQL. The name of the current log file begins with the timeline, which changes as soon as a standby takes over. */
async function identityExpression({ schema, query }: PostgresDatabase): Promise<string> {
  const table = `'${schema}.once'::regclass::oid::text`
  const timeline = 'left(pg_walfile_name(pg_current_wal_lsn()), 8)'
  const cluster = '(SELECT system_identifier::text FROM pg_control_system())'
  const full = `concat_ws(' ', ${cluster}, ${timeline}, ${table})`
  try {
    await query(`SELECT ${full}`, [])
    return full
  } catch {
    // Some hosts do not let every role read the identity of the cluster.
    return table
  }
}

/** The records of older clients' sessions that instances share. */
function createRecords({ query, now, schema }: PostgresDatabase): RecordStore {
  const record = `${schema}.record`
  const get = `SELECT sealed, version, ${nowAt('$2')} - touched_at AS quiet FROM ${record}
    WHERE id = $1 AND expires_at > ${nowAt('$2')}`
  const put = `SELECT ${schema}.put_record($1, $2, $3, $4, $5, $6, $7, ${nowAt('$8')}) AS outcome`
  const touch = `UPDATE ${record} SET touched_at = ${nowAt('$2')} WHERE id = ANY($1)`
  const remove = `DELETE FROM ${record} WHERE id = $1`
  return {
    async get(id) {
      const [row] = await query(get, [id, now()])
      if (row === undefined) return undefined
      return { sealed: String(row.sealed), version: Number(row.version), quietMs: Number(row.quiet) }
    },
    async put({ id, owner, sealed, version, ttlMs, maxBytes }) {
      const values = [id, owner, sealed, version, ttlMs, maxBytes, RECORD_BYTES, now()]
      const [row] = await query(put, values)
      return row?.outcome as 'stored' | 'conflict' | 'limit'
    },
    async touch(ids) {
      if (ids.length > 0) await query(touch, [ids, now()])
    },
    async remove(id) {
      await query(remove, [id])
    },
  }
}

/** With LISTEN, polling is only for a notification that got lost. */
const IDLE_POLL_MS = 5_000

/** A NOTIFY only says that there is something to read; without it, polling finds it. */
function createPostgresBus(database: PostgresDatabase, listens: boolean, pollMs: number): Bus {
  const { query, now, schema, hints, publish } = database
  const append = `SELECT ${schema}.append_bus($1, ${nowAt('$2')} + $3::bigint, $4::bigint)`
  const read = `SELECT position, message, (SELECT min(position) FROM ${schema}.bus) AS oldest FROM ${schema}.bus
    WHERE position > $1 ORDER BY position LIMIT $2`
  const newest = `SELECT CASE WHEN is_called THEN last_value ELSE 0 END AS position FROM ${schema}.bus_position`
  return createBus({
    pollMs: listens ? IDLE_POLL_MS : pollMs,
    async append(messages) {
      await query(append, [messages, now(), BUS_LIMITS.keepMs, BUS_LIMITS.keepRows])
      publish({ kind: 'bus' })
    },
    async read(after, limit) {
      const rows = await query(read, [after, limit])
      return {
        rows: rows.map(({ position, message }) => ({ position: Number(position), message: String(message) })),
        oldest: Number(rows[0]?.oldest),
      }
    },
    async newest() {
      const [row] = await query(newest, [])
      return Number(row?.position)
    },
    onHint: (listener) =>
      hints.onHint(({ kind }) => {
        if (kind === 'bus') listener()
      }),
  })
}
