/**
 * One interface for two synchronous drivers: `node:sqlite` where Node has it, else the package `libsql`, loaded only here.
 *
 * A statement of libsql 0.5 that fails because the file is locked stays in progress until it is run again or
 * garbage-collected, and keeps any lock it was granted meanwhile: two processes can then deadlock. So a statement runs
 * only inside a transaction whose lock was taken with `exec`, which always cleans up. `read` does that for reads.
 */

import { createRequire } from 'node:module'
import { misuse, RondoError } from '../../errors.ts'

export type SqlValue = string | number | null
export type SqlRow = Readonly<Record<string, SqlValue>>

export interface SqliteStatement {
  get(...values: SqlValue[]): SqlRow | undefined
  all(...values: SqlValue[]): SqlRow[]
  /** Returns how many rows changed. */
  run(...values: SqlValue[]): number
}

export interface SqliteConnection {
  exec(sql: string): void
  /** Runs statements that only read, not inside a transaction; throws an `isBusy` error if the file is locked. */
  read<T>(op: () => T): T
  prepare(sql: string): SqliteStatement
  close(): void
}

/** What both drivers have in common. */
interface Database {
  exec(sql: string): unknown
  prepare(sql: string): {
    get(...values: SqlValue[]): unknown
    all(...values: SqlValue[]): unknown
    run(...values: SqlValue[]): { changes: number | bigint }
  }
  close(): void
}

interface NodeSqlite {
  readonly DatabaseSync: new (file: string) => Database
}

export function openSqlite(file: string): SqliteConnection {
  const builtIn = process.getBuiltinModule('node:sqlite') as NodeSqlite | undefined
  if (builtIn?.DatabaseSync) return wrap(new builtIn.DatabaseSync(file), (op) => op())
  const database = new (loadLibsql())(file)
  return wrap(database, (op) => readLocked(database, op))
}

function loadLibsql(): new (file: string) => Database {
  try {
    return createRequire(import.meta.url)('libsql') as new (
      file: string,
    ) => Database
  } catch (cause) {
    throw misuse(
      'This version of Node has no built-in SQLite: install the package "libsql", or use Node 22.13 or later',
      {
        cause,
      },
    )
  }
}

/** Takes the shared lock with a first read by `exec`, so that later statements cannot find the file locked. */
function readLocked<T>(database: Database, op: () => T): T {
  database.exec('BEGIN')
  try {
    database.exec('SELECT 1 FROM sqlite_schema LIMIT 1')
    return op()
  } finally {
    database.exec('COMMIT')
  }
}

function wrap(database: Database, read: SqliteConnection['read']): SqliteConnection {
  return {
    exec: (sql) => void database.exec(sql),
    read,
    prepare(sql) {
      const statement = database.prepare(sql)
      return {
        get: (...values) => statement.get(...values) as SqlRow | undefined,
        all: (...values) => statement.all(...values) as SqlRow[],
        run: (...values) => Number(statement.run(...values).changes),
      }
    },
    close: () => database.close(),
  }
}

/** Another connection holds the file for a moment: retry. */
export function isBusy(error: unknown): boolean {
  if (!(error instanceof Error)) return false
  const { code, errcode } = error as { code?: unknown; errcode?: unknown }
  if (typeof errcode === 'number') return (errcode & 0xff) === 5 || (errcode & 0xff) === 6
  return typeof code === 'string' && /^SQLITE_(BUSY|LOCKED)/.test(code)
}

/** Our own errors unchanged; every other as `STORE_UNAVAILABLE`. */
export function toStoreError(error: unknown): Error {
  if (error instanceof RondoError || error instanceof TypeError) return error
  return new RondoError('STORE_UNAVAILABLE', 'SQLite could not complete the operation', { cause: error })
}
