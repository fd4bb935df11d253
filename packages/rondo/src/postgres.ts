export type { PgClient, PgPool, PgRow } from './store/postgres/driver.ts'
export { createPostgresStore, type PostgresStoreOptions } from './store/postgres/store.ts'
export type { BlobStore, Bus, OnceStore, RecordStore, Store } from './store/store.ts'
export type { TaskStore } from './store/task-store.ts'
