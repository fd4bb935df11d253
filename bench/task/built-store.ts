import { createPostgresStore } from 'rondo/postgres'
import { createSqliteStore } from 'rondo/sqlite'
import type { StoreAddress } from './subject.ts'

/** Opens a store of the package that the process was given, which may be that of another checkout. */
export function openBuiltStore(address: StoreAddress) {
  const { kind, ...options } = address
  return kind === 'sqlite' ? createSqliteStore(options as never) : createPostgresStore(options as never)
}
