/**
 * The parts that a SQLite store shares: the connection, statements, the commit queue, the clock, the hints. Nothing is
 * opened before the first statement runs, so that a server which never uses its store leaves no file behind.
 *
 * Group commit: all writes of one turn of the event loop share a transaction, and so its wait for the disk. A write
 * resolves after the commit, never before. It must be repeatable: if one of them throws, the transaction is rolled back and
 * each runs in its own, so that only the faulty one fails. While another process holds the file, writes wait for a bounded
 * time without blocking this process.
 */

import { createRequire } from 'node:module'
import { misuse, RondoError } from '../../errors.ts'
import { createHintBus, type Hint, type HintBus } from '../task-store.ts'

export interface SqliteDatabase {
  /** A statement that is compiled on first use. */
  sql(text: string): SqliteStatement
  readonly queue: CommitQueue
  /** Reads at once; throws if the file is locked. */
  peek<T>(op: () => T): T
  readonly hints: HintBus
  publish(hint: Hint): void
  readonly now: () => number
  close(): Promise<void>
}

/** Calls `fn` soon, when there may be more to commit. */
export type Defer = (fn: () => void) => void

interface DatabaseOptions {
  readonly busyMs: number
  readonly now: () => number
  /** Default: in the next turn of the event loop. */
  readonly defer?: Defer
  /**
   * Called before the first statement, and retried until it succeeds, always on the same connection: one that was closed may
   * hold its locks until it is garbage-collected.
   */
  readonly prepare: (connection: SqliteConnection) => void
  /** Starts to watch for writes of other processes; returns a function that stops it. */
  readonly attach: (database: SqliteDatabase) => () => void
}

export function createDatabase(
  connect: () => SqliteConnection,
  { busyMs, now, attach, prepare, defer }: DatabaseOptions,
): SqliteDatabase {
  let connection: SqliteConnection | undefined
  let prepared = false
  let closed = false
  const open = () => {
    if (closed) throw misuse('This store is closed')
    connection ??= connect()
    if (!prepared) prepare(connection)
    prepared = true
    return connection
  }
  const sql = (text: string): SqliteStatement => {
    let compiled: SqliteStatement | undefined
    const ready = () => {
      // Called each time, because a driver may still run statements of a file that was closed.
      const opened = open()
      compiled ??= opened.prepare(text)
      return compiled
    }
    return {
      get: (...values) => ready().get(...values),
      all: (...values) => ready().all(...values),
      run: (...values) => ready().run(...values),
    }
  }
  const queue = createCommitQueue(open, busyMs, defer)
  const hints = createHintBus(() => attach(database))
  const database: SqliteDatabase = {
    sql,
    queue,
    peek: (op) => open().read(op),
    hints,
    publish: hints.publish,
    now,
    async close() {
      hints.close()
      await queue.close()
      closed = true
      connection?.close()
      connection = undefined
    },
  }
  return database
}

interface Write {
  readonly op: () => unknown
  readonly resolve: (result: never) => void
  readonly reject: (error: unknown) => void
  readonly since: number
}

/** Writes that were not done, because another process holds the file. */
interface Blocked {
  readonly writes: readonly Write[]
  readonly error: unknown
}

export interface CommitQueue {
  /** Runs `op` in a transaction. */
  write<T>(op: () => T): Promise<T>
  /** Runs `op`, which only reads. */
  read<T>(op: () => T): Promise<T>
  /** Refuses new writes; resolves when the queued ones are done. */
  close(): Promise<void>
}

/** A transaction blocks the event loop, so it must stay short. */
const MAX_BATCH = 256

export function createCommitQueue(
  open: () => SqliteConnection,
  busyMs: number,
  defer: Defer = setImmediate,
): CommitQueue {
  let queue: Write[] = []
  let scheduled = false
  let closed = false
  let tries = 0

  const transact = (writes: readonly Write[]): unknown[] => {
    const connection = open()
    connection.exec('BEGIN IMMEDIATE')
    try {
      const results = writes.map(({ op }) => op())
      connection.exec('COMMIT')
      return results
    } catch (error) {
      rollbackQuietly(connection)
      throw error
    }
  }
  const attempt = (writes: readonly Write[]): Blocked | undefined => {
    try {
      const results = transact(writes)
      writes.forEach(({ resolve }, i) => {
        resolve(results[i] as never)
      })
    } catch (error) {
      if (isBusy(error)) return { writes, error }
      if (writes.length > 1) return attemptEach(writes)
      writes[0]?.reject(toStoreError(error))
    }
    return undefined
  }
  const attemptEach = (writes: readonly Write[]): Blocked | undefined => {
    for (const [i, write] of writes.entries()) {
      const blocked = attempt([write])
      if (blocked) return { ...blocked, writes: writes.slice(i) }
    }
    return undefined
  }
  const flush = () => {
    scheduled = false
    const blocked = attempt(queue.splice(0, MAX_BATCH))
    if (blocked) queue = [...rejectOld(blocked, busyMs), ...queue]
    tries = blocked ? tries + 1 : 0
    schedule()
  }
  const schedule = () => {
    if (scheduled || queue.length === 0) return
    scheduled = true
    if (tries === 0) defer(flush)
    else setTimeout(flush, pause(tries))
  }
  return {
    write: (op) =>
      new Promise((resolve, reject) => {
        // Under load there is always a next write: closing must not wait for it.
        if (closed) return reject(misuse('This store is closed'))
        queue.push({ op, resolve, reject, since: performance.now() })
        schedule()
      }),
    read: (op) => readPatiently(() => open().read(op), busyMs),
    async close() {
      closed = true
      while (queue.length > 0) await new Promise(setImmediate)
    },
  }
}

/** Some failures, such as a full disk, have already ended the transaction. */
function rollbackQuietly(connection: SqliteConnection): void {
  try {
    connection.exec('ROLLBACK')
  } catch {}
}

/** With jitter, so that two processes do not collide again and again. */
const pause = (tries: number): number => Math.random() * Math.min(2 ** tries, 50)

function rejectOld({ writes, error: cause }: Blocked, busyMs: number): Write[] {
  return writes.filter(({ since, reject }) => {
    if (performance.now() - since < busyMs) return true
    reject(new RondoError('STORE_UNAVAILABLE', 'another process kept the SQLite file locked', { cause }))
    return false
  })
}

async function readPatiently<T>(op: () => T, busyMs: number): Promise<T> {
  const until = performance.now() + busyMs
  for (let tries = 1; ; tries++) {
    try {
      return op()
    } catch (error) {
      if (!isBusy(error) || performance.now() > until) throw toStoreError(error)
      await new Promise((resolve) => setTimeout(resolve, pause(tries)))
    }
  }
}

/*
 * One interface for two synchronous drivers: `node:sqlite` where Node has it, else the package `libsql`, loaded only here.
 *
 * A statement of libsql 0.5 that fails because the file is locked stays in progress until it is run again or
 * garbage-collected, and keeps any lock it was granted meanwhile: two processes can then deadlock. So a statement runs
 * only inside a transaction whose lock was taken with `exec`, which always cleans up. `read` does that for reads.
 */

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

/** The interface that both drivers have in common. */
interface Driver {
  exec(sql: string): unknown
  prepare(sql: string): {
    get(...values: SqlValue[]): unknown
    all(...values: SqlValue[]): unknown
    run(...values: SqlValue[]): { changes: number | bigint }
  }
  close(): void
}

interface NodeSqlite {
  readonly DatabaseSync: new (file: string) => Driver
}

export function openSqlite(file: string): SqliteConnection {
  const builtIn = process.getBuiltinModule('node:sqlite') as NodeSqlite | undefined
  if (builtIn?.DatabaseSync) return wrap(new builtIn.DatabaseSync(file), (op) => op())
  const database = new (loadLibsql())(file)
  return wrap(database, (op) => readLocked(database, op))
}

function loadLibsql(): new (file: string) => Driver {
  try {
    return createRequire(import.meta.url)('libsql') as new (
      file: string,
    ) => Driver
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
function readLocked<T>(database: Driver, op: () => T): T {
  database.exec('BEGIN')
  try {
    database.exec('SELECT 1 FROM sqlite_schema LIMIT 1')
    return op()
  } finally {
    database.exec('COMMIT')
  }
}

function wrap(database: Driver, read: SqliteConnection['read']): SqliteConnection {
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
function toStoreError(error: unknown): Error {
  if (error instanceof RondoError || error instanceof TypeError) return error
  return new RondoError(
    'STORE_UNAVAILABLE',
    SENTENCES[resultOf(error)] ?? 'SQLite could not complete the operation',
    {
      cause: error,
    },
  )
}

/** Advice for an operator, by SQLite's result code. */
const SENTENCES: Readonly<Record<number, string>> = {
  8: 'The SQLite file is read-only for this process: correct its permissions, or leave out readOnly',
  13: 'The disk of the SQLite file is full',
  14: 'The SQLite file cannot be opened: pass the path of a file, not of a folder, that this process may read and write',
  26: 'The file is not a SQLite database: pass the path of another one to createSqliteStore({ file })',
}
const NAMED: Readonly<Record<string, number>> = {
  SQLITE_READONLY: 8,
  SQLITE_FULL: 13,
  SQLITE_CANTOPEN: 14,
  SQLITE_NOTADB: 26,
}

/** Of `node:sqlite`, of `libsql`, and of `libsql` that could not open a file, which tells it in the message alone. */
function resultOf(error: unknown): number {
  if (!(error instanceof Error)) return 0
  const { errcode, code } = error as { errcode?: unknown; code?: unknown }
  if (typeof errcode === 'number') return errcode & 0xff
  if (typeof code === 'string' && code !== '') return NAMED[code.split('_').slice(0, 2).join('_')] ?? 0
  return Number(/^ConnectionFailed\(.*: (\d+)"\)$/.exec(error.message)?.[1] ?? 0)
}
