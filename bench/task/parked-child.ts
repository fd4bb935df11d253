/** Parks tasks, and reports what they cost this process and the database: `parked-child.js ADDRESS COUNT`. */

import { statSync } from 'node:fs'
import pg from 'pg'
import { createLeaseEngine } from '../../packages/rondo/src/store/engine/lease-engine.ts'
import { openStore, settle } from './rondo.ts'
import { KEY, newTask, QUESTION } from './row.ts'
import { AT_ONCE, type StoreAddress } from './subject.ts'

export interface ParkedCost {
  readonly kind: 'parked'
  readonly count: number
  readonly rssBefore: number
  readonly rssAfter: number
  readonly heapBefore: number
  readonly heapAfter: number
  /** Bytes in the database for each of them. */
  readonly rowBytes: number
}

/** Enough for compilers and allocators to settle. */
const WARM_UP = 5_000

const [address = '', count = '1000'] = process.argv.slice(2)
const target = JSON.parse(address) as StoreAddress
const store = openStore(target)
const inputs = new Map([[KEY, QUESTION]])
let onParked = (): void => {}
const engine = createLeaseEngine(store, {
  statsMs: 3_600_000,
  onEvent(event) {
    if (event.kind === 'store-error') throw event.error
    if (event.kind === 'turn' && event.outcome === 'park') onParked()
  },
})
const serving = await engine.serve(async () => ({ kind: 'park', inputs }), { concurrency: AT_ONCE })

/** As many at a time as there are clients; the next one starts when one has parked. */
function park(count: number): Promise<void> {
  return new Promise((resolve) => {
    let begun = 0
    let parked = 0
    const begin = (): void => {
      if (begun++ < count) void engine.create(newTask())
    }
    onParked = () => {
      begin()
      if (++parked === count) resolve()
    }
    for (let client = 0; client < AT_ONCE; client++) begin()
  })
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

await park(WARM_UP)
await settle(store, WARM_UP)
const [before, bytes] = [memory(), await databaseBytes(target)]
await park(Number(count))
await settle(store, WARM_UP + Number(count))
const after = memory()
const cost: ParkedCost = {
  kind: 'parked',
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
