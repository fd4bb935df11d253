/** The stores that a fleet can share, each as one database with a handle for every instance. */

import type { Store } from 'rondo'
import type { PostgresStoreOptions } from 'rondo/postgres'
import { onTestFinished } from 'vitest'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import type { TestPostgres } from './postgres-server.ts'
import { createPostgresDatabase } from './store/postgres-database.ts'
import { createSqliteDatabase } from './store/sqlite-database.ts'

export type OpenHandle = () => Store

/** Within one process the instances share the memory store itself. */
export function shareMemory(): Promise<OpenHandle> {
  const store = createMemoryStore()
  return Promise.resolve(() => store)
}

export async function shareSqlite(): Promise<OpenHandle> {
  const database = await createSqliteDatabase()
  // Registered before the servers, so it runs after they are closed.
  onTestFinished(() => database.close())
  return () => database.open()
}

export async function sharePostgres(
  server: TestPostgres,
  options?: PostgresStoreOptions,
): Promise<OpenHandle> {
  const database = createPostgresDatabase(server, options)
  onTestFinished(() => database.close())
  return () => database.open()
}
