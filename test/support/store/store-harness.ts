/** What the contract suite needs from a database, and the helpers that its tests share. */

import type { Store } from '../../../src/store/store.ts'
import { createTaskId, type NewTask, type TaskOwner } from '../../../src/store/task-engine.ts'
import type { Lease } from '../../../src/store/task-store.ts'

/** Where a process finds the database. */
export type StoreAddress =
  | { readonly kind: 'sqlite'; readonly file: string }
  | { readonly kind: 'postgres'; readonly connectionString: string; readonly schema: string }

/** One database for one test; every handle that is opened on it is closed with it. */
export interface Database {
  /** Undefined if other processes cannot reach it. */
  readonly address: StoreAddress | undefined
  /** Opens a separate handle. `now`, if set, is the clock that all handles of a test share. */
  open(now?: () => number): Store
  close(): Promise<void>
}

export interface StoreHarness {
  readonly name: string
  /** Whether other processes can reach it. */
  readonly processes: boolean
  create(): Promise<Database>
}

export const alice: TaskOwner = { tenant: 'tracker', principal: 'alice' }
export const bob: TaskOwner = { tenant: 'tracker', principal: 'bob' }

export function newTask(changes: Partial<NewTask> = {}): NewTask {
  return { id: createTaskId(), owner: alice, head: 'head', ttlMs: 3_600_000, pollMs: 1000, ...changes }
}

/** A clock that the test advances. */
export function createTime(start = 1_800_000_000_000) {
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
