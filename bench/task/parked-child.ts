/** Parks tasks, and tells what they cost this process and the database: `parked-child.js ADDRESS COUNT`. */

import { statSync } from 'node:fs'
import pg from 'pg'
import { createLeaseEngine } from '../../src/store/lease-engine.ts'
import type { TaskEngine } from '../../src/store/task-engine.ts'
import { openStore, settle } from './rondo.ts'
import { KEY, newTask, QUESTION } from './row.ts'
import { AT_ONCE, type StoreAddress } from './subject.ts'

export interface ParkedCost {
  readonly count: number
  readonly rssBefore: number
  readonly rssAfter: number
  readonly heapBefore: number
  readonly heapAfter: number
  /** Bytes in the database for each of them. */
  readonly rowBytes: number
}

/** Enough for compilers and allocators to have settled. */
const WARM_UP = 5_000

const [address = '', count = '1000'] = process.argv.slice(2)
const target = JSON.parse(address) as StoreAddress
const store = openStore(target)
const engine = createLeaseEngine(store)
const inputs = new Map([[KEY, QUESTION]])
const serving = await engine.serve(async () => ({ kind: 'park', inputs }), { concurrency: AT_ONCE })

async function park(engine: TaskEngine, count: number): Promise<void> {
  let left = count
  const client = async (): Promise<void> => {
    while (left-- > 0) await engine.create(newTask())
  }
  await Promise.all(Array.from({ length: AT_ONCE }, client))
}

function memory(): { rss: number; heap: number } {
  globalThis.gc?.()
  const { rss, heapUsed, external } = process.memoryUsage()
  return { rss, heap: heapUsed + external }
}

async function databaseBytes(where: StoreAddress): Promise<number> {
  if (where.kind === 'sqlite') return statSync(where.file).size
  const client = new pg.Client({ connectionString: where.connectionString })
  await client.connect()
  const { rows } = await client.query(`SELECT pg_total_relation_size('${where.schema}.task') AS bytes`)
  await client.end()
  return Number(rows[0]?.bytes)
}

await park(engine, WARM_UP)
await settle(store, WARM_UP)
const [before, bytes] = [memory(), await databaseBytes(target)]
await park(engine, Number(count))
await settle(store, WARM_UP + Number(count))
const after = memory()
const cost: ParkedCost = {
  count: Number(count),
  rssBefore: before.rss,
  rssAfter: after.rss,
  heapBefore: before.heap,
  heapAfter: after.heap,
  rowBytes: ((await databaseBytes(target)) - bytes) / Number(count),
}
await serving.stop()
await store.close()
process.send?.(cost, () => process.exit())
