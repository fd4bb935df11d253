/**
 * Tasks, single use, blobs, records and the bus in one SQLite file: the embedded default. Several processes on one machine
 * may share the file; they notice each other's writes by polling SQLite's own change counter.
 *
 * Everything that touches the file is a port (`SqlitePorts`), which runs in this thread or in one of its own (`thread.ts`).
 */

import { misuse } from '../../errors.ts'
import { repeat, storeClock } from '../../lib/clock.ts'
import { clock, defineOptions, flag, number, type OptionsOf, unchecked } from '../../options.ts'
import { BUS_LIMITS, createBus } from '../bus.ts'
import {
  type BlobStore,
  type Bus,
  createEpoch,
  type OnceClaim,
  type OnceStore,
  RECORD_BYTES,
  type RecordStore,
  type Store,
} from '../store.ts'
import { createAlarmSweep, createAlarms } from './alarms.ts'
import { createApprovalSweep, createApprovals } from './approvals.ts'
import { createDatabase, type Defer, type SqliteConnection, type SqliteDatabase } from './database.ts'
import { createOperator, createOperatorSweep } from './operator.ts'
import { createOwnerTasks } from './owner-tasks.ts'
import { createPermitSweep, createPermits } from './permits.ts'
import { checkFile, openFile, openForReading, prepareDatabase } from './schema.ts'
import { type SqlitePorts, startThread } from './thread.ts'
import { createOperatorTasks, createWorkerTasks } from './worker-tasks.ts'

export interface SqliteStoreOptions {
  /** Path of the database, on a local disk: network drives do not lock reliably. Created with its folder if missing. */
  file: string
  /** How long to wait for other processes that hold the file; then `STORE_UNAVAILABLE`. Default: 10 s. */
  busyMs?: number
  /** How often to check for writes of other processes. Default: 20 ms. */
  pollMs?: number
  /** Opens an existing file without changing it. Default: `false`. */
  readOnly?: boolean
  /** The clock, in ms since the Unix epoch. Default: `Date.now`. */
  now?: () => number
}

const OPTIONS = defineOptions(
  'createSqliteStore',
  {
    file: unchecked(),
    busyMs: number(10_000),
    pollMs: number(20),
    readOnly: flag(false),
    now: clock,
  } satisfies OptionsOf<SqliteStoreOptions>,
  { path: 'file', filename: 'file', fileName: 'file', database: 'file', url: 'file' },
)

/**
 * Creates a store in a SQLite file, for one or several processes on one machine. Needs the package `libsql`.
 *
 * @example
 * ```ts
 * const onDisk = createSqliteStore({ file: './data/tasks.db' })
 * const server = createServer({ name: 'tables', version: '1.0.0', store: onDisk })
 * ```
 */
export function createSqliteStore(given: SqliteStoreOptions): Store {
  if (typeof given === 'object') OPTIONS.assert(given ?? {})
  const { file, readOnly, ...options } = given ?? {}
  if (typeof file !== 'string' || file === '') {
    throw misuse("createSqliteStore needs the path of a file: createSqliteStore({ file: './data/tasks.db' })")
  }
  if (/^\w+:\/\//.test(file)) {
    const scheme = file.slice(0, file.indexOf(':'))
    const other = scheme.startsWith('postgres')
      ? '. For PostgreSQL use createPostgresStore from rondo/postgres'
      : ''
    throw misuse(`createSqliteStore needs the path of a file, not a ${scheme} URL${other}`)
  }
  const store = readOnly ? createStoreOn(() => openForReading(file), options) : openStore(file, options)
  // Opening a file for writing upgrades it.
  return { ...store, check: async () => checkFile(file), migrate: store.ready }
}

/** In a thread of its own where that is possible. The clock of a test stays in the thread of the test. */
function openStore(file: string, options: PortOptions): Store {
  const here = createFilePorts(file, options)
  const { busyMs, pollMs, now } = options
  return toStore((now === undefined && startThread(here, { file, busyMs, pollMs })) || here)
}

type PortOptions = Omit<SqliteStoreOptions, 'file' | 'readOnly'>

/** The parts of a store in a file. Opened on first use, and upgraded if it is older. */
export function createFilePorts(file: string, options: PortOptions, defer?: Defer): SqlitePorts {
  return createPorts(
    () => openFile(file),
    options,
    (connection) => prepareDatabase(connection, file),
    defer,
  )
}

/** The store over a connection of the caller's choice, opened on first use. */
export function createStoreOn(connect: () => SqliteConnection, options: PortOptions): Store {
  return toStore(createPorts(connect, options))
}

function createPorts(
  connect: () => SqliteConnection,
  options: PortOptions,
  prepare: (connection: SqliteConnection) => void = () => {},
  defer?: Defer,
): SqlitePorts {
  const { busyMs, pollMs, now } = OPTIONS.read(options)
  const attach = (opened: SqliteDatabase) => watchOthers(opened, pollMs)
  const database = createDatabase(connect, { busyMs, now, attach, prepare, defer })
  return {
    tasks: {
      ...createOwnerTasks(database),
      ...createWorkerTasks(database),
      ...createOperatorTasks(database),
    },
    once: createOnce(database),
    blobs: createBlobs(database),
    records: createRecords(database),
    bus: createBusRows(database),
    approvals: createApprovals(database),
    operator: createOperator(database),
    permits: createPermits(database),
    alarms: createAlarms(database),
    file: {
      ready: () => database.queue.write(() => {}),
      sweep: createSweep(database),
      close: database.close,
    },
    onHint: database.hints.onHint,
  }
}

export function toStore({ tasks, bus, file, onHint, ...ports }: SqlitePorts): Store {
  return {
    kind: 'sqlite',
    tasks: { pollMs: 250, onHint, ...tasks },
    bus: createSqliteBus(bus, onHint),
    ...ports,
    ...file,
  }
}

/** One write transaction both checks and claims, so no other claim comes in between. */
function createOnce({ sql, queue, now }: SqliteDatabase): OnceStore {
  const epoch = sql("SELECT value FROM meta WHERE key = 'epoch'")
  const setEpoch = sql("UPDATE meta SET value = ? WHERE key = 'epoch'")
  const find = sql('SELECT digest, claimant, hold_until, response FROM once WHERE flow = ? AND round = ?')
  const insert = sql(`INSERT OR REPLACE INTO once (flow, round, digest, claimant, hold_until, expires_at)
    VALUES (?, ?, ?, ?, ?, ?)`)
  const renew = sql(`UPDATE once SET hold_until = ? WHERE flow = ? AND round = ? AND claimant = ?
    AND response IS NULL`)
  const settle = sql(
    `UPDATE once SET response = ? WHERE flow = ? AND round = ? AND digest = ? AND response IS NULL`,
  )
  const claim = (...[slot, { claimant, holdMs }]: Parameters<OnceStore['claim']>): OnceClaim => {
    const { flow, round, digest, expiresAt } = slot
    if (epoch.get()?.value !== slot.epoch) return { kind: 'refused', reason: 'epoch' }
    if (expiresAt <= now()) return { kind: 'refused', reason: 'expired' }
    const row = find.get(flow, round)
    if (row !== undefined) {
      if (row.digest !== digest) return { kind: 'refused', reason: 'used' }
      if (row.response !== null) return { kind: 'stored', response: row.response as string }
      const retryMs = Number(row.hold_until) - now()
      if (row.claimant !== claimant && retryMs > 0) return { kind: 'busy', retryMs }
    }
    insert.run(flow, round, digest, claimant, now() + holdMs, expiresAt)
    return { kind: 'first' }
  }
  return {
    epoch: () => queue.read(() => String(epoch.get()?.value)),
    renewEpoch: () =>
      queue.write(() => {
        const next = createEpoch()
        setEpoch.run(next)
        return next
      }),
    claim: (slot, attempt) => queue.write(() => claim(slot, attempt)),
    renew: ({ flow, round }, { claimant, holdMs }) =>
      queue.write(() => renew.run(now() + holdMs, flow, round, claimant) === 1),
    settle: (slot, response) =>
      queue.write(() => {
        settle.run(response, slot.flow, slot.round, slot.digest)
        const row = find.get(slot.flow, slot.round)
        return row?.digest === slot.digest ? (row.response as string) : response
      }),
  }
}

function createBlobs({ sql, queue, now }: SqliteDatabase): BlobStore {
  const put = sql('INSERT OR IGNORE INTO blob (id, sealed, expires_at) VALUES (?, ?, ?)')
  const get = sql('SELECT sealed FROM blob WHERE id = ? AND expires_at > ?')
  return {
    put: (id, sealed, expiresAt) => queue.write(() => void put.run(id, sealed, expiresAt)),
    async get(id) {
      const row = await queue.read(() => get.get(id, now()))
      return row?.sealed as string | undefined
    },
  }
}

/** Free pages that a file keeps for what comes next, and how many of the others a sweep returns to the disk. */
const SPARE_PAGES = 1_000
const SHRINK_PAGES = 2_000

function createSweep(database: SqliteDatabase): (limit: number) => Promise<number> {
  const { sql, queue, now } = database
  const sweepApprovals = createApprovalSweep(database)
  const sweepOperator = createOperatorSweep(database)
  const sweepPermits = createPermitSweep(database)
  const sweepAlarms = createAlarmSweep(database)
  const expired = sql('SELECT id FROM task WHERE expires_at <= ? LIMIT ?')
  const deleteTask = sql('DELETE FROM task WHERE id = ?')
  const deleteJournal = sql('DELETE FROM journal WHERE task = ?')
  const deleteOnce = sql(`DELETE FROM once WHERE (flow, round) IN
    (SELECT flow, round FROM once WHERE expires_at <= ? LIMIT ?)`)
  const deleteBlobs = sql('DELETE FROM blob WHERE id IN (SELECT id FROM blob WHERE expires_at <= ? LIMIT ?)')
  const deleteRecords = sql(
    'DELETE FROM record WHERE id IN (SELECT id FROM record WHERE expires_at <= ? LIMIT ?)',
  )
  const deleteBounds = sql(
    'DELETE FROM record_bound WHERE owner IN (SELECT owner FROM record_bound WHERE expires_at <= ? LIMIT ?)',
  )
  const deleteNews = sql(
    'DELETE FROM bus WHERE position IN (SELECT position FROM bus WHERE expires_at <= ? LIMIT ?)',
  )
  const free = sql('PRAGMA freelist_count')
  const shrink = sql(`PRAGMA incremental_vacuum(${SHRINK_PAGES})`)
  return (limit) =>
    queue.write(() => {
      if (Number(free.get()?.freelist_count) > SPARE_PAGES) shrink.all()
      const ids = expired.all(now(), limit).map((row) => String(row.id))
      for (const id of ids) {
        deleteJournal.run(id)
        deleteTask.run(id)
      }
      deleteBounds.run(now(), limit)
      const others = [deleteOnce, deleteBlobs, deleteRecords, deleteNews]
      return others.reduce(
        (sum, statement) => sum + statement.run(now(), limit),
        ids.length + sweepApprovals(limit) + sweepOperator(limit) + sweepPermits(limit) + sweepAlarms(limit),
      )
    })
}

/** SQLite's change counter increases when another connection commits, and only then. */
function watchOthers({ sql, peek, publish }: SqliteDatabase, pollMs: number): () => void {
  const version = sql('PRAGMA data_version')
  let last: unknown
  return repeat(
    storeClock,
    () => pollMs,
    () => {
      const now = readQuietly(() => peek(() => version.get()?.data_version))
      if (now === undefined || now === last) return
      const isFirst = last === undefined
      last = now
      if (isFirst) return
      publish({ kind: 'changed' })
      publish({ kind: 'due' })
    },
  )
}

/** The file may be locked for a moment, or closed: the next poll reads it again. */
function readQuietly<T>(read: () => T): T | undefined {
  try {
    return read()
  } catch {
    return undefined
  }
}

/** The records of older clients' sessions that instances share. */
function createRecords({ sql, queue, now }: SqliteDatabase): RecordStore {
  const find = sql('SELECT owner, sealed, version, touched_at FROM record WHERE id = ? AND expires_at > ?')
  const findBound = sql('SELECT bytes FROM record_bound WHERE owner = ?')
  const setBound = sql(`INSERT INTO record_bound (owner, bytes, expires_at) VALUES (?, ?, ?)
    ON CONFLICT (owner) DO UPDATE SET bytes = excluded.bytes, expires_at = max(expires_at, excluded.expires_at)`)
  const others = sql(`SELECT coalesce(sum(length(sealed) + ${RECORD_BYTES}), 0) AS bytes FROM record
    WHERE owner = ? AND id <> ? AND expires_at > ?`)
  const insert = sql(`INSERT OR REPLACE INTO record (id, owner, sealed, version, touched_at, expires_at)
    VALUES (?, ?, ?, ?, ?, ?)`)
  const touch = sql('UPDATE record SET touched_at = ? WHERE id = ?')
  const remove = sql('DELETE FROM record WHERE id = ?')
  return {
    async get(id) {
      const row = await queue.read(() => find.get(id, now()))
      if (row === undefined) return undefined
      const { sealed, version, touched_at } = row
      return { sealed: String(sealed), version: Number(version), quietMs: now() - Number(touched_at) }
    },
    put: ({ id, owner, sealed, version, ttlMs, maxBytes }) =>
      queue.write(() => {
        const row = find.get(id, now())
        if (Number(row?.version ?? 0) !== version) return row?.sealed === sealed ? 'stored' : 'conflict'
        const size = sealed.length + RECORD_BYTES
        const replaced = row?.owner === owner ? String(row.sealed).length + RECORD_BYTES : 0
        const bound = findBound.get(owner)?.bytes
        const addUp = (): number => Number(others.get(owner, id, now())?.bytes) + size
        let bytes = bound === undefined ? addUp() : Number(bound) - replaced + size
        if (bytes > maxBytes && bound !== undefined) bytes = addUp()
        if (bytes > maxBytes) return 'limit'
        const until = now() + ttlMs
        setBound.run(owner, bytes, until)
        insert.run(id, owner, sealed, version + 1, now(), until)
        return 'stored'
      }),
    async touch(ids) {
      if (ids.length > 0) await queue.write(() => ids.forEach((id) => void touch.run(now(), id)))
    },
    remove: (id) => queue.write(() => void remove.run(id)),
  }
}

function createBusRows({ sql, queue, now }: SqliteDatabase): SqlitePorts['bus'] {
  const append = sql('INSERT INTO bus (message, expires_at) VALUES (?, ?)')
  const newest = sql("SELECT seq FROM sqlite_sequence WHERE name = 'bus'")
  const shorten = sql('DELETE FROM bus WHERE position <= ?')
  const read = sql('SELECT position, message FROM bus WHERE position > ? ORDER BY position LIMIT ?')
  const oldest = sql('SELECT min(position) AS position FROM bus')
  return {
    append: (messages) =>
      queue.write(() => {
        for (const message of messages) append.run(message, now() + BUS_LIMITS.keepMs)
        shorten.run(Number(newest.get()?.seq ?? 0) - BUS_LIMITS.keepRows)
      }),
    read: (after, limit) =>
      queue.read(() => {
        const rows = read.all(after, limit).map(({ position, message }) => ({
          position: Number(position),
          message: String(message),
        }))
        return rows.length === 0 ? { rows } : { rows, oldest: Number(oldest.get()?.position) }
      }),
    newest: () => queue.read(() => Number(newest.get()?.seq ?? 0)),
  }
}

/** Writes of other processes are noticed by SQLite's change counter; those of this one are hinted at here. */
function createSqliteBus({ append, read, newest }: SqlitePorts['bus'], onHint: SqlitePorts['onHint']): Bus {
  const own = new Set<() => void>()
  return createBus({
    // Only for a change that was seen while the file was locked.
    pollMs: 1_000,
    async append(messages) {
      await append(messages)
      for (const listener of [...own]) listener()
    },
    read,
    newest,
    onHint(listener) {
      const wrapped = (): void => listener()
      own.add(wrapped)
      const stop = onHint(({ kind }) => {
        if (kind === 'changed') listener()
      })
      return () => {
        own.delete(wrapped)
        stop()
      }
    },
  })
}
