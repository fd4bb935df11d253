/** Records and the bus in SQLite: what instances on one machine share of sessions, and how they notify each other. */

import { BUS_LIMITS, createBus } from '../bus.ts'
import { type Bus, RECORD_BYTES, type RecordStore } from '../store.ts'
import type { SqliteDatabase } from './database.ts'

export function createRecords({ sql, queue, now }: SqliteDatabase): RecordStore {
  const find = sql('SELECT sealed, version, touched_at FROM record WHERE id = ? AND expires_at > ?')
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
        const bytes = Number(others.get(owner, id, now())?.bytes) + sealed.length + RECORD_BYTES
        if (bytes > maxBytes) return 'limit'
        insert.run(id, owner, sealed, version + 1, now(), now() + ttlMs)
        return 'stored'
      }),
    async touch(ids) {
      if (ids.length > 0) await queue.write(() => ids.forEach((id) => void touch.run(now(), id)))
    },
    remove: (id) => queue.write(() => void remove.run(id)),
  }
}

/** Writes of other processes are noticed by SQLite's change counter; those of this one are hinted at here. */
export function createSqliteBus({ sql, queue, now, hints }: SqliteDatabase): Bus {
  const append = sql('INSERT INTO bus (message, expires_at) VALUES (?, ?)')
  const newest = sql("SELECT seq FROM sqlite_sequence WHERE name = 'bus'")
  const shorten = sql('DELETE FROM bus WHERE position <= ?')
  const read = sql('SELECT position, message FROM bus WHERE position > ? ORDER BY position LIMIT ?')
  const oldest = sql('SELECT min(position) AS position FROM bus')
  const own = new Set<() => void>()
  return createBus({
    // Only for a change that was seen while the file was locked.
    pollMs: 1_000,
    async append(messages) {
      await queue.write(() => {
        for (const message of messages) append.run(message, now() + BUS_LIMITS.keepMs)
        shorten.run(Number(newest.get()?.seq ?? 0) - BUS_LIMITS.keepRows)
      })
      for (const listener of [...own]) listener()
    },
    async read(after, limit) {
      return queue.read(() => {
        const rows = read.all(after, limit).map(({ position, message }) => ({
          position: Number(position),
          message: String(message),
        }))
        return rows.length === 0 ? { rows } : { rows, oldest: Number(oldest.get()?.position) }
      })
    },
    newest: () => queue.read(() => Number(newest.get()?.seq ?? 0)),
    onHint(listener) {
      const wrapped = (): void => listener()
      own.add(wrapped)
      const stop = hints.onHint(({ kind }) => {
        if (kind === 'changed') listener()
      })
      return () => {
        own.delete(wrapped)
        stop()
      }
    },
  })
}
