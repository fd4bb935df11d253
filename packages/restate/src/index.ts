/** Tasks on Restate: an engine that replicates by itself. Needs the package `@restatedev/restate-sdk` and Node 22. */

export type { EndpointOptions } from './connection.ts'
export { createRestateStore, type RestateStoreOptions } from './store.ts'
