/** What the contract needs of the one who wrote a store or an engine, and the helpers that its cases share. */

import type { Store } from '../../store/store.ts'
import {
  createTaskId,
  type EngineEvent,
  type NewTask,
  type TaskEngine,
  type TaskOwner,
} from '../../store/task-engine.ts'
import type { Lease } from '../../store/task-store.ts'

/** An empty database for one case. */
export interface StoreSite {
  /**
   * Opens a handle, as another process would: every handle with the same clock sees the same data. `now` is the clock that
   * the store must go by, in ms since the Unix epoch; without it, the store uses its own.
   */
  open(now?: () => number): Store
  /** Closes every handle and deletes the database. */
  close(): Promise<void>
}

/** Creates databases for the cases of `storeContract`. */
export interface StoreHarness {
  /** The name of the store in the names of groups. */
  readonly name: string
  /** An empty database that no other case uses. */
  create(): Promise<StoreSite>
}

/** What the cases of `engineContract` set on an engine. */
export interface ContractEngineOptions {
  /** After how many ms without a heartbeat a turn is taken over. An engine that notices dead workers by itself ignores it. */
  readonly leaseMs?: number
  /** How many turns of a task may die or throw, without progress in between, before the task fails. */
  readonly maxFailures?: number
  /** The pause before the next turn, after so many failures. */
  readonly backoffMs?: (failures: number) => number
  readonly onEvent?: (event: EngineEvent) => void
}

/** An installation without tasks, for one case. */
export interface EngineSite {
  /** An engine, as another process would have: all engines of a site see the same tasks. */
  open(options: ContractEngineOptions): TaskEngine
  /**
   * Claims the task, which is due, records `entries`, and vanishes: no heartbeat, no release. Optional; without it, the case
   * of a vanished worker is left out.
   */
  readonly vanish?: (id: string, entries: readonly string[]) => Promise<void>
  /** Closes every engine and deletes all tasks. */
  close(): Promise<void>
}

/** Creates installations for the cases of `engineContract`. */
export interface EngineHarness {
  readonly name: string
  /** Whether the sites have `vanish`. */
  readonly vanishes: boolean
  create(): Promise<EngineSite>
}

export const alice: TaskOwner = { tenant: 'tracker', principal: 'alice' }
export const bob: TaskOwner = { tenant: 'tracker', principal: 'bob' }

export function newTask(changes: Partial<NewTask> = {}): NewTask {
  return { id: createTaskId(), owner: alice, head: 'head', ttlMs: 3_600_000, pollMs: 1000, ...changes }
}

/** A clock that the case advances. */
export interface ContractTime {
  (): number
  pass(ms: number): void
}

export function createTime(start = 1_800_000_000_000): ContractTime {
  let time = start
  const now = () => time
  const pass = (ms: number) => {
    time += ms
  }
  return Object.assign(now, { pass })
}

/** Creates a task and claims it. */
export async function claimNew(
  store: Store,
  changes: Partial<NewTask> = {},
  leaseMs = 10_000,
): Promise<Lease> {
  const task = newTask(changes)
  await store.tasks.create(task, Number.POSITIVE_INFINITY)
  const lease = (await store.tasks.claim('worker', leaseMs, 1000)).find(({ fence }) => fence.id === task.id)
  if (lease === undefined) throw new Error('the new task could not be claimed')
  return lease
}

export const inputs = (...keys: string[]): ReadonlyMap<string, string> =>
  new Map(keys.map((key) => [key, `request ${key}`]))

export const answers = (given: Record<string, string>): ReadonlyMap<string, string> =>
  new Map(Object.entries(given))

/** Polls until `look` returns something; fails after `ms` and names what it waited for. */
export async function until<T>(
  what: string,
  look: () => T | Promise<T>,
  ms = 120_000,
): Promise<NonNullable<T>> {
  const end = performance.now() + ms
  for (;;) {
    const found = await look()
    if (found) return found as NonNullable<T>
    if (performance.now() > end) throw new Error(`Timed out after ${ms} ms waiting for: ${what}`)
    await new Promise((resolve) => setTimeout(resolve, 5))
  }
}
