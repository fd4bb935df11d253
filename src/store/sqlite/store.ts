/**
 * Tasks, single use and spilled journals in one file: the embedded default. Several processes may share the file, on
 * one machine; what one of them writes the others learn by looking at SQLite's own change counter.
 */

import { misuse } from '../../errors.ts'
import { repeat, storeClock } from '../../lib/clock.ts'
import type { BlobStore, OnceClaim, OnceStore, Store } from '../store.ts'
import type { SqliteConnection } from './driver.ts'
import { createOwnerTasks } from './owner-tasks.ts'
import { createEpoch, openFile, openToLook, prepareDatabase } from './schema.ts'
import { createSession, type SqliteSession } from './session.ts'
import { createOperatorTasks, createWorkerTasks } from './worker-tasks.ts'

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
    storeClock,
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

/** Single use on SQLite: one write transaction looks and takes, so nobody comes in between. */
function createSqliteOnce({ sql, queue, now }: SqliteSession): OnceStore {
  const epoch = sql("SELECT value FROM meta WHERE key = 'epoch'")
  const setEpoch = sql("UPDATE meta SET value = ? WHERE key = 'epoch'")
  const find = sql('SELECT digest, claimant, hold_until, response FROM once WHERE flow = ? AND round = ?')
  const take = sql(`INSERT OR REPLACE INTO once (flow, round, digest, claimant, hold_until, expires_at)
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
    take.run(flow, round, digest, claimant, now() + holdMs, expiresAt)
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
