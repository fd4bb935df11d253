/** The tables in SQLite, and how a file is opened: its journal mode, its version, its epoch. */

import { accessSync, closeSync, mkdirSync, openSync, statSync } from 'node:fs'
import { dirname } from 'node:path'
import { RondoError } from '../../errors.ts'
import { type Migration, type SchemaState, schemaOf } from '../schema.ts'
import { createEpoch, type StoreCheck } from '../store.ts'
import { ALARM_INDEXES, ALARM_TABLES } from './alarms.ts'
import { APPROVAL_INDEXES, APPROVAL_TABLES } from './approvals.ts'
import { isBusy, openSqlite, type SqliteConnection } from './database.ts'
import { LABEL_INDEXES, LABEL_TABLES, OPERATOR_INDEXES, OPERATOR_TABLES } from './operator.ts'
import { PERMIT_INDEXES, PERMIT_TABLES } from './permits.ts'

/**
 * `due_at` is when a worker may claim the task, which is the end of the lease while one runs it; null while the task waits
 * for input or has ended. `inputs` holds the input slots as one JSON text. `outcome` is the result or the error, and `bytes`
 * the size of an ended task. `known` says whether the owner has shown that it knows the id. `record_bound` has at least the
 * bytes of an owner's records, until the last of them has expired.
 */
const TABLES = `
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE task (
  id TEXT PRIMARY KEY,
  tenant TEXT NOT NULL,
  principal TEXT NOT NULL,
  status TEXT NOT NULL,
  message TEXT,
  head TEXT NOT NULL,
  inputs TEXT,
  outcome TEXT,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  expires_at INTEGER NOT NULL,
  poll_ms INTEGER NOT NULL,
  revision INTEGER NOT NULL,
  epoch INTEGER NOT NULL,
  failures INTEGER NOT NULL,
  worker TEXT,
  due_at INTEGER,
  known INTEGER NOT NULL,
  bytes INTEGER
) STRICT;
CREATE TABLE journal (
  task TEXT NOT NULL,
  seq INTEGER NOT NULL,
  entry TEXT NOT NULL,
  PRIMARY KEY (task, seq)
) STRICT, WITHOUT ROWID;
CREATE TABLE once (
  flow TEXT NOT NULL,
  round INTEGER NOT NULL,
  digest TEXT NOT NULL,
  claimant TEXT NOT NULL,
  hold_until INTEGER NOT NULL,
  response TEXT,
  expires_at INTEGER NOT NULL,
  PRIMARY KEY (flow, round)
) STRICT, WITHOUT ROWID;
CREATE TABLE blob (id TEXT PRIMARY KEY, sealed TEXT NOT NULL, expires_at INTEGER NOT NULL) STRICT;
CREATE TABLE record (
  id TEXT PRIMARY KEY,
  owner TEXT NOT NULL,
  sealed TEXT NOT NULL,
  version INTEGER NOT NULL,
  touched_at INTEGER NOT NULL,
  expires_at INTEGER NOT NULL
) STRICT;
CREATE TABLE record_bound (owner TEXT PRIMARY KEY, bytes INTEGER NOT NULL, expires_at INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE bus (position INTEGER PRIMARY KEY AUTOINCREMENT, message TEXT NOT NULL, expires_at INTEGER NOT NULL) STRICT
`

const INDEXES: readonly string[] = [
  'CREATE INDEX task_due ON task (due_at, expires_at) WHERE due_at IS NOT NULL',
  'CREATE INDEX task_expiry ON task (expires_at)',
  "CREATE INDEX task_open ON task (tenant, principal, expires_at) WHERE status IN ('working', 'input_required')",
  "CREATE INDEX task_ended ON task (tenant, principal, updated_at, id, bytes, expires_at) WHERE status IN ('completed', 'failed', 'cancelled')",
  'CREATE INDEX task_owner ON task (tenant, principal, created_at, id)',
  'CREATE INDEX task_status ON task (status, created_at, id)',
  'CREATE INDEX task_worker ON task (worker, due_at) WHERE worker IS NOT NULL',
  'CREATE INDEX once_expiry ON once (expires_at)',
  'CREATE INDEX blob_expiry ON blob (expires_at)',
  'CREATE INDEX record_owner ON record (owner)',
  'CREATE INDEX record_expiry ON record (expires_at)',
  'CREATE INDEX record_bound_expiry ON record_bound (expires_at)',
  'CREATE INDEX bus_expiry ON bus (expires_at)',
  ...APPROVAL_INDEXES,
  ...OPERATOR_INDEXES,
  ...PERMIT_INDEXES,
  ...LABEL_INDEXES,
  ...ALARM_INDEXES,
]

const INDEX_NAMES = INDEXES.map((sql) => sql.split(' ')[2] ?? '')

/** Each entry upgrades the tables to its version. Released entries never change. */
const MIGRATIONS: readonly Migration[] = [
  { version: 6, minCompatible: 6, sql: TABLES },
  { version: 7, minCompatible: 6, sql: APPROVAL_TABLES },
  // An earlier release would run the tasks of a paused tool.
  { version: 8, minCompatible: 8, sql: OPERATOR_TABLES },
  { version: 9, minCompatible: 8, sql: PERMIT_TABLES },
  { version: 10, minCompatible: 8, sql: LABEL_TABLES },
  { version: 11, minCompatible: 8, sql: ALARM_TABLES },
]

const SCHEMA = schemaOf(MIGRATIONS)

/** Blocks the event loop, so it is short; the commit queue does the longer waits. */
const BLOCKING_MS = 20

/** A journal that an unusually large transaction left longer than this is truncated. */
const JOURNAL_BYTES = 4 * 1024 * 1024

/** Opens the file, creating it if it does not exist. Reads nothing yet. */
export function openFile(file: string): SqliteConnection {
  createFile(file)
  return openSqlite(file)
}

/** Opens and prepares the file. */
export function openDatabase(file: string): SqliteConnection {
  const connection = openFile(file)
  prepareDatabase(connection, file)
  return connection
}

/** For reading only: the file must exist and hold our tables, of a version that this release can read. */
export function openForReading(file: string): SqliteConnection {
  const connection = openQueryOnly(file)
  try {
    const { state, tables } = connection.read(() => ({
      state: readState(connection),
      tables: connection.prepare(FIND_TABLES).get()?.tables,
    }))
    if (state.version === 0 || tables !== 3) throw notOurs(file)
    SCHEMA.assertReadable(state, file)
  } catch (error) {
    connection.close()
    throw isBusy(error) || error instanceof RondoError ? error : notOurs(file, error)
  }
  return connection
}

/** For an operator: reads whatever is there. */
export function checkFile(file: string): StoreCheck {
  const connection = openQueryOnly(file)
  try {
    return connection.read(() => {
      const state = readState(connection)
      const obstacle = SCHEMA.obstacle(state, file)
      const named = new Set(
        connection
          .prepare(FIND_INDEXES)
          .all()
          .map((row) => row.name),
      )
      const lacking = state.version === 0 ? [] : INDEX_NAMES.filter((name) => !named.has(name))
      const damage = connection
        .prepare('PRAGMA quick_check(10)')
        .all()
        .map((row) => String(row.quick_check))
      const problems = [
        ...(obstacle === undefined ? [] : [obstacle]),
        ...lacking.map((name) => `The index ${name} is missing: rondo store migrate builds it`),
        ...damage.filter((line) => line !== 'ok').map((line) => `The file is damaged: ${line}`),
      ]
      return { ...state, supported: SCHEMA.version, problems }
    })
  } catch (error) {
    throw isBusy(error) || error instanceof RondoError ? error : notOurs(file, error)
  } finally {
    connection.close()
  }
}

/** Creates the indexes that are missing. Called inside a write transaction. */
function buildIndexes(connection: SqliteConnection): void {
  const named = new Set(
    connection
      .prepare(FIND_INDEXES)
      .all()
      .map((row) => row.name),
  )
  for (const [i, name] of INDEX_NAMES.entries()) if (!named.has(name)) connection.exec(INDEXES[i] ?? '')
}

const FIND_INDEXES = "SELECT name FROM sqlite_schema WHERE type = 'index'"

const FIND_TABLES = `SELECT count(*) AS tables FROM sqlite_schema
  WHERE type = 'table' AND name IN ('meta', 'task', 'journal')`

/**
 * Not SQLite's own read-only connection, which leaves the files of a write-ahead log behind and cannot recover what a
 * crashed writer left.
 */
function openQueryOnly(file: string): SqliteConnection {
  try {
    accessSync(file)
    const connection = openSqlite(file)
    connection.exec('PRAGMA query_only = ON')
    return connection
  } catch (error) {
    throw error instanceof TypeError ? error : notOurs(file, error)
  }
}

const notOurs = (file: string, cause?: unknown): RondoError =>
  new RondoError('STORE_SCHEMA', `${file} is not a Rondo store`, { cause })

/** Version 0 if there are no tables. */
function readState(connection: SqliteConnection): SchemaState {
  const version = Number(connection.prepare('PRAGMA user_version').get()?.user_version)
  const least = "SELECT value FROM meta WHERE key = 'min_compatible'"
  const has = connection.prepare("SELECT 1 FROM sqlite_schema WHERE name = 'meta'").get() !== undefined
  const minCompatible = has ? Number(connection.prepare(least).get()?.value ?? version) : version
  return { version, minCompatible }
}

/**
 * Readable by its user alone. A file that exists is not opened here, because closing it would drop the locks that other
 * connections of this process hold on it.
 */
function createFile(file: string): void {
  mkdirSync(dirname(file), { recursive: true })
  try {
    closeSync(openSync(file, 'wx', 0o600))
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
  }
}

/** Sets the journal mode, upgrades the tables and checks the epoch. If it throws, it can be retried on the same connection. */
export function prepareDatabase(connection: SqliteConnection, file: string): void {
  connection.prepare(`PRAGMA busy_timeout = ${BLOCKING_MS}`).get()
  chooseJournal(connection, file)
  connection.exec('PRAGMA synchronous = FULL')
  connection.exec(`PRAGMA journal_size_limit = ${JOURNAL_BYTES}`)
  connection.exec('BEGIN IMMEDIATE')
  try {
    const state = readState(connection)
    SCHEMA.assertUsable(state, file)
    assertJournal(connection, file)
    for (const { sql, version, minCompatible } of SCHEMA.missing(state)) {
      connection.exec(`${sql}; PRAGMA user_version = ${version};
        INSERT OR REPLACE INTO meta (key, value) VALUES ('min_compatible', '${minCompatible}')`)
    }
    // A later release may have replaced some.
    if (state.version <= SCHEMA.version) buildIndexes(connection)
    renewEpochIfCopied(connection, file)
    connection.exec('COMMIT')
  } catch (error) {
    connection.exec('ROLLBACK')
    throw error
  }
}

/**
 * A file keeps the journal mode it was created with, so that processes with different versions of SQLite can share it: a
 * write-ahead log where the creating version resets one safely, else a rollback journal. A version that does not can
 * convert a file that no other process has open; otherwise it refuses to open it.
 *
 * PERSIST overwrites the header of the rollback journal with zeros instead of truncating the file: as durable, without a
 * write of its length with every commit.
 */
function chooseJournal(connection: SqliteConnection, file: string): void {
  const { isNew, hasLog } = connection.read(() => ({
    isNew: connection.prepare('SELECT 1 FROM sqlite_schema').get() === undefined,
    hasLog: usesLog(connection),
  }))
  // Writes the first page, and takes effect only then. Without it, a file keeps the length that it once had.
  if (isNew && !hasLog) connection.exec('PRAGMA auto_vacuum = INCREMENTAL')
  const isSafe = resetsLogSafely(connection)
  if (isSafe && hasLog) return
  if (isSafe && isNew) return connection.exec('PRAGMA journal_mode = WAL')
  try {
    connection.exec('PRAGMA journal_mode = PERSIST')
  } catch (error) {
    throw hasLog && isBusy(error) ? cannotShare(file, error) : error
  }
}

/** Another process may have just created the file. Called inside a write transaction. */
function assertJournal(connection: SqliteConnection, file: string): void {
  if (usesLog(connection) && !resetsLogSafely(connection)) throw cannotShare(file)
}

const usesLog = (connection: SqliteConnection): boolean =>
  connection.prepare('PRAGMA journal_mode').get()?.journal_mode === 'wal'

/** Before 3.51.3, SQLite could corrupt a write-ahead log when it reset it. */
function resetsLogSafely(connection: SqliteConnection): boolean {
  const version = String(connection.prepare('SELECT sqlite_version() AS version').get()?.version)
  const [major = 0, minor = 0, patch = 0] = version.split('.').map(Number)
  return major * 1_000_000 + minor * 1000 + patch >= 3_051_003
}

function cannotShare(file: string, cause?: unknown): RondoError {
  const detail =
    `${file} has a write-ahead log and is open in another process. The SQLite of this process is older than 3.51.3 and cannot share it: ` +
    'use Node 22.23 or later here too, or stop the other processes first'
  return new RondoError('STORE_SCHEMA', detail, { cause })
}

/** A restored copy has another inode and may lack records of single use, so it gets a new epoch. */
function renewEpochIfCopied(connection: SqliteConnection, file: string): void {
  const inode = String(statSync(file, { bigint: true }).ino)
  const known = connection.prepare("SELECT value FROM meta WHERE key = 'inode'").get()?.value
  if (known === inode) return
  const put = connection.prepare('INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)')
  put.run('inode', inode)
  put.run('epoch', createEpoch())
}
