/**
 * Durable tasks over any store: the database keeps one row per task and decides every race; this file puts together
 * who asks it, when. In memory there is nothing but the turns that run: a parked task costs no process anything.
 */

import { randomBytes } from 'node:crypto'
import { hostname } from 'node:os'
import { misuse, RondoError } from '../../errors.ts'
import { repeat, type StoreClock, storeClock } from '../../lib/clock.ts'
import { isStorable } from '../input-slots.ts'
import type { Store } from '../store.ts'
import {
  isTaskId,
  type NewTask,
  type OnEngineEvent,
  type RunTurn,
  type Sealed,
  type ServeOptions,
  type TaskEngine,
  type TaskOwner,
} from '../task-engine.ts'
import type { Creation, Handover, Lease, Taker, TaskStore } from '../task-store.ts'
import { type ClaimLoop, type Place, startClaimLoop } from './claim-loop.ts'
import { createTaskWatch } from './task-watch.ts'

export interface LeaseEngineOptions {
  /** How long a task stays with a worker that gives no sign of life. Renewed three times as often. */
  leaseMs?: number
  /** How often to look for what no hint told; the store's own by default. */
  pollMs?: number
  /** A task fails when this many turns of it died or threw with nothing recorded in between. */
  maxFailures?: number
  /** The pause before a turn that threw is run again. */
  backoffMs?: (failures: number) => number
  /** Unended tasks that one owner may have. */
  maxOpenTasks?: number
  /** Characters in the journal of one task. */
  maxJournalBytes?: number
  sweepMs?: number
  /** Rows deleted at a time. */
  sweepBatch?: number
  /** How often the `queue` event is told, if anybody listens; 0 for never. */
  statsMs?: number
  onEvent?: OnEngineEvent
  clock?: StoreClock
  /** A name for this process in the store. */
  worker?: string
}

export const LEASE_MS = 15_000

const DAY_MS = 86_400_000
const MAX_TTL_MS = 366 * DAY_MS

const defaults = {
  leaseMs: LEASE_MS,
  maxFailures: 5,
  backoffMs: (failures: number) => Math.min(1000 * 2 ** (failures - 1), 60_000),
  maxOpenTasks: 100,
  maxJournalBytes: 16 * 1024 * 1024,
  sweepMs: 60_000,
  sweepBatch: 500,
  statsMs: 10_000,
  clock: storeClock,
}

export function createLeaseEngine(store: Store, options: LeaseEngineOptions = {}): TaskEngine {
  const settings = { ...defaults, pollMs: store.tasks.pollMs, ...options }
  const { clock } = settings
  const tell = settings.onEvent ?? (() => {})
  const { tasks } = store
  const loops = new Set<ClaimLoop>()
  /** Whoever names the id of its task has it. */
  const get = async (id: string, owner: TaskOwner) => {
    const view = await tasks.get(id, owner)
    if (view && !view.known) await tasks.confirm(id, owner)
    return view
  }
  const watch = createTaskWatch(tasks, get, clock, settings.pollMs, tell)
  return {
    async create(task) {
      assertTask(task)
      const bytes = (task.journal ?? []).reduce((sum, entry) => sum + entry.length, 0)
      if (bytes > settings.maxJournalBytes) throw new RondoError('LIMIT_STATE_BYTES')
      const creation = await startIn(firstPlace(loops), (taker) =>
        tasks.create(task, settings.maxOpenTasks, taker),
      )
      if (creation.kind === 'created') return creation.view
      if (creation.kind === 'limit') throw new RondoError('LIMIT_TASKS')
      throw misuse('This task id is taken: make one with createTaskId() for every task')
    },
    get: async (id, owner) => (isTaskId(id) ? get(id, owner) : undefined),
    async deliver(id, owner, answers) {
      if (!isTaskId(id)) return 'unknown'
      const given = storable(answers)
      const { kind } = await startIn(firstPlace(loops), (taker) => tasks.deliver(id, owner, given, taker))
      if (kind === 'idle' || kind === 'partial') await get(id, owner)
      return kind
    },
    cancel: async (id, owner) => (isTaskId(id) ? tasks.cancel(id, owner) : 'unknown'),
    async list(owner, { after, limit }) {
      const found = await tasks.list({ owner, after, limit })
      const views = await Promise.all(found.map(({ id }) => tasks.get(id, owner)))
      // One that expired in between is not there any more.
      return views.filter((view) => view !== undefined)
    },
    async watch(ids, owner, listener) {
      const possible = ids.filter(isTaskId)
      for (const id of ids) if (!isTaskId(id)) listener(id, undefined)
      return possible.length > 0 ? watch.watch(possible, owner, listener) : () => {}
    },
    async serve(run, serveOptions) {
      // A store that cannot be reached now is looked for again with every poll.
      await store.ready().catch((error) => tell({ kind: 'store-error', during: 'ready', error }))
      const loop = startLoop(store.tasks, run, settings, serveOptions, tell)
      loops.add(loop)
      const stopCare = startCare(store, settings, tell)
      return {
        async stop() {
          loops.delete(loop)
          stopCare()
          await loop.stop()
        },
      }
    },
  }
}

type Settings = Required<Omit<LeaseEngineOptions, 'onEvent' | 'worker'>> & LeaseEngineOptions

function startLoop(
  tasks: TaskStore,
  run: RunTurn,
  settings: Settings,
  { concurrency = 16, drainMs = 10_000 }: ServeOptions = {},
  tell: OnEngineEvent,
): ClaimLoop {
  const worker = settings.worker ?? `${hostname()}-${process.pid}-${randomBytes(4).toString('hex')}`
  const options = { ...settings, worker, concurrency, drainMs, graceMs: 5_000 }
  return startClaimLoop(tasks, run, settings.clock, options, tell)
}

/** What has to be done from time to time, by whoever serves. */
function startCare(store: Store, settings: Settings, tell: OnEngineEvent): () => void {
  const { clock, sweepMs, sweepBatch, statsMs, onEvent } = settings
  const stopSweep = startSweep(store, clock, sweepMs, sweepBatch, tell)
  const stopStats =
    onEvent && statsMs > 0
      ? repeat(
          clock,
          () => statsMs,
          () => tellQueue(store.tasks, tell),
        )
      : () => {}
  return () => {
    stopSweep()
    stopStats()
  }
}

function firstPlace(loops: ReadonlySet<ClaimLoop>): Place | undefined {
  for (const loop of loops) {
    const place = loop.reserve()
    if (place !== undefined) return place
  }
  return undefined
}

/** A task that is created or answered starts at once where there is room: the same write claims it. */
async function startIn<T extends Creation | Handover>(
  place: Place | undefined,
  write: (taker?: Taker) => Promise<T>,
): Promise<T> {
  let lease: Lease | undefined
  try {
    const written = await write(place?.taker)
    if ('lease' in written) lease = written.lease
    return written
  } finally {
    place?.fill(lease)
  }
}

async function tellQueue(tasks: TaskStore, tell: OnEngineEvent): Promise<void> {
  try {
    const { due, oldestDueMs, running, parked } = await tasks.stats()
    tell({ kind: 'queue', due, oldestDueMs, running, parked })
  } catch (error) {
    tell({ kind: 'store-error', during: 'stats', error })
  }
}

/** Keys that no store could hold were never asked, so they are ignored like any other unknown key. */
function storable(answers: ReadonlyMap<string, Sealed>): ReadonlyMap<string, Sealed> {
  return new Map([...answers].filter(([key]) => isStorable(key)))
}

function assertTask({ id, ttlMs, pollMs }: NewTask): void {
  if (!isTaskId(id)) throw misuse('A task id is 22 to 64 characters of base64url: use createTaskId()')
  if (!Number.isSafeInteger(ttlMs) || ttlMs < 1 || ttlMs > MAX_TTL_MS)
    throw misuse(`ttlMs must be a whole number of milliseconds from 1 to ${MAX_TTL_MS}`)
  if (!Number.isSafeInteger(pollMs) || pollMs < 1) throw misuse('pollMs must be a positive whole number')
}

/** Deletes expired rows from time to time, in batches with room between them; gives a function that ends it. */
function startSweep(
  store: Store,
  clock: StoreClock,
  everyMs: number,
  batch: number,
  tell: OnEngineEvent,
): () => void {
  let more = false
  const wait = () => (more ? 50 : everyMs * (0.8 + Math.random() * 0.4))
  return repeat(clock, wait, async () => {
    try {
      const count = await store.sweep(batch)
      more = count >= batch
      if (count > 0) tell({ kind: 'swept', count })
    } catch (error) {
      more = false
      tell({ kind: 'store-error', during: 'sweep', error })
    }
  })
}
