/** A database that the instances of the fixture share, created for one run and deleted after it. */

import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { startPostgres } from '../support/postgres-server.ts'

export const STORES: readonly string[] = ['sqlite', 'postgres']

export interface SharedStore {
  /** Environment variables that tell the fixture server where the database is. */
  readonly env: Readonly<Record<string, string>>
  close(): Promise<void>
}

export async function openSharedStore(kind: string | undefined): Promise<SharedStore> {
  if (kind === 'postgres') {
    const { connectionString, stop } = await startPostgres({ fsync: false })
    return { env: { CONFORMANCE_POSTGRES: connectionString }, close: stop }
  }
  if (kind === undefined) return { env: {}, close: async () => {} }
  const folder = await mkdtemp(join(tmpdir(), 'rondo-conformance-store-'))
  return {
    env: { CONFORMANCE_SQLITE: join(folder, 'tasks.db') },
    close: () => rm(folder, { recursive: true }),
  }
}
