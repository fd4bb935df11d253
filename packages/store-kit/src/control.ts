/**
 * Negative controls: the contract must find a store or an engine that breaks a promise. Each control puts one fault in front
 * of the author's own store and passes only if the case that guards against it fails.
 */

import { AssertionError } from 'node:assert'
import type { Fence, Lease, Store, TaskEngine, TaskOwner, TaskStore, TaskView } from 'rondo/store'
import { ALARM_FAULTS } from './alarms.ts'
import { APPROVAL_FAULTS } from './approvals.ts'
import {
  alarmContract,
  approvalContract,
  engineContract,
  fleetContract,
  leaseEngineHarness,
  operatorContract,
  permitContract,
  storeContract,
} from './contract.ts'
import type { ContractCase, EngineHarness, StoreHarness } from './harness.ts'
import { OPERATOR_FAULTS } from './operator.ts'
import { PERMIT_FAULTS } from './permits.ts'

/** The operations that the handles of one site have seen, for faults that depend on them. */
interface Memory {
  readonly owners: Map<string, TaskOwner>
  readonly fences: Map<string, Fence>
  readonly views: Map<string, TaskView>
  readonly leases: Lease[]
  readonly blobs: Map<string, string>
}

type Faulty = { readonly [Part in 'tasks' | 'once' | 'blobs']?: Partial<Store[Part]> }

interface Fault {
  /** Completes "a store …". */
  readonly name: string
  /** The case that must fail. */
  readonly caughtBy: string
  weaken(store: Store, memory: Memory): Faulty
}

const newest = ({ fences }: Memory, fence: Fence): Fence => fences.get(fence.id) ?? fence

/** Remembers every lease that a handle returns. */
function remembering({ tasks }: Store, { fences, owners }: Memory): Partial<TaskStore> {
  const keep = (lease: Lease | undefined) => lease && fences.set(lease.fence.id, lease.fence)
  return {
    async create(task, limit, taker) {
      owners.set(task.id, task.owner)
      const creation = await tasks.create(task, limit, taker)
      if (creation.kind === 'created') keep(creation.lease)
      return creation
    },
    async claim(...given) {
      const leases = await tasks.claim(...given)
      leases.forEach(keep)
      return leases
    },
  }
}

const FAULTS: readonly Fault[] = [
  {
    name: 'lets a worker write that lost its lease',
    caughtBy: 'E9 P16 refuses every write of a worker whose task was taken over',
    weaken: (store, memory) => ({
      tasks: {
        ...remembering(store, memory),
        append: (fence, from, entries) => store.tasks.append(newest(memory, fence), from, entries),
      },
    }),
  },
  {
    name: 'lets a worker end a task that it lost',
    caughtBy: 'claims a task for the named worker in the write that creates it',
    weaken: (store, memory) => ({
      tasks: {
        ...remembering(store, memory),
        settle: (fence, ending) => store.tasks.settle(newest(memory, fence), ending),
      },
    }),
  },
  {
    name: 'shows a task to a stranger',
    caughtBy: 'E6 T17 shows unknown, foreign and expired tasks alike',
    weaken: (store, memory) => ({
      tasks: {
        ...remembering(store, memory),
        get: (id, owner) => store.tasks.get(id, memory.owners.get(id) ?? owner),
      },
    }),
  },
  {
    name: 'shows a task after it has expired',
    caughtBy: 'E6 T17 shows unknown, foreign and expired tasks alike',
    weaken: (store, { views }) => ({
      tasks: {
        async get(id, owner) {
          const view = await store.tasks.get(id, owner)
          if (view !== undefined) views.set(id, view)
          return view ?? (owner.principal === 'alice' ? views.get(id) : undefined)
        },
      },
    }),
  },
  {
    name: 'acknowledges an answer and loses it',
    caughtBy: 'D6 E3 accepts partial answers, and shows only the keys that are still open',
    weaken: () => ({ tasks: { deliver: async () => ({ kind: 'partial' }) } }),
  },
  {
    name: 'says of two answers that each resumed the task',
    caughtBy: 'deliver races deliver: one answer wins each key, and the task is resumed once',
    weaken: (store) => ({
      tasks: {
        deliver: async (...given) => {
          const handover = await store.tasks.deliver(...given)
          return handover.kind === 'idle' ? { kind: 'resumed' } : handover
        },
      },
    }),
  },
  {
    name: 'acknowledges an entry and loses it',
    caughtBy: 'D9 begin with the entries of the rounds before, and keep their order',
    weaken: (store) => ({
      tasks: { append: async (fence) => (await store.tasks.held([fence])).has(fence.id) },
    }),
  },
  {
    name: 'ignores the limit on open tasks',
    caughtBy: 'T18 enforces the limit if many tasks are created at once',
    weaken: (store) => ({
      tasks: { create: (task, _, taker) => store.tasks.create(task, Number.POSITIVE_INFINITY, taker) },
    }),
  },
  {
    name: 'keeps every ended task',
    caughtBy: 'T18 are trimmed to a number, those first that ended first',
    weaken: () => ({ tasks: { trim: async () => 0 } }),
  },
  {
    name: 'ignores the size of ended tasks',
    caughtBy: 'T18 are trimmed to a size, and the last one is kept whatever its size',
    weaken: (store) => ({
      tasks: {
        trim: (owner, { count }) => store.tasks.trim(owner, { count, bytes: Number.MAX_SAFE_INTEGER }),
      },
    }),
  },
  {
    name: 'assigns a task to two workers',
    caughtBy: 'shares tasks between workers without assigning one twice',
    weaken: (store, { leases }) => ({
      tasks: {
        async claim(...given) {
          leases.push(...(await store.tasks.claim(...given)))
          return leases
        },
      },
    }),
  },
  {
    name: 'wakes a task before its time',
    caughtBy: 'G1 is not due a millisecond before, is claimed once, and tells the time of the store',
    weaken: (store) => ({
      tasks: { park: (fence, slots, at) => store.tasks.park(fence, slots, at && at - 60_000) },
    }),
  },
  {
    name: 'lets a task expire before its wait is over',
    caughtBy: 'G1 lives until the end of a wait that is longer than its life, and is claimed then',
    weaken: (store) => ({
      tasks: { park: (fence, slots, at) => store.tasks.park(fence, slots, at) },
    }),
  },
  {
    name: 'announces nothing',
    caughtBy: 'report due tasks and visible changes',
    weaken: () => ({ tasks: { onHint: () => () => {} } }),
  },
  {
    name: 'lets two requests use one round',
    caughtBy: 'P13 B8 has one winner among 200 concurrent claims',
    weaken: () => ({ once: { claim: async () => ({ kind: 'first' }) } }),
  },
  {
    name: 'returns other bytes than those stored first',
    caughtBy: 'P13 returns the bytes that were stored first to everybody',
    weaken: (store) => ({
      once: { settle: (slot, response) => store.once.settle(slot, response).then(() => response) },
    }),
  },
  {
    name: 'overwrites a blob',
    caughtBy: 'never changes a blob',
    weaken: (store, { blobs }) => ({
      blobs: {
        put: async (id, sealed, expiresAt) => {
          blobs.set(id, sealed)
          await store.blobs.put(id, sealed, expiresAt)
        },
        get: async (id) => ((await store.blobs.get(id)) === undefined ? undefined : blobs.get(id)),
      },
    }),
  },
]

/** The target with some members replaced. A target may be an instance of a class, with methods that need their `this`. */
function overlay<T extends object>(target: T, changes: Partial<T> = {}): T {
  return new Proxy(target, {
    get(_, name) {
      if (Object.hasOwn(changes, name)) return changes[name as keyof T]
      const value: unknown = Reflect.get(target, name, target)
      return typeof value === 'function' ? value.bind(target) : value
    },
  })
}

function weakenStores(harness: StoreHarness, { weaken }: Fault): StoreHarness {
  return {
    name: harness.name,
    async create() {
      const site = await harness.create()
      const memory: Memory = {
        owners: new Map(),
        fences: new Map(),
        views: new Map(),
        leases: [],
        blobs: new Map(),
      }
      return {
        open(now) {
          const store = site.open(now)
          const { tasks, once, blobs } = weaken(store, memory)
          return overlay(store, {
            tasks: overlay(store.tasks, tasks),
            once: overlay(store.once, once),
            blobs: overlay(store.blobs, blobs),
          })
        },
        close: site.close,
      }
    },
  }
}

/**
 * Returns cases that pass if `storeContract` finds faults put in front of your store. Run them beside the contract itself.
 *
 * @example
 * ```ts
 * describe('the contract of my store', () => {
 *   for (const { name, run } of storeControls(harness)) it(name, run)
 * })
 * ```
 */
export function storeControls(harness: StoreHarness): readonly ContractCase[] {
  const controls = FAULTS.map((fault) => ({
    group: `${harness.name}: controls`,
    name: `control: finds a store that ${fault.name}`,
    run: () => expectFailure(storeContract(weakenStores(harness, fault)), fault.caughtBy),
  }))
  return [...controls, ...engineControls(leaseEngineHarness(harness))]
}

interface EngineFault {
  readonly name: string
  readonly caughtBy: string
  weaken(engine: TaskEngine, owners: Map<string, TaskOwner>): Partial<TaskEngine>
}

const ENGINE_FAULTS: readonly EngineFault[] = [
  {
    name: 'acknowledges an entry and loses it',
    caughtBy: 'another process finishes parked tasks after a restart, with newer code',
    weaken: (engine) => ({
      serve: (run, options) =>
        engine.serve((turn) => run(overlay(turn, { record: async () => {} })), options),
    }),
  },
  {
    name: 'shows a task to a stranger',
    caughtBy: 'E6 a watcher sees nothing of a task of another owner',
    weaken: (engine, owners) => ({
      create(task) {
        owners.set(task.id, task.owner)
        return engine.create(task)
      },
      watch: (ids, owner, listener) => engine.watch(ids, owners.get(ids[0] ?? '') ?? owner, listener),
    }),
  },
  {
    name: 'takes a listing for the owner naming a task',
    caughtBy: 'R6 holds a task until its owner names it, with get, and continues from its journal',
    weaken: (engine) => ({
      async list(owner, page) {
        const views = await engine.list(owner, page)
        return Promise.all(views.map(async (view) => (await engine.get(view.id, owner)) ?? view))
      },
    }),
  },
]

/**
 * Returns cases that pass if `engineContract` finds faults put in front of your engine. Run them beside the contract itself.
 *
 * @example
 * ```ts
 * describe('the contract of my engine', () => {
 *   for (const { name, run } of engineControls(engine)) it(name, run)
 * })
 * ```
 */
export function engineControls(harness: EngineHarness): readonly ContractCase[] {
  return ENGINE_FAULTS.map((fault) => {
    const faulty: EngineHarness = {
      name: harness.name,
      vanishes: harness.vanishes,
      async create() {
        const site = await harness.create()
        const owners = new Map<string, TaskOwner>()
        const open = (options: Parameters<typeof site.open>[0]) => {
          const engine = site.open(options)
          return overlay(engine, fault.weaken(engine, owners))
        }
        return overlay(site, { open })
      },
    }
    return {
      group: `${harness.name}: engine controls`,
      name: `control: finds an engine that ${fault.name}`,
      run: () => expectFailure(engineContract(faulty), fault.caughtBy),
    }
  })
}

interface FleetFault extends Pick<Fault, 'name' | 'caughtBy'> {
  weaken(store: Store): Partial<Pick<Store, 'records' | 'bus'>>
}

const FLEET_FAULTS: readonly FleetFault[] = [
  {
    name: 'lets a write replace a version that is gone',
    caughtBy: 'J1 of many writes that replace one version, exactly one is stored',
    weaken: ({ records }) => ({
      records: records && {
        ...records,
        async put(record) {
          let outcome = await records.put(record)
          while (outcome === 'conflict') {
            const version = (await records.get(record.id))?.version ?? 0
            outcome = await records.put({ ...record, version })
          }
          return outcome
        },
      },
    }),
  },
  {
    name: 'does not count what an owner has',
    caughtBy: 'I3 J1 T27 refuses what would take an owner over its limit, and counts nobody else',
    weaken: ({ records }) => ({
      records: records && {
        ...records,
        put: (record) => records.put({ ...record, maxBytes: Number.MAX_SAFE_INTEGER }),
      },
    }),
  },
  {
    name: 'loses a message and delivers another',
    caughtBy: 'J2 are received in the order in which one process published them',
    weaken: ({ bus }) => ({
      bus: bus && {
        ...bus,
        publish: (message) => bus.publish(message === 'message 7' ? 'another' : message),
      },
    }),
  },
]

/**
 * Returns cases that pass if `fleetContract` finds faults put in front of your store.
 *
 * @example
 * ```ts
 * describe('the contract of my store in a fleet', () => {
 *   for (const { name, run } of fleetControls(harness)) it(name, run)
 * })
 * ```
 */
export function fleetControls(harness: StoreHarness): readonly ContractCase[] {
  return FLEET_FAULTS.map((fault) => {
    const faulty: StoreHarness = {
      name: harness.name,
      async create() {
        const site = await harness.create()
        const open = (now?: () => number) => {
          const store = site.open(now)
          return { ...store, ...fault.weaken(store) }
        }
        return overlay(site, { open })
      },
    }
    return {
      group: `${harness.name}: fleet controls`,
      name: `control: finds a store that ${fault.name}`,
      run: () => expectFailure(fleetContract(faulty), fault.caughtBy),
    }
  })
}

/**
 * Returns cases that pass if `approvalContract` finds faults put in front of your store.
 *
 * @example
 * ```ts
 * describe('the contract of approvals in my store', () => {
 *   for (const { name, run } of approvalControls(harness)) it(name, run)
 * })
 * ```
 */
export function approvalControls(harness: StoreHarness): readonly ContractCase[] {
  return APPROVAL_FAULTS.map((fault) => {
    const faulty: StoreHarness = {
      name: harness.name,
      async create() {
        const site = await harness.create()
        const open = (now?: () => number) => {
          const store = site.open(now)
          const { approvals } = store
          return approvals ? { ...store, approvals: { ...approvals, ...fault.weaken(approvals) } } : store
        }
        return overlay(site, { open })
      },
    }
    return {
      group: `${harness.name}: approval controls`,
      name: `control: finds a store that ${fault.name}`,
      run: () => expectFailure(approvalContract(faulty), fault.caughtBy),
    }
  })
}

/**
 * Returns cases that pass if `operatorContract` finds faults put in front of your store.
 *
 * @example
 * ```ts
 * describe('the contract of operators of my store', () => {
 *   for (const { name, run } of operatorControls(harness)) it(name, run)
 * })
 * ```
 */
export function operatorControls(harness: StoreHarness): readonly ContractCase[] {
  return OPERATOR_FAULTS.map((fault) => {
    const faulty: StoreHarness = {
      name: harness.name,
      async create() {
        const site = await harness.create()
        const open = (now?: () => number) => {
          const store = site.open(now)
          const { operator } = store
          return operator ? { ...store, operator: { ...operator, ...fault.weaken(operator, store) } } : store
        }
        return overlay(site, { open })
      },
    }
    return {
      group: `${harness.name}: operator controls`,
      name: `control: finds a store that ${fault.name}`,
      run: () => expectFailure(operatorContract(faulty), fault.caughtBy),
    }
  })
}

/**
 * Returns cases that pass if `permitContract` finds faults put in front of your store.
 *
 * @example
 * ```ts
 * describe('the contract of permits of my store', () => {
 *   for (const { name, run } of permitControls(harness)) it(name, run)
 * })
 * ```
 */
export function permitControls(harness: StoreHarness): readonly ContractCase[] {
  return PERMIT_FAULTS.map((fault) => {
    const faulty: StoreHarness = {
      name: harness.name,
      async create() {
        const site = await harness.create()
        const open = (now?: () => number) => {
          const store = site.open(now)
          const { permits } = store
          return permits ? { ...store, permits: { ...permits, ...fault.weaken(permits) } } : store
        }
        return overlay(site, { open })
      },
    }
    return {
      group: `${harness.name}: permit controls`,
      name: `control: finds a store that ${fault.name}`,
      run: () => expectFailure(permitContract(faulty), fault.caughtBy),
    }
  })
}

/**
 * Returns cases that pass if `alarmContract` finds faults put in front of your store.
 *
 * @example
 * ```ts
 * describe('the contract of alarms of my store', () => {
 *   for (const { name, run } of alarmControls(harness)) it(name, run)
 * })
 * ```
 */
export function alarmControls(harness: StoreHarness): readonly ContractCase[] {
  return ALARM_FAULTS.map((fault) => {
    const faulty: StoreHarness = {
      name: harness.name,
      async create() {
        const site = await harness.create()
        const open = (now?: () => number) => {
          const store = site.open(now)
          const { alarms } = store
          return alarms ? { ...store, alarms: { ...alarms, ...fault.weaken(alarms) } } : store
        }
        return overlay(site, { open })
      },
    }
    return {
      group: `${harness.name}: alarm controls`,
      name: `control: finds a store that ${fault.name}`,
      run: () => expectFailure(alarmContract(faulty), fault.caughtBy),
    }
  })
}

async function expectFailure(cases: readonly ContractCase[], name: string): Promise<void> {
  const one = cases.find((each) => each.name === name)
  if (one === undefined) throw new Error(`The contract has no case "${name}"`)
  try {
    await one.run()
  } catch (error) {
    // Any other error says nothing about the fault: the database may be out of reach.
    if (error instanceof AssertionError) return
    throw error
  }
  throw new Error(`The case "${name}" passes although the fault is there`)
}
