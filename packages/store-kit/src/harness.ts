/**
 * The interface between the contract and the author of a store or an engine, and the parts that its cases share: setup, helpers, random numbers,
 * and cases as data, so that any test runner can run them, or none: `describe` and `it` of a runner's kind, which collect
 * cases instead of running them. They check with `node:assert`.
 *
 * suite 1: a case shares nothing with any other. Each run declares its suite again and so has variables of its own, which
 *          lets cases run in any order and at the same time.
 * suite 2: `afterEach` runs whether or not the case failed, and a failure of the case is the one that is reported.
 */

import assert from 'node:assert/strict'
import { createTaskId } from 'rondo/internal'
import type { EngineEvent, Lease, NewTask, Store, TaskEngine, TaskOwner } from 'rondo/store'

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

/** The settings that the cases of `engineContract` set on an engine. */
export interface ContractEngineOptions {
  /** After how many ms without a heartbeat a turn is taken over. An engine that notices dead workers by itself ignores it. */
  readonly leaseMs?: number
  /** Turns of a task that may die or throw, without progress in between, before the task fails. */
  readonly maxFailures?: number
  /** The pause before the next turn, after so many failures. */
  readonly backoffMs?: (failures: number) => number
  /** Ended tasks that are kept for one owner. */
  readonly maxEndedTasks?: number
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
  /** True if the sites have `vanish`. */
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

/** The setup with which a case of a store begins. */
export interface CaseSite {
  readonly database: StoreSite
  /** The clock of both handles. */
  readonly now: ContractTime
  readonly store: Store
  readonly other: Store
}

/** Before each case, an empty database with two handles; closed afterwards. */
export function eachCase(harness: StoreHarness, use: (site: CaseSite) => void | Promise<void>): void {
  let database: StoreSite
  beforeEach(async () => {
    database = await harness.create()
    const now = createTime()
    await use({ database, now, store: database.open(now), other: database.open(now) })
  })
  afterEach(() => database.close())
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

/** One requirement of a contract. */
export interface ContractCase {
  /** The part of the contract that it belongs to. */
  readonly group: string
  /** The promise that the case checks, as a sentence. */
  readonly name: string
  /** Rejects if it does not hold. */
  run(): Promise<void>
}

type Step = () => unknown

interface Declared {
  readonly group: string
  readonly name: string
  readonly steps: { readonly before: readonly Step[]; readonly body: Step; readonly after: readonly Step[] }
}

interface Scope {
  readonly group: string
  readonly before: Step[]
  readonly after: Step[]
}

let scope: Scope | undefined
let declared: Declared[] = []

/** The cases that `declare` declares with `describe` and `it`. */
export function collect(group: string, declare: () => void): readonly ContractCase[] {
  return declareAll(group, declare).map(({ name, group: inner }, at) => ({
    group: inner,
    name,
    async run() {
      const fresh = declareAll(group, declare)[at]
      if (fresh === undefined) throw new Error('The cases of a contract must not change')
      await runCase(fresh)
    },
  }))
}

function declareAll(group: string, declare: () => void): readonly Declared[] {
  const outer = { scope, declared }
  scope = { group, before: [], after: [] }
  declared = []
  try {
    declare()
    return declared
  } finally {
    ;({ scope, declared } = outer)
  }
}

async function runCase({ steps: { before, body, after } }: Declared): Promise<void> {
  try {
    for (const step of before) await step()
    await body()
  } catch (error) {
    for (const step of after) await (async () => step())().catch(() => {})
    throw error
  }
  for (const step of after) await step()
}

function current(): Scope {
  if (scope === undefined) throw new Error('A contract declares its cases inside collect')
  return scope
}

export function describe(title: string, declare: () => void): void {
  const outer = current()
  scope = { group: `${outer.group}: ${title}`, before: [...outer.before], after: [...outer.after] }
  declare()
  scope = outer
}

export function it(name: string, body: Step): void {
  const at = current()
  // Read when the case runs: hooks may be declared after it.
  const steps = {
    get before() {
      return at.before
    },
    body,
    get after() {
      return [...at.after].reverse()
    },
  }
  declared.push({ group: at.group, name, steps })
}

export function beforeEach(step: Step): void {
  current().before.push(step)
}

export function afterEach(step: Step): void {
  current().after.push(step)
}

/** Deeply equal, whatever the prototypes: a property that is undefined counts as absent. */
export function assertEqual(actual: unknown, expected: unknown, context?: string): void {
  try {
    assert.deepEqual(comparable(actual), comparable(expected))
  } catch (error) {
    if (context !== undefined && error instanceof Error) error.message = `${context}: ${error.message}`
    throw error
  }
}

/** Every property of `expected` is equal; there may be others. Lists have the same length. */
export function assertMatch(actual: unknown, expected: unknown): void {
  assertEqual(namedIn(expected, actual), expected)
}

type Fields = Readonly<Record<string, unknown>>

const isFields = (value: unknown): value is Fields =>
  typeof value === 'object' &&
  value !== null &&
  ![Array, Map, Set, Uint8Array, Date].some((kind) => value instanceof kind)

function comparable(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(comparable)
  if (value instanceof Map) return new Map([...value].map(([key, one]) => [key, comparable(one)]))
  if (value instanceof Uint8Array) return new Uint8Array(value)
  if (!isFields(value)) return value
  const present = Object.entries(value).filter(([, one]) => one !== undefined)
  return Object.fromEntries(present.map(([key, one]) => [key, comparable(one)]))
}

/** The part of `actual` that `expected` names. */
function namedIn(expected: unknown, actual: unknown): unknown {
  if (Array.isArray(expected) && Array.isArray(actual))
    return actual.map((one, i) => namedIn(expected[i], one))
  if (!isFields(expected) || !isFields(actual)) return actual
  return Object.fromEntries(Object.entries(expected).map(([key, one]) => [key, namedIn(one, actual[key])]))
}

/** Random numbers from a seed, for tests that print it and can be repeated. Not for secrets. */
export interface SeededRandom {
  /** A whole number from 0 up to, not including, `limit`. */
  below(limit: number): number
  pick<T>(from: readonly T[]): T
}

export function seededRandom(seed: number): SeededRandom {
  let state = seed >>> 0
  // mulberry32: a 32-bit counter through a mixing function.
  function next(): number {
    state = (state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return (mixed ^ (mixed >>> 14)) >>> 0
  }
  const below = (limit: number) => Math.floor((next() / 2 ** 32) * limit)
  return {
    below,
    pick(from) {
      const picked = from[below(from.length)]
      if (picked === undefined) throw new RangeError('nothing to pick from')
      return picked
    },
  }
}

/** `RONDO_SEED` if set, so that a failure can be repeated; otherwise a new seed. */
export function testSeed(): number {
  const given = Number(process.env.RONDO_SEED)
  return Number.isSafeInteger(given) && given > 0 ? given : Math.floor(Math.random() * 2 ** 32)
}
