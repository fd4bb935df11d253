import { randomBytes } from 'node:crypto'
import pg from 'pg'
import {
  createPostgresStore,
  type PostgresStoreOptions,
} from '../../../packages/rondo/src/store/postgres/store.ts'
import type { Store } from '../../../packages/rondo/src/store/store.ts'
import type { TestPostgres } from '../postgres-server.ts'
import type { Database } from './store-harness.ts'

/** A separate schema in a running server; dropped at the end. */
export function createPostgresDatabase(server: TestPostgres, options: PostgresStoreOptions = {}): Database {
  const schema = `t_${randomBytes(6).toString('hex')}`
  const { connectionString } = server
  const stores: Store[] = []
  return {
    address: { kind: 'postgres', connectionString, schema },
    open(now) {
      const store = createPostgresStore({ connectionString, schema, now, maxConnections: 5, ...options })
      stores.push(store)
      return store
    },
    async close() {
      await Promise.all(stores.map((store) => store.close()))
      const client = new pg.Client({ connectionString })
      await client.connect()
      await client.query('SET client_min_messages = warning')
      await client.query(`DROP SCHEMA IF EXISTS ${schema} CASCADE`)
      await client.end()
    },
  }
}
