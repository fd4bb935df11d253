/** Everything that a store or an engine has to do, as lists of cases: `@rondo/store-kit`. */

import assert from 'node:assert/strict'
import { closeSlots, createLeaseEngine, createMemoryStore, openSlots } from 'rondo/internal'
import type { Fence, InputSlot, Lease, Store, TaskStatus } from 'rondo/store'
import { describeAlarmContract } from './alarms.ts'
import { describeApprovalContract } from './approvals.ts'
import { describeEngineContract } from './engine.ts'
import {
  alice,
  answers,
  assertEqual,
  bob,
  type ContractCase,
  collect,
  createTime,
  type EngineHarness,
  it,
  newTask,
  type SeededRandom,
  type StoreHarness,
  seededRandom,
  testSeed,
} from './harness.ts'
import { describeOperatorActionContract } from './operator.ts'
import { describeOperatorContract, describeOwnerContract } from './owner.ts'
import { describePermitContract } from './permits.ts'
import { describeBusContract, describeOnceContract, describeRecordContract } from './shared-state.ts'
import { describeRaceContract, describeTimeContract } from './timing.ts'
import { describeWorkerContract } from './worker.ts'

export interface StoreContractOptions {
  /** Random sequences of operations that are compared with the in-memory store. Default: 10. */
  readonly modelRuns?: number
  /** The seed of the first sequence, to repeat a failure, which names it. Default: `RONDO_SEED`, or a new one. */
  readonly seed?: number
}

/**
 * Returns cases for what a store must do. Run every case with your test runner; each creates and closes a database of its own.
 *
 * @example
 * ```ts
 * describe('my store', () => {
 *   for (const { name, run } of storeContract(harness)) it(name, run)
 * })
 * ```
 */
export function storeContract(
  harness: StoreHarness,
  { modelRuns = 10, seed = testSeed() }: StoreContractOptions = {},
): readonly ContractCase[] {
  const { name } = harness
  return [
    ...collect(`${name}: owners`, () => describeOwnerContract(harness)),
    ...collect(`${name}: workers`, () => describeWorkerContract(harness)),
    ...collect(`${name}: time`, () => describeTimeContract(harness)),
    ...collect(`${name}: races`, () => describeRaceContract(harness)),
    ...collect(`${name}: operators`, () => describeOperatorContract(harness)),
    ...collect(`${name}: once and blobs`, () => describeOnceContract(harness)),
    ...collect(`${name}: model`, () => describeModelContract(harness, modelRuns, seed)),
    ...engineContract(leaseEngineHarness(harness)),
  ]
}

/**
 * Returns cases for what the optional parts of a store for a fleet must do: `records` and `bus`. Run them if your store has these parts.
 *
 * @example
 * ```ts
 * describe('my store in a fleet', () => {
 *   for (const { name, run } of fleetContract(harness)) it(name, run)
 * })
 * ```
 */
export function fleetContract(harness: StoreHarness): readonly ContractCase[] {
  const { name } = harness
  return [
    ...collect(`${name}: records`, () => describeRecordContract(harness)),
    ...collect(`${name}: bus`, () => describeBusContract(harness)),
  ]
}

/**
 * Returns cases for what the optional part `approvals` of a store must do. Run them if your store has it.
 *
 * @example
 * ```ts
 * describe('approvals in my store', () => {
 *   for (const { name, run } of approvalContract(harness)) it(name, run)
 * })
 * ```
 */
export function approvalContract(harness: StoreHarness): readonly ContractCase[] {
  return collect(`${harness.name}: approvals`, () => describeApprovalContract(harness))
}

/**
 * Returns cases for what the optional part `operator` of a store must do. Run them if your store has it.
 *
 * @example
 * ```ts
 * describe('operators of my store', () => {
 *   for (const { name, run } of operatorContract(harness)) it(name, run)
 * })
 * ```
 */
export function operatorContract(harness: StoreHarness): readonly ContractCase[] {
  return collect(`${harness.name}: operators who act`, () => describeOperatorActionContract(harness))
}

/**
 * Returns cases for what the optional part `permits` of a store must do. Run them if your store has it.
 *
 * @example
 * ```ts
 * describe('permits of my store', () => {
 *   for (const { name, run } of permitContract(harness)) it(name, run)
 * })
 * ```
 */
export function permitContract(
  harness: StoreHarness,
  { modelRuns = 10, seed = testSeed() }: StoreContractOptions = {},
): readonly ContractCase[] {
  return collect(`${harness.name}: permits`, () => describePermitContract(harness, modelRuns, seed))
}

/**
 * Returns cases for what the optional part `alarms` of a store must do. Run them if your store has it.
 *
 * @example
 * ```ts
 * describe('alarms of my store', () => {
 *   for (const { name, run } of alarmContract(harness)) it(name, run)
 * })
 * ```
 */
export function alarmContract(harness: StoreHarness): readonly ContractCase[] {
  return collect(`${harness.name}: alarms`, () => describeAlarmContract(harness))
}

/**
 * Returns cases for what an engine must do, whether or not a store is behind it.
 *
 * @example
 * ```ts
 * describe('my engine', () => {
 *   for (const { name, run } of engineContract(engine)) it(name, run)
 * })
 * ```
 */
export function engineContract(harness: EngineHarness): readonly ContractCase[] {
  return collect(`${harness.name}: engine`, () => describeEngineContract(harness))
}

/** The built-in engine over a store. */
export function leaseEngineHarness({ name, create }: StoreHarness): EngineHarness {
  return {
    name,
    vanishes: true,
    async create() {
      const site = await create()
      return {
        open: (options) => createLeaseEngine(site.open(), options),
        async vanish(id, entries) {
          const { tasks } = site.open()
          const [lease] = await tasks.claim('vanishes', 300, 1)
          if (lease?.fence.id !== id) throw new Error('The task was not due')
          await tasks.append(lease.fence, 0, entries)
        },
        close: site.close,
      }
    },
  }
}

type Step =
  | { readonly kind: 'create'; readonly ttlMs: number; readonly foreign: boolean; readonly known: boolean }
  | { readonly kind: 'claim' }
  | { readonly kind: 'pass'; readonly ms: number }
  | { readonly kind: 'worker'; readonly act: number; readonly fence: number; readonly text: string }
  | { readonly kind: 'owner'; readonly act: number; readonly task: number; readonly keys: readonly string[] }

/** Weights: creations 2, claims 3, time 1, workers 6, owners 4. */
function randomStep({ below, pick }: SeededRandom): Step {
  const at = below(16)
  if (at < 2)
    return { kind: 'create', ttlMs: pick([300, 100_000]), foreign: below(2) === 1, known: below(2) === 1 }
  if (at < 5) return { kind: 'claim' }
  if (at < 6) return { kind: 'pass', ms: pick([1, 100, 250]) }
  if (at < 12) return { kind: 'worker', act: below(10), fence: below(31), text: `text ${below(100)}` }
  const keys = Array.from({ length: below(4) }, () => pick(['a', 'b', 'c', 'd']))
  return { kind: 'owner', act: below(7), task: below(9), keys }
}

/** The statuses that each status may become; an ended task stays as it is. */
const NEXT: Record<TaskStatus, readonly TaskStatus[]> = {
  working: ['working', 'input_required', 'completed', 'failed', 'cancelled'],
  input_required: ['input_required', 'working', 'completed', 'failed', 'cancelled'],
  completed: ['completed'],
  failed: ['failed'],
  cancelled: ['cancelled'],
}

interface Run {
  readonly store: Store
  readonly fences: Fence[]
  readonly slots: Map<string, readonly InputSlot[]>
  readonly lengths: Map<string, number>
  readonly log: unknown[]
}

/**
 * Compares a database with the in-memory model: the same operations in the same order have the same outcomes and show
 * the same views (P15, P16). The sequences are random; a failure names its seed, with which it can be repeated.
 */
function describeModelContract(harness: StoreHarness, runs: number, seed: number): void {
  it('P15 P16 behaves like the in-memory model, step by step', async () => {
    let compared = 0
    for (let run = 0; run < runs; run++) {
      const random = seededRandom(seed + run)
      const steps = Array.from({ length: 10 + random.below(51) }, () => randomStep(random))
      compared += await compare(harness, steps, `seed ${seed + run}`)
    }
    assert.ok(compared >= runs * 10)
  })
}

/** Takes the steps on both stores; returns how many were compared. */
async function compare(harness: StoreHarness, steps: readonly Step[], label: string): Promise<number> {
  const database = await harness.create()
  const now = createTime()
  const ids: string[] = []
  const both = [database.open(now), createMemoryStore({ now })].map(
    (store): Run => ({ store, fences: [], slots: new Map(), lengths: new Map(), log: [] }),
  )
  const last = new Map<string, TaskStatus>()
  try {
    for (const [at, one] of steps.entries()) {
      const context = `${label}, step ${at}, ${JSON.stringify(one)}`
      const task = newTask({ ttlMs: one.kind === 'create' ? one.ttlMs : 1 })
      if (one.kind === 'create') ids.push(task.id)
      if (one.kind === 'pass') now.pass(one.ms)
      for (const run of both) run.log.push(await apply(run, one, task.id, ids))
      const [ours, plain] = both.map(({ log }) => log.at(-1))
      assertEqual(ours, plain, context)
      const views = await Promise.all(
        both.map(({ store }) => Promise.all(ids.map((id) => store.tasks.get(id, alice)))),
      )
      assertEqual(views[0], views[1], context)
      for (const view of views[0] ?? []) {
        if (view === undefined) continue
        assert.ok(NEXT[last.get(view.id) ?? 'working'].includes(view.status), `${context}: ${view.status}`)
        last.set(view.id, view.status)
      }
      now.pass(1)
    }
  } finally {
    await database.close()
  }
  return steps.length
}

async function apply(run: Run, one: Step, newId: string, ids: readonly string[]): Promise<unknown> {
  const { tasks } = run.store
  if (one.kind === 'create') {
    const { ttlMs, foreign, known } = one
    return tasks.create(newTask({ id: newId, ttlMs, known, owner: foreign ? bob : alice }), 4)
  }
  if (one.kind === 'claim') return remember(run, await tasks.claim('w', 200, 50))
  if (one.kind === 'worker') return work(run, one)
  if (one.kind === 'pass') return run.store.sweep(1).then(() => tasks.stats())
  const id = ids[one.task] ?? 'x'.repeat(22)
  if (one.act === 0) return tasks.cancel(id, alice)
  if (one.act === 1) return tasks.list({ status: 'input_required' })
  if (one.act === 4) return tasks.confirm(id, alice).then(() => tasks.stats())
  if (one.act === 5) {
    const { kind, lease } = await tasks.deliverHook(id, alice, one.keys[0] ?? 'a', `by ${one.keys}`)
    return [kind, lease]
  }
  if (one.act === 6) return tasks.slots(id, alice)
  const given = answers(Object.fromEntries(one.keys.map((key) => [key, `answer ${key}`])))
  const taker = one.act === 2 ? { worker: 'w', leaseMs: 200 } : undefined
  const { kind, lease } = await tasks.deliver(id, alice, given, taker)
  return [kind, lease && remember(run, [lease])]
}

/** The order of tasks within one claim is not specified. */
function remember(run: Run, claimed: readonly Lease[]): unknown {
  const leases = [...claimed].sort((a, b) => (a.fence.id < b.fence.id ? -1 : 1))
  for (const { fence, slots, journal } of leases) {
    run.fences.push(fence)
    run.slots.set(fence.id, slots)
    run.lengths.set(fence.id, journal.length)
  }
  return leases
}

async function work(
  { store, fences, slots, lengths }: Run,
  { act, fence: at, text }: Step & { kind: 'worker' },
) {
  const fence = fences[fences.length - 1 - (at % Math.max(fences.length, 1))]
  if (fence === undefined) return 'no lease yet'
  const sealed = Buffer.from(text).toString('base64url')
  const known = slots.get(fence.id) ?? []
  const length = lengths.get(fence.id) ?? 0
  const free = ['a', 'b', 'c', 'd'].filter((key) => known.every((slot) => slot.key !== key)).slice(0, 2)
  switch (act) {
    case 0:
      return store.tasks.renew([fence], 200)
    case 1: {
      const done = await store.tasks.append(fence, length, [sealed])
      if (done) lengths.set(fence.id, length + 1)
      return done
    }
    case 2:
      return store.tasks.settle(fence, { kind: 'complete', result: sealed })
    case 3:
      return store.tasks.settle(fence, { kind: 'fail', error: at % 2 ? sealed : undefined })
    case 4:
      return store.tasks.release(fence, at % 2 ? 50 : 0, at % 3 === 0)
    case 5:
      return store.tasks.status(fence, sealed)
    case 6:
      return store.tasks.hold(fence)
    case 7:
    case 8: {
      const role = (['offer', 'hook'] as const)[at % 3]
      const next = closeSlots(openSlots(known, new Map(free.map((key) => [key, sealed])), role), [
        { key: 'a', role },
      ])
      const shown = act === 7 ? await store.tasks.publish(fence, next) : await store.tasks.park(fence, next)
      if (Array.isArray(shown)) slots.set(fence.id, shown)
      return shown
    }
    default:
      return (
        free.length > 0 &&
        store.tasks.park(fence, openSlots(known, new Map(free.map((key) => [key, sealed]))))
      )
  }
}
