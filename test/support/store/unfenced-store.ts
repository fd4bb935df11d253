/**
 * Stores without the fence, to show that the fence is what rejects late writes: the same SQL with that condition
 * replaced by one that is always true, and a journal that can be overwritten. And a store whose connections have no error listener.
 */

import pg from 'pg'
import type { PgPool } from '../../../packages/rondo/src/store/postgres/driver.ts'
import { createPostgresStore } from '../../../packages/rondo/src/store/postgres/store.ts'
import { FENCE as POSTGRES_FENCE } from '../../../packages/rondo/src/store/postgres/worker-tasks.ts'
import { openDatabase } from '../../../packages/rondo/src/store/sqlite/schema.ts'
import { createStoreOn } from '../../../packages/rondo/src/store/sqlite/store.ts'
import { FENCE as SQLITE_FENCE } from '../../../packages/rondo/src/store/sqlite/worker-tasks.ts'
import type { Store } from '../../../packages/rondo/src/store/store.ts'
import type { StoreAddress } from './store-harness.ts'

export function openUnfenced(address: StoreAddress): Store {
  return address.kind === 'sqlite' ? openSqlite(address.file) : openPostgres(address)
}

function weakenSqlite(sql: string): string {
  return sql
    .replaceAll(SQLITE_FENCE, 'id = ? AND ? >= 0 AND ? >= 0')
    .replaceAll('INSERT INTO journal', 'INSERT OR REPLACE INTO journal')
}

function openSqlite(file: string): Store {
  return createStoreOn(() => {
    const connection = openDatabase(file)
    return { ...connection, prepare: (sql) => connection.prepare(weakenSqlite(sql)) }
  }, {})
}

function weakenPostgres(sql: string): string {
  return sql
    .replaceAll(POSTGRES_FENCE, 't.id = q.id AND q.epoch >= 0 AND ($1::bigint IS NULL OR $1::bigint >= 0)')
    .replace(
      /AS e \(at, seq, entry\) USING \(at\)\)\s+SELECT at FROM held/,
      'AS e (at, seq, entry) USING (at) ON CONFLICT (task, seq) DO UPDATE SET entry = excluded.entry) SELECT at FROM held',
    )
}

function openPostgres({ connectionString, schema }: StoreAddress & { kind: 'postgres' }): Store {
  const pool = new pg.Pool({ connectionString, max: 5 })
  const weak: PgPool = {
    query: (text, values) => pool.query(weakenPostgres(text), values),
    connect: () => pool.connect(),
    end: () => pool.end(),
    on: pool.on.bind(pool),
  }
  return createPostgresStore({ pool: weak, schema })
}

/** A store that never sees the connections of its pool, and so cannot listen for their errors. */
export function openUnguarded(address: StoreAddress): Store {
  if (address.kind !== 'postgres') throw new TypeError('Only PostgreSQL has connections that can break')
  const { connectionString, schema } = address
  const pool = new pg.Pool({ connectionString, max: 10, application_name: 'rondo' })
  return createPostgresStore({ pool: unguard(pool), schema, retryMs: 20_000 })
}

export function unguard(pool: pg.Pool): PgPool {
  return {
    query: (text, values) => pool.query(text, values),
    connect: () => pool.connect(),
    end: () => pool.end(),
    on: (event: string, listener: (subject: never) => void) =>
      event === 'error' ? pool.on('error', listener as () => void) : pool,
  }
}
