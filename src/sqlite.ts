export { createSqliteStore, type SqliteStoreOptions } from './store/sqlite/store.ts'
export type { BlobStore, OnceStore, Store } from './store/store.ts'
export type { TaskStore } from './store/task-store.ts'
