import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createSqliteStore } from '../../../packages/rondo/src/store/sqlite/store.ts'
import type { Store } from '../../../packages/rondo/src/store/store.ts'
import type { Database } from './store-harness.ts'

/** A separate file in a temporary folder; deleted at the end. */
export async function createSqliteDatabase(): Promise<Database & { readonly file: string }> {
  const folder = await mkdtemp(join(tmpdir(), 'rondo-sqlite-'))
  const file = join(folder, 'tasks.db')
  const stores: Store[] = []
  return {
    file,
    address: { kind: 'sqlite', file },
    open(now) {
      const store = createSqliteStore({ file, now })
      stores.push(store)
      return store
    },
    async close() {
      await Promise.all(stores.map((store) => store.close()))
      await rm(folder, { recursive: true })
    },
  }
}
