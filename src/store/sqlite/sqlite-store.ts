/**
 * Tasks, single use and spilled journals in one file: the embedded default. Several processes may share the file, on
 * one machine; what one of them writes the others learn by looking at SQLite's own change counter.
 */

import { misuse } from '../../errors.ts'
import type { BlobStore } from '../blob-store.ts'
import { repeat, systemClock } from '../clock.ts'

import type { Store } from '../store.ts'
import type { SqliteConnection } from './sqlite-driver.ts'
import { createSqliteOnce } from './sqlite-once.ts'
import { createOperatorTasks } from './sqlite-operator-tasks.ts'
import { createOwnerTasks } from './sqlite-owner-tasks.ts'
import { openFile, openToLook, prepareDatabase } from './sqlite-schema.ts'
import { createSession, type SqliteSession } from './sqlite-session.ts'
import { createWorkerTasks } from './sqlite-worker-tasks.ts'

export interface SqliteStoreOptions {
  /** Where the database is; made if it is not there. On a local disk: network drives do not lock reliably. */
  file: string
  /** Only to look: the file must be there and have our tables; nothing in it is changed. */
  readOnly?: boolean
  /** How long to wait for other processes that hold the file, before an operation fails. */
  busyMs?: number
  /** How often to look whether another process wrote something. */
  pollMs?: number
  /** Ms since the epoch. */
  now?: () => number
}

export function createSqliteStore({ file, readOnly, ...options }: SqliteStoreOptions): Store {
  if (typeof file !== 'string' || file === '') {
    throw misuse("createSqliteStore takes the path of a file: createSqliteStore({ file: './data/tasks.db' })")
  }
  if (readOnly) return createStoreOn(() => openToLook(file), options)
  return createStoreOn(
    () => openFile(file),
    options,
    (connection) => prepareDatabase(connection, file),
  )
}

/** The store over a connection of the caller's choice, opened when it is first needed. */
export function createStoreOn(
  connect: () => SqliteConnection,
  { busyMs = 10_000, pollMs = 20, now = Date.now }: Omit<SqliteStoreOptions, 'file' | 'readOnly'>,
  prepare: (connection: SqliteConnection) => void = () => {},
): Store {
  const attach = (one: SqliteSession) => watchOthers(one, pollMs)
  const session = createSession(connect, { busyMs, now, attach, prepare })
  return {
    tasks: {
      pollMs: 250,
      onHint: session.hints.onHint,
      ...createOwnerTasks(session),
      ...createWorkerTasks(session),
      ...createOperatorTasks(session),
    },
    once: createSqliteOnce(session),
    blobs: createSqliteBlobs(session),
    ready: () => session.queue.write(() => {}),
    sweep: createSweep(session),
    close: session.close,
  }
}

/** SQLite's change counter moves when another connection commits, and only then. */
function watchOthers({ sql, peek, hints }: SqliteSession, pollMs: number): () => void {
  const version = sql('PRAGMA data_version')
  let last: unknown
  return repeat(
    systemClock,
    () => pollMs,
    () => {
      const now = readQuietly(() => peek(() => version.get()?.data_version))
      if (now === undefined || now === last) return
      const isFirst = last === undefined
      last = now
      if (isFirst) return
      hints.tell({ kind: 'changed' })
      hints.tell({ kind: 'due' })
    },
  )
}

/** The file may be locked for a moment, or closed: the next look will tell. */
function readQuietly<T>(read: () => T): T | undefined {
  try {
    return read()
  } catch {
    return undefined
  }
}

function createSqliteBlobs({ sql, queue, now }: SqliteSession): BlobStore {
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

function createSweep({ sql, queue, now }: SqliteSession): (limit: number) => Promise<number> {
  const expired = sql('SELECT id FROM task WHERE expires_at <= ? LIMIT ?')
  const dropTask = sql('DELETE FROM task WHERE id = ?')
  const dropJournal = sql('DELETE FROM journal WHERE task = ?')
  const dropOnce = sql(`DELETE FROM once WHERE (flow, round) IN
    (SELECT flow, round FROM once WHERE expires_at <= ? LIMIT ?)`)
  const dropBlobs = sql('DELETE FROM blob WHERE id IN (SELECT id FROM blob WHERE expires_at <= ? LIMIT ?)')
  return (limit) =>
    queue.write(() => {
      const ids = expired.all(now(), limit).map((row) => String(row.id))
      for (const id of ids) {
        dropJournal.run(id)
        dropTask.run(id)
      }
      return ids.length + dropOnce.run(now(), limit) + dropBlobs.run(now(), limit)
    })
}
