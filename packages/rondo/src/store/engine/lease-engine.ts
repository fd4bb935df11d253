/**
 * Durable tasks over any store. The database keeps one row per task and decides every race; this file connects it with
 * the claim loop and the periodic sweep, and watches tasks for their owners. Only running turns are in memory: a parked
 * task costs nothing.
 */

import { randomBytes } from 'node:crypto'
import { hostname } from 'node:os'
import { misuse, RondoError } from '../../errors.ts'
import { repeat, type StoreClock, storeClock } from '../../lib/clock.ts'
import { isStorable } from '../input-slots.ts'
import type { Store } from '../store.ts'
import {
  type EmitEngineEvent,
  type EngineOptions,
  isOpen,
  isTaskId,
  type NewTask,
  type RunTurn,
  type Sealed,
  type ServeOptions,
  type TaskEngine,
  type TaskOwner,
  type TaskView,
  type WatchTask,
} from '../task-engine.ts'
import {
  type Creation,
  ENDED_BYTES,
  type Handover,
  type HookHandover,
  type Lease,
  type Taker,
  type TaskStore,
} from '../task-store.ts'
import { type ClaimLoop, type Reservation, startClaimLoop } from './claim-loop.ts'
import { journalTooLarge, type TaskTurnOptions } from './run-turn.ts'

export interface LeaseEngineOptions extends EngineOptions {
  /** How long a worker keeps a task without a heartbeat. Leases are renewed after a third of this time. */
  leaseMs?: number
  sweepMs?: number
  /** Rows deleted at a time. */
  sweepBatch?: number
  clock?: StoreClock
}

export const LEASE_MS = 15_000

const DAY_MS = 86_400_000
const MAX_TTL_MS = 366 * DAY_MS

/** Limits of tasks, unless the operator sets others. */
export const ENGINE_DEFAULTS: Required<
  Pick<LeaseEngineOptions, 'leaseMs' | 'maxOpenTasks' | 'maxEndedTasks' | 'maxEndedBytes' | 'maxJournalBytes'>
> = {
  leaseMs: LEASE_MS,
  maxOpenTasks: 100,
  maxEndedTasks: 1_000,
  maxEndedBytes: 64 * 1024 * 1024,
  maxJournalBytes: 16 * 1024 * 1024,
}

const defaults = {
  ...ENGINE_DEFAULTS,
  keepFailedMs: 0,
  maxFailures: 5,
  backoffMs: (failures: number) => Math.min(1000 * 2 ** (failures - 1), 60_000),
  sweepMs: 60_000,
  sweepBatch: 500,
  statsMs: 10_000,
  clock: storeClock,
}

export function createLeaseEngine(store: Store, options: LeaseEngineOptions = {}): TaskEngine {
  const settings = { ...defaults, pollMs: store.tasks.pollMs, ...options }
  const { clock } = settings
  const emit = settings.onEvent ?? (() => {})
  const { tasks } = store
  const loops = new Set<ClaimLoop>()
  const onEnded = startTrimming(tasks, settings, emit)
  /** An owner that names the id of its task knows it. Only a task that has turns left needs to learn of that. */
  const get = async (id: string, owner: TaskOwner) => {
    const view = await tasks.get(id, owner)
    if (view && !view.known && isOpen(view.status)) await tasks.confirm(id, owner)
    return view
  }
  const watcher = createWatch(tasks, clock, settings.pollMs, emit)
  const watch = watcher(get)
  return {
    async create(task) {
      assertTask(task)
      const bytes = (task.journal ?? []).reduce((sum, entry) => sum + entry.length, 0)
      if (bytes > settings.maxJournalBytes) throw journalTooLarge(bytes, settings.maxJournalBytes)
      const creation = await startIn(reserveIn(loops), (taker) =>
        tasks.create(task, settings.maxOpenTasks, taker),
      )
      if (creation.kind === 'created') return creation.view
      if (creation.kind === 'limit') throw new RondoError('LIMIT_TASKS')
      throw new RondoError('PEER_TASK')
    },
    get: async (id, owner) => (isTaskId(id) ? get(id, owner) : undefined),
    async deliver(id, owner, answers) {
      if (!isTaskId(id)) return 'unknown'
      const given = storable(answers)
      const { kind } = await startIn(reserveIn(loops), (taker) => tasks.deliver(id, owner, given, taker))
      if (kind === 'idle' || kind === 'partial') await get(id, owner)
      return kind
    },
    async deliverHook(id, owner, key, event) {
      const { kind } = await startIn(reserveIn(loops), (taker) =>
        tasks.deliverHook(id, owner, key, event, taker),
      )
      return kind
    },
    slots: (id, owner) => tasks.slots(id, owner),
    async cancel(id, owner) {
      const cancellation = isTaskId(id) ? await tasks.cancel(id, owner) : 'unknown'
      if (cancellation === 'cancelled') onEnded(owner, ENDED_BYTES)
      return cancellation
    },
    async list(owner, { after, limit }) {
      const found = await tasks.list({ owner, after, limit })
      const views = await Promise.all(found.map(({ id }) => tasks.get(id, owner)))
      // A task may expire between the two reads.
      return views.filter((view) => view !== undefined)
    },
    async watch(ids, owner, listener) {
      const possible = ids.filter(isTaskId)
      for (const id of ids) if (!isTaskId(id)) listener(id, undefined)
      return possible.length > 0 ? watch(possible, owner, listener) : () => {}
    },
    observe: watcher((id, owner) => tasks.get(id, owner)),
    async serve(run, serveOptions) {
      // A store that cannot be reached now is retried with every poll.
      await store.ready().catch((error) => emit({ kind: 'store-error', during: 'ready', error }))
      const loop = startLoop(
        store.tasks,
        run,
        { ...settings, onEnded, label: store.operator?.label },
        serveOptions,
        emit,
      )
      loops.add(loop)
      const stopMaintenance = startMaintenance(store, settings, emit)
      return {
        async stop() {
          loops.delete(loop)
          stopMaintenance()
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
  settings: Settings & Pick<TaskTurnOptions, 'onEnded' | 'label'>,
  { concurrency = 16, drainMs = 10_000 }: ServeOptions = {},
  emit: EmitEngineEvent,
): ClaimLoop {
  const worker = settings.worker ?? `${hostname()}-${process.pid}-${randomBytes(4).toString('hex')}`
  const options = { ...settings, worker, concurrency, drainMs, graceMs: 5_000 }
  return startClaimLoop(tasks, run, settings.clock, options, emit)
}

/** The periodic work of a process that runs turns. */
function startMaintenance(store: Store, settings: Settings, emit: EmitEngineEvent): () => void {
  const { clock, sweepMs, sweepBatch, statsMs, onEvent } = settings
  const stopSweep = startSweep(store, clock, sweepMs, sweepBatch, emit)
  if (!onEvent || statsMs === 0) return stopSweep
  const emitStats = () => emitQueue(store.tasks, emit)
  const stopStats = repeat(clock, () => statsMs, emitStats)
  void emitStats()
  return () => {
    stopSweep()
    stopStats()
  }
}

function reserveIn(loops: ReadonlySet<ClaimLoop>): Reservation | undefined {
  for (const loop of loops) {
    const reservation = loop.reserve()
    if (reservation !== undefined) return reservation
  }
  return undefined
}

/** If this process has room, the write that creates or resumes a task also claims it, so that it starts at once. */
async function startIn<T extends Creation | Handover | HookHandover>(
  reservation: Reservation | undefined,
  write: (taker?: Taker) => Promise<T>,
): Promise<T> {
  let lease: Lease | undefined
  try {
    const written = await write(reservation?.taker)
    if ('lease' in written) lease = written.lease
    return written
  } finally {
    reservation?.fill(lease)
  }
}

async function emitQueue(tasks: TaskStore, emit: EmitEngineEvent): Promise<void> {
  try {
    const { due, oldestDueMs, running, parked } = await tasks.stats()
    emit({ kind: 'queue', due, oldestDueMs, running, parked })
  } catch (error) {
    emit({ kind: 'store-error', during: 'stats', error })
  }
}

/** Keys that no store can hold were never asked, so they are ignored like any other unknown key. */
export function storable(answers: ReadonlyMap<string, Sealed>): ReadonlyMap<string, Sealed> {
  return new Map([...answers].filter(([key]) => isStorable(key)))
}

export function assertTask({ id, ttlMs, pollMs }: NewTask): void {
  if (!isTaskId(id)) throw misuse('A task id must be 22 to 512 characters of base64url: use createTaskId()')
  if (!Number.isSafeInteger(ttlMs) || ttlMs < 1 || ttlMs > MAX_TTL_MS)
    throw misuse(`ttlMs must be a whole number of milliseconds from 1 to ${MAX_TTL_MS}`)
  if (!Number.isSafeInteger(pollMs) || pollMs < 1) throw misuse('pollMs must be a positive whole number')
}

/** How much of a limit may be added between two trims. */
const TRIM_SHARE = 1 / 20
/** Owners whose ended tasks are counted here. */
const MAX_TALLIES = 10_000

/**
 * Keeps the ended tasks of each owner within the limits. Returns the function to call when one has ended. It counts what ends
 * in this process and trims after every twentieth of a limit, so that the cost of finding the oldest is shared by many.
 */
function startTrimming(
  tasks: TaskStore,
  { maxEndedTasks, maxEndedBytes }: Settings,
  emit: EmitEngineEvent,
): (owner: TaskOwner, bytes: number) => void {
  // No database has an integer for `Infinity`.
  const most = Number.MAX_SAFE_INTEGER
  const limits = { count: Math.min(maxEndedTasks, most), bytes: Math.min(maxEndedBytes, most) }
  const tallies = new Map<string, { readonly owner: TaskOwner; count: number; bytes: number }>()
  const trimming = new Set<string>()
  const trim = async (key: string, owner: TaskOwner) => {
    tallies.delete(key)
    trimming.add(key)
    await tasks.trim(owner, limits).catch((error) => emit({ kind: 'store-error', during: 'trim', error }))
    trimming.delete(key)
    check(key)
  }
  const check = (key: string) => {
    const tally = tallies.get(key)
    if (!tally || trimming.has(key)) return
    if (tally.count >= limits.count * TRIM_SHARE || tally.bytes >= limits.bytes * TRIM_SHARE)
      void trim(key, tally.owner)
  }
  return (owner, bytes) => {
    const key = JSON.stringify([owner.tenant, owner.principal])
    const tally = tallies.get(key) ?? { owner, count: 0, bytes: 0 }
    tally.count += 1
    tally.bytes += bytes
    tallies.set(key, tally)
    check(key)
    if (tallies.size <= MAX_TALLIES) return
    const [oldest] = tallies
    if (oldest) void trim(oldest[0], oldest[1].owner)
  }
}

/** Deletes expired rows periodically, in batches with pauses between them; returns a function that stops it. */
function startSweep(
  store: Store,
  clock: StoreClock,
  everyMs: number,
  batch: number,
  emit: EmitEngineEvent,
): () => void {
  let more = false
  const wait = () => (more ? 50 : everyMs * (0.8 + Math.random() * 0.4))
  return repeat(clock, wait, async () => {
    try {
      const count = await store.sweep(batch)
      more = count >= batch
      if (count > 0) emit({ kind: 'swept', count })
    } catch (error) {
      more = false
      emit({ kind: 'store-error', during: 'sweep', error })
    }
  })
}

interface Watcher {
  readonly id: string
  readonly owner: TaskOwner
  readonly listener: WatchTask
  readonly read: TaskStore['get']
  /** The last revision that the listener saw; 0 before the first. */
  revision: number
  closed: boolean
}

/**
 * Watches tasks for their owners: changes made by this process are reported at once, others after a hint or a poll. Returns
 * how to watch with a given way to read a task.
 *
 * A listener gets the current view first, so that no change is missed, and then only views with a higher revision. A
 * poll is one small query for all watched tasks; nothing is polled while no task is watched.
 */
export function createWatch(
  store: Pick<TaskStore, 'onHint' | 'revisions'>,
  clock: StoreClock,
  pollMs: number,
  emit: EmitEngineEvent,
): (read: TaskStore['get']) => TaskEngine['watch'] {
  const watchers = new Map<string, Set<Watcher>>()
  let stopAll: (() => void) | undefined
  let pending: Set<string> | 'all' | undefined
  let busy = false

  const close = (watcher: Watcher) => {
    watcher.closed = true
    const others = watchers.get(watcher.id)
    others?.delete(watcher)
    if (others?.size === 0) watchers.delete(watcher.id)
    if (watchers.size > 0) return
    stopAll?.()
    stopAll = undefined
  }
  const showView = (watcher: Watcher, view: TaskView | undefined) => {
    if (watcher.closed || (view !== undefined && view.revision <= watcher.revision)) return
    if (view === undefined) close(watcher)
    else watcher.revision = view.revision
    watcher.listener(watcher.id, view)
  }
  const readView = async (watcher: Watcher) =>
    showView(watcher, await watcher.read(watcher.id, watcher.owner))

  const refresh = async () => {
    if (busy) return
    busy = true
    try {
      while (pending !== undefined) await refreshPending()
    } catch (error) {
      emit({ kind: 'store-error', during: 'watch', error })
    } finally {
      busy = false
    }
  }
  const refreshPending = async () => {
    const ids =
      pending === 'all' ? [...watchers.keys()] : [...(pending ?? [])].filter((id) => watchers.has(id))
    pending = undefined
    const revisions = ids.length > 0 ? await store.revisions(ids) : new Map<string, number>()
    const stale = ids
      .flatMap((id) => [...(watchers.get(id) ?? [])])
      .filter((watcher) => revisions.get(watcher.id) !== watcher.revision)
    await Promise.all(stale.map(readView))
  }
  const request = (what: string | 'all') => {
    if (what === 'all' || pending === 'all') pending = 'all'
    else pending = (pending ?? new Set()).add(what)
    void refresh()
  }
  const startAll = () => {
    const stopHints = store.onHint((hint) => {
      if (hint.kind !== 'changed') return
      if (hint.id === undefined) request('all')
      else if (watchers.has(hint.id)) request(hint.id)
    })
    const stopPoll = repeat(
      clock,
      () => pollMs,
      () => request('all'),
    )
    return () => {
      stopHints()
      stopPoll()
    }
  }
  return (read) => async (ids, owner, listener) => {
    const mine = ids.map((id): Watcher => ({ id, owner, listener, read, revision: 0, closed: false }))
    stopAll ??= startAll()
    for (const watcher of mine) {
      const others = watchers.get(watcher.id) ?? new Set()
      watchers.set(watcher.id, others.add(watcher))
    }
    const stop = () => mine.forEach(close)
    try {
      await Promise.all(mine.map(readView))
    } catch (error) {
      stop()
      throw error
    }
    return stop
  }
}
