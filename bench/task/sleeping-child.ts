/**
 * Parks tasks until a time, and reports what they cost this process and how late they wake:
 * `sleeping-child.js ADDRESS COUNT DUE HERD`. COUNT tasks sleep through everything. Beside them, DUE tasks wake one per
 * millisecond, and then HERD tasks wake at one moment.
 */

import { createLeaseEngine } from '../../src/store/engine/lease-engine.ts'
import { median } from '../stat.ts'
import { openStore, settle } from './rondo.ts'
import { newTask, RESULT, TTL_MS } from './row.ts'
import { AT_ONCE, type StoreAddress } from './subject.ts'

export interface SleepCost {
  readonly kind: 'slept'
  readonly count: number
  readonly rssBefore: number
  readonly rssAfter: number
  readonly heapBefore: number
  readonly heapAfter: number
  /** Tasks due a second, and how late they woke, ms. */
  readonly dueRate: number
  readonly lateMedian: number
  readonly lateP99: number
  readonly lateMax: number
  /** Tasks due at one moment, how long until the last had ended, and the largest heap meanwhile. */
  readonly herd: number
  readonly herdMs: number
  readonly herdHeap: number
}

/** Enough for compilers and allocators to settle. */
const WARM_UP = 5_000

const [address = '', ...numbers] = process.argv.slice(2)
const [count = 1000, due = 1000, herd = 1000] = numbers.map(Number)
const store = openStore(JSON.parse(address) as StoreAddress)
const farAway = Date.now() + TTL_MS / 2
const dueAt = new Map<string, number>()
const lateness: number[] = []
let onParked = (): void => {}
let onDone = (): void => {}
const engine = createLeaseEngine(store, {
  statsMs: 3_600_000,
  onEvent(event) {
    if (event.kind === 'store-error') throw event.error
    if (event.kind === 'turn' && event.outcome === 'park') onParked()
    if (event.kind === 'turn' && event.outcome === 'complete') onDone()
  },
})
const serving = await engine.serve(
  async ({ task, number }) => {
    const wakeAt = dueAt.get(task.id) ?? farAway
    if (number === 1) return { kind: 'park', inputs: new Map(), wakeAt }
    lateness.push(Date.now() - wakeAt)
    return { kind: 'complete', result: RESULT }
  },
  { concurrency: AT_ONCE },
)

/** As many at a time as there are clients; the next one starts when one has parked. */
function park(total: number, toDue?: (index: number) => number): Promise<void> {
  return new Promise((resolve) => {
    let begun = 0
    let parked = 0
    const begin = (): void => {
      if (begun >= total) return
      const task = newTask()
      if (toDue) dueAt.set(task.id, toDue(begun))
      begun++
      void engine.create(task)
    }
    onParked = () => {
      begin()
      if (++parked === total) resolve()
    }
    for (let client = 0; client < AT_ONCE; client++) begin()
  })
}

function memory(): { rss: number; heap: number } {
  globalThis.gc?.()
  const { rss, heapUsed, external } = process.memoryUsage()
  return { rss, heap: heapUsed + external }
}

/** Parks tasks that are due `spread` ms apart, all of them parked before the first is due; resolves when all have ended. */
async function wake(total: number, spread: number, parkMs: number) {
  const first = Math.ceil(Date.now() + parkMs * total * 1.5 + 2_000)
  lateness.length = 0
  let done = 0
  let heap = 0
  const ended = new Promise<void>((resolve) => {
    onDone = () => {
      if (++done % 1000 === 0) heap = Math.max(heap, process.memoryUsage().heapUsed)
      if (done === total) resolve()
    }
  })
  await park(total, (index) => first + index * spread)
  if (Date.now() > first)
    console.warn('\n*** The machine was too slow: some tasks were due before all were parked ***\n')
  await ended
  dueAt.clear()
  return { ms: Date.now() - first, heap, late: [...lateness].sort((a, b) => a - b) }
}

// The engine's timers do not keep a process alive; a server does.
const alive = setInterval(() => {}, 60_000)
await park(WARM_UP)
await settle(store, WARM_UP)
const before = memory()
const began = performance.now()
await park(count)
const parkMs = (performance.now() - began) / count
await settle(store, WARM_UP + count)
const after = memory()
const steady = await wake(due, 1, parkMs)
const crowd = await wake(herd, 0, parkMs)
if (steady.late.length !== due || (steady.late[0] ?? 0) < 0) throw new Error('A task woke twice, or early')
const cost: SleepCost = {
  kind: 'slept',
  count,
  rssBefore: before.rss,
  rssAfter: after.rss,
  heapBefore: before.heap,
  heapAfter: after.heap,
  dueRate: 1000,
  lateMedian: median(steady.late),
  lateP99: steady.late[Math.floor(due * 0.99)] ?? Number.NaN,
  lateMax: steady.late.at(-1) ?? Number.NaN,
  herd,
  herdMs: crowd.ms,
  herdHeap: crowd.heap,
}
clearInterval(alive)
await serving.stop()
await store.close()
process.send?.(cost, () => process.exit())
