export { createSqliteStore, type SqliteStoreOptions } from './store/sqlite/store.ts'
export type { BlobStore, Bus, OnceStore, RecordStore, Store } from './store/store.ts'
export type { TaskStore } from './store/task-store.ts'
