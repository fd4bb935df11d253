/** Tasks on Restate: an engine that replicates by itself. Needs the package `@restatedev/restate-sdk` and Node 22. */

export type { EndpointOptions } from './store/restate/connection.ts'
export { createRestateStore, type RestateStoreOptions } from './store/restate/store.ts'
export type { BlobStore, EngineStore, OnceStore } from './store/store.ts'
