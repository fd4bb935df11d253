/**
 * What the parts of a SQLite store share. Nothing is opened until the first statement runs, so that a server which
 * never uses its store leaves no file behind.
 */

import { misuse } from '../../errors.ts'
import { createHintBus, type HintBus } from '../hint-bus.ts'
import { processTag } from '../process-tag.ts'
import { type CommitQueue, createCommitQueue } from './commit-queue.ts'
import type { SqliteConnection, SqliteStatement } from './sqlite-driver.ts'

export interface SqliteSession {
  /** A statement that is compiled when it is first used. */
  sql(text: string): SqliteStatement
  readonly queue: CommitQueue
  /** Looks once, at once; throws if the file is locked. */
  peek<T>(op: () => T): T
  readonly hints: HintBus
  readonly now: () => number
  close(): Promise<void>
}

export interface SessionOptions {
  readonly busyMs: number
  readonly now: () => number
  /**
   * Done before the first statement, and again until it was. A connection that was closed may go on holding its locks until it
   * is collected, so one that could not be prepared is not replaced by another.
   */
  readonly prepare: (connection: SqliteConnection) => void
  /** Begins to look for what other processes write; gives the end of it. */
  readonly attach: (session: SqliteSession) => () => void
}

/** A worker as rows name it: with its process, so that others can tell when that has ended. */
export const workerName = (worker: string): string => `${processTag()} ${worker}`

export function createSession(
  connect: () => SqliteConnection,
  { busyMs, now, attach, prepare }: SessionOptions,
): SqliteSession {
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
      // Asked each time: a driver may go on serving statements of a file that was closed.
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
  const queue = createCommitQueue(open, busyMs)
  const hints = createHintBus(() => attach(session))
  const session: SqliteSession = {
    sql,
    queue,
    peek: (op) => open().read(op),
    hints,
    now,
    async close() {
      hints.close()
      await queue.close()
      closed = true
      connection?.close()
      connection = undefined
    },
  }
  return session
}
