/**
 * One face for two drivers: `node:sqlite` where Node has it, else the package `libsql`, which is loaded only here.
 * Both are synchronous. A statement is bound to values in order.
 */

import { createRequire } from 'node:module'
import { RondoError } from '../../errors.ts'

export type SqlValue = string | number | null
export type SqlRow = Readonly<Record<string, SqlValue>>

export interface SqliteStatement {
  get(...values: SqlValue[]): SqlRow | undefined
  all(...values: SqlValue[]): SqlRow[]
  /** Gives how many rows changed. */
  run(...values: SqlValue[]): number
}

export interface SqliteConnection {
  readonly driver: 'node:sqlite' | 'libsql'
  exec(sql: string): void
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
  if (builtIn?.DatabaseSync) return wrap('node:sqlite', new builtIn.DatabaseSync(file))
  return wrap('libsql', new (loadLibsql())(file))
}

function loadLibsql(): new (file: string) => Database {
  try {
    return createRequire(import.meta.url)('libsql') as new (
      file: string,
    ) => Database
  } catch (cause) {
    throw new TypeError(
      'This Node has no built-in SQLite: install the package "libsql", or use Node 22.13 or later',
      {
        cause,
      },
    )
  }
}

function wrap(driver: SqliteConnection['driver'], database: Database): SqliteConnection {
  return {
    driver,
    exec: (sql) => void database.exec(sql),
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

/** Somebody else holds the file for a moment: worth another try. */
export function isBusy(error: unknown): boolean {
  if (!(error instanceof Error)) return false
  const { code, errcode } = error as { code?: unknown; errcode?: unknown }
  if (typeof errcode === 'number') return (errcode & 0xff) === 5 || (errcode & 0xff) === 6
  return typeof code === 'string' && /^SQLITE_(BUSY|LOCKED)/.test(code)
}

/** What a caller gets when the database said no: our own errors as they are, all others as one. */
export function toStoreError(error: unknown): Error {
  if (error instanceof RondoError || error instanceof TypeError) return error
  return new RondoError('STORE_UNAVAILABLE', 'SQLite could not do it', { cause: error })
}
