/**
 * Records and the bus in PostgreSQL: what instances share of sessions, and how they notify each other. A NOTIFY only says
 * that there is something to read; without it, polling finds it.
 */

import { BUS_LIMITS, createBus } from '../bus.ts'
import { type Bus, RECORD_BYTES, type RecordStore } from '../store.ts'
import { nowAt, type PostgresDatabase } from './database.ts'

export function createRecords({ query, now, schema }: PostgresDatabase): RecordStore {
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

export function createPostgresBus(database: PostgresDatabase, listens: boolean, pollMs: number): Bus {
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
