/**
 * The stores that schedules run on. All of them get the time of the world; a schedule begins with an empty store.
 *
 * The one in memory needs nothing else. SQLite works in this thread, and its commits are events of the world. PostgreSQL is a
 * real server: while one of its statements runs, the world stands still, so the time that it takes changes nothing.
 * The order in which it returns rows that nothing orders is its own, so it may repeat a schedule differently. Messages between
 * instances (`LISTEN`, SQLite's change counter) are off in both: instances poll, and schedules with older clients have a bus of the
 * simulator's own (`fleet.ts`). A crash of a real database only breaks its connections;
 * `npm run test:chaos` ends the server itself.
 */

import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import type { Store } from 'rondo/store'
import { startPostgres } from '../support/postgres-server.ts'
import type { Runtime } from './runtime.ts'

export const STORES = ['memory', 'sqlite', 'postgres'] as const
export type StoreKind = (typeof STORES)[number]

export interface Stores {
  readonly kind: StoreKind
  /** Returns an empty store. */
  open(runtime: Runtime, now: () => number): Promise<Store>
  /** Whether a statement is running that the world has to wait for. */
  busy(): boolean
  close(): Promise<void>
}

export const inMemory: Stores = {
  kind: 'memory',
  open: async (runtime, now) => runtime.createMemoryStore({ now }),
  busy: () => false,
  close: async () => {},
}

export async function openStores(kind: StoreKind): Promise<Stores> {
  if (kind === 'memory') return inMemory
  return kind === 'sqlite' ? onSqlite() : onPostgres()
}

/** No other process writes, so nobody polls. */
const NEVER_MS = 2 ** 31 - 1

function onSqlite(): Stores {
  const folder = mkdtempSync(join(tmpdir(), 'rondo-sim-'))
  let opened = 0
  let last: Store | undefined
  const end = async (): Promise<void> => {
    await last?.close()
    rmSync(join(folder, `${opened}.db`), { force: true })
  }
  return {
    kind: 'sqlite',
    async open(runtime, now) {
      await end()
      opened++
      last = runtime.createSqliteStore({ file: join(folder, `${opened}.db`), now, pollMs: NEVER_MS })
      return last
    },
    busy: () => false,
    async close() {
      await end()
      rmSync(folder, { recursive: true, force: true })
    },
  }
}

async function onPostgres(): Promise<Stores> {
  const server = await startPostgres({ fsync: false })
  const pool = new pg.Pool({ connectionString: server.connectionString, max: 4 })
  // Every store that was opened on it listens.
  pool.setMaxListeners(0)
  let running = 0
  const counted = <A extends unknown[], T>(run: (...args: A) => Promise<T>) => {
    return async (...args: A): Promise<T> => {
      running++
      try {
        return await run(...args)
      } finally {
        running--
      }
    }
  }
  const watched = {
    query: counted((text: string, values?: unknown[]) => pool.query(text, values)),
    connect: counted(async () => {
      const client = await pool.connect()
      const query = counted((text: string, values?: unknown[]) => client.query(text, values))
      return { query, release: client.release.bind(client), on: client.on.bind(client) }
    }),
    end: async () => {},
    on: pool.on.bind(pool),
  }
  return {
    kind: 'postgres',
    async open(runtime, now) {
      const { rows } = await pool.query(
        "SELECT tablename FROM pg_tables WHERE schemaname = 'rondo' AND tablename <> 'meta'",
      )
      const tables = rows.map(({ tablename }) => `rondo.${tablename}`)
      if (tables.length > 0) await pool.query(`TRUNCATE ${tables.join()}`)
      return runtime.createPostgresStore({ pool: watched, now, listen: false, retryMs: 0 })
    },
    busy: () => running > 0,
    async close() {
      await pool.end()
      await server.stop()
    },
  }
}
