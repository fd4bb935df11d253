/**
 * Parks tasks until a time, and reports what they cost this process and how late they wake:
 * `sleeping-child.js ADDRESS COUNT SECONDS HERD`. COUNT tasks sleep through everything. Beside them, tasks wake for SECONDS at
 * 1,000 a second, then at half or twice that rate until one is found where the worker just keeps up, and HERD tasks wake at
 * one moment.
 */

import { createLeaseEngine } from '../../packages/rondo/src/store/engine/lease-engine.ts'
import { fellBehind } from '../stat.ts'
import { openStore, settle } from './rondo.ts'
import { newTask, RESULT, TTL_MS } from './row.ts'
import { AT_ONCE, type StoreAddress } from './subject.ts'

/** The delays in ms with which tasks woke that were due at a rate, in the order in which they were due. */
export interface Woken {
  readonly rate: number
  readonly late: readonly number[]
  readonly keptUp: boolean
}

export interface SleepCost {
  readonly kind: 'slept'
  readonly count: number
  readonly rssBefore: number
  readonly rssAfter: number
  readonly heapBefore: number
  readonly heapAfter: number
  readonly woken: readonly Woken[]
  /** Tasks due at one moment, how long until the last had ended, and the largest heap meanwhile. */
  readonly herd: number
  readonly herdMs: number
  readonly herdHeap: number
}

/** Enough for compilers and allocators to settle. */
const WARM_UP = 5_000

const [address = '', ...numbers] = process.argv.slice(2)
const [count = 1000, seconds = 2, herd = 1000] = numbers.map(Number)
const store = openStore(JSON.parse(address) as StoreAddress)
const farAway = Date.now() + TTL_MS / 2
const dueAt = new Map<string, number>()
let lateness = new Map<number, number[]>()
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
    const late = lateness.get(wakeAt)
    if (late) late.push(Date.now() - wakeAt)
    else lateness.set(wakeAt, [Date.now() - wakeAt])
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

let parkMs = 0

/** Parks tasks that are due at a rate, all of them parked before the first is due; resolves when all have ended. */
async function wake(
  total: number,
  rate: number,
  patience = 1,
): Promise<{ ms: number; heap: number; late: number[] }> {
  const first = Math.ceil(Date.now() + patience * (parkMs * total * 1.5 + 2_000))
  lateness = new Map()
  let done = 0
  let heap = 0
  const ended = new Promise<void>((resolve) => {
    onDone = () => {
      if (++done % 1000 === 0) heap = Math.max(heap, process.memoryUsage().heapUsed)
      if (done === total) resolve()
    }
  })
  await park(total, (index) => first + Math.floor((index * 1000) / rate))
  const wasLate = Date.now() > first
  await ended
  dueAt.clear()
  if (wasLate && patience < 8) return wake(total, rate, patience * 2)
  if (wasLate) throw new Error('This machine is too busy: tasks were due before all were parked')
  const late = [...lateness].sort(([a], [b]) => a - b).flatMap(([, list]) => list)
  if (late.length !== total || Math.min(...late) < 0) throw new Error('A task woke twice, or early')
  return { ms: Date.now() - first, heap, late }
}

/** So many that a search ends. */
const RATES = { least: 60, most: 8_000 }

/** Begins at 1,000 a second; then at half the rate until the worker keeps up, or at twice the rate until it does not. */
async function search(): Promise<Woken[]> {
  const woken: Woken[] = []
  let rate = 1000
  for (;;) {
    const forMs = (rate === 1000 ? seconds : seconds / 2) * 1000
    const { late } = await wake(Math.round((rate * forMs) / 1000), rate)
    const keptUp = !fellBehind(late, forMs)
    woken.push({ rate, late, keptUp })
    const next = keptUp ? rate * 2 : rate / 2
    const isKnown = woken.some((one) => one.rate === next)
    if (isKnown || next < RATES.least || next > RATES.most) return woken
    rate = next
  }
}

// The engine's timers do not keep a process alive; a server does.
const alive = setInterval(() => {}, 60_000)
await park(WARM_UP)
await settle(store, WARM_UP)
const before = memory()
const began = performance.now()
await park(count)
parkMs = (performance.now() - began) / count
await settle(store, WARM_UP + count)
const after = memory()
const woken = await search()
const crowd = await wake(herd, Number.POSITIVE_INFINITY)
const cost: SleepCost = {
  kind: 'slept',
  count,
  rssBefore: before.rss,
  rssAfter: after.rss,
  heapBefore: before.heap,
  heapAfter: after.heap,
  woken,
  herd,
  herdMs: crowd.ms,
  herdHeap: crowd.heap,
}
clearInterval(alive)
await serving.stop()
await store.close()
process.send?.(cost, () => process.exit())
