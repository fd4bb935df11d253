/**
 * Durable tasks on Restate. Restate delivers each turn to a worker, and again if that worker dies; timers, retries and
 * replication are its own. The journal, the questions and the fence are in the object of the task (`task-object.ts`).
 *
 * A turn is claimed, like in any store, and its writes name the epoch of the claim, so a worker that lost its connection
 * to Restate but lives on changes nothing. Changes made by this process are seen at once, others with the next poll.
 */

import { randomBytes } from 'node:crypto'
import { hostname } from 'node:os'
import { RondoError } from 'rondo'
import {
  assertTask,
  createWatch,
  isTaskId,
  journalTooLarge,
  type RunningTurn,
  repeat,
  report,
  runTurn,
  type StoreClock,
  settled,
  storable,
  storeClock,
  type TurnStore,
} from 'rondo/internal'
import type {
  EmitEngineEvent,
  EndedLimits,
  EngineOptions,
  Fence,
  NewTask,
  OperatorTasks,
  RunTurn,
  ServeOptions,
  Serving,
  TaskEngine,
  TaskOwner,
  TaskView,
} from 'rondo/store'
import { createHintBus, type HintBus } from 'rondo/store'
import type { CallObject } from './connection.ts'
import {
  type OwnerCalls,
  ownerKey,
  type ServiceNames,
  SILENCE_MS,
  type StoredView,
  type TaskCalls,
  type Wake,
} from './task-object.ts'

/** The parts of a store that its engine needs. */
export interface RestateAccess {
  readonly names: ServiceNames
  readonly call: CallObject
  readonly now: () => number
  readonly pollMs: number
  readonly operator: OperatorTasks
  /** Opens and registers the endpoint of this process. */
  ready(): Promise<void>
  /** From now on Restate's turns may be given to `runner`; returns a function that ends this. */
  join(runner: TurnRunner): () => void
}

export interface TurnRunner {
  /** The ratio of the turns that it has to the turns that it can run. */
  load(): number
  /** Rejects if Restate must deliver the turn again. */
  run(wake: Wake, gone: AbortSignal): Promise<void>
}

/** The time that a turn may still run after its task was cancelled elsewhere, and wait for an answer given elsewhere. */
const CHECK_MS = 500
/** Turns that may wait in a worker for each turn that it runs. Restate delivers the others again, a little later. */
const WAITING_RATIO = 3
/** The time that a handler that ignores its signal still counts against `concurrency`. */
const GRACE_MS = 5_000
const MAX_ENDED = 1_000
const MAX_ENDED_BYTES = 16 * 1024 * 1024

const defaults = {
  maxFailures: 5,
  backoffMs: (failures: number) => Math.min(1000 * 2 ** (failures - 1), 60_000),
  maxOpenTasks: 100,
  maxEndedTasks: 1_000,
  maxEndedBytes: 64 * 1024 * 1024,
  maxJournalBytes: 16 * 1024 * 1024,
  statsMs: 10_000,
  clock: storeClock,
}

/** Calls one handler of a task, and returns its result. */
type CallTask = <K extends keyof TaskCalls>(
  id: string,
  handler: K,
  input: Omit<Parameters<TaskCalls[K]>[0], 'at'> & { readonly at?: number },
) => Promise<ReturnType<TaskCalls[K]>>

const READS: ReadonlySet<keyof TaskCalls> = new Set(['look', 'slots', 'held'])

export function createRestateEngine(access: RestateAccess, options: EngineOptions = {}): TaskEngine {
  const settings = { ...defaults, pollMs: access.pollMs, ...options }
  const { clock } = settings
  const emit = settings.onEvent ?? (() => {})
  const hints = createHintBus()
  const ended = createEndedTasks(access.now)
  const call: CallTask = async (id, handler, input) =>
    (await access.call(
      access.names.task,
      id,
      handler,
      { at: access.now(), ...input },
      !READS.has(handler),
    )) as never

  const read = async (id: string, owner: TaskOwner): Promise<TaskView | undefined> => {
    const known = ended.get(id, owner)
    if (known) return known
    const stored = await call(id, 'look', { owner })
    if (stored === null) return undefined
    const view = decodeView(stored)
    ended.add(owner, view)
    return view
  }
  /** An owner that names the id of its task knows it. */
  const get = async (id: string, owner: TaskOwner) => {
    const view = await read(id, owner)
    if (view && !view.known) await call(id, 'confirm', { owner })
    return view
  }
  const changed = <T>(id: string, result: T): T => {
    hints.publish({ kind: 'changed', id })
    return result
  }
  const revisions = async (ids: readonly string[]) => {
    const found = await Promise.all(
      ids.map(async (id) => [id, ended.revision(id) ?? (await call(id, 'held', {}))?.revision] as const),
    )
    return new Map(found.flatMap(([id, revision]) => (revision === undefined ? [] : [[id, revision]])))
  }
  // JSON has no `Infinity`.
  const most = Number.MAX_SAFE_INTEGER
  const keep = {
    count: Math.min(settings.maxEndedTasks, most),
    bytes: Math.min(settings.maxEndedBytes, most),
  }
  const admissions = createAdmissions(access, settings.maxOpenTasks, keep, read)
  const watcher = createWatch({ onHint: hints.onHint, revisions }, clock, settings.pollMs, emit)
  const watch = watcher(get)

  return {
    async create(task) {
      assertTask(task)
      const bytes = (task.journal ?? []).reduce((sum, entry) => sum + entry.length, 0)
      if (bytes > settings.maxJournalBytes) throw journalTooLarge(bytes, settings.maxJournalBytes)
      const at = access.now()
      const admission = await admissions.admit(task, at)
      const creation = await call(task.id, 'begin', { task, at, keep, admitted: admission !== undefined })
      const isNew = creation.kind === 'created' && creation.view.createdAt === at
      if (admission === 'new' && !isNew) await admissions.undo(task, at)
      if (creation.kind === 'created') return decodeView(creation.view)
      throw new RondoError('PEER_TASK')
    },
    get: async (id, owner) => (isTaskId(id) ? get(id, owner) : undefined),
    async deliver(id, owner, answers) {
      if (!isTaskId(id)) return 'unknown'
      const kind = await call(id, 'deliver', { owner, answers: [...storable(answers)] })
      if (kind === 'idle' || kind === 'partial') await get(id, owner)
      return changed(id, kind)
    },
    deliverHook: async (id, owner, key, event) =>
      changed(id, await call(id, 'deliverHook', { owner, key, event })),
    slots: async (id, owner) => (await call(id, 'slots', { owner })) ?? undefined,
    cancel: async (id, owner) =>
      isTaskId(id) ? changed(id, await call(id, 'cancel', { owner })) : 'unknown',
    async list(owner, page) {
      const ids = (await access.call(access.names.owner, ownerKey(owner), 'page', page)) as readonly string[]
      const views = await Promise.all(ids.map((id) => read(id, owner)))
      // A task that expired, or that is still being created.
      return views.filter((view) => view !== undefined)
    },
    async watch(ids, owner, listener) {
      const possible = ids.filter(isTaskId)
      for (const id of ids) if (!isTaskId(id)) listener(id, undefined)
      return possible.length > 0 ? watch(possible, owner, listener) : () => {}
    },
    observe: watcher(read),
    async serve(run, serveOptions) {
      const stopReady = await keepReady(access, clock, emit)
      const worker = startWorker(
        createTurnStore(call, changed),
        call,
        run,
        hints,
        settings,
        serveOptions,
        emit,
      )
      const leave = access.join(worker)
      const stopStats = startStats(access.operator, settings, emit)
      return {
        async stop() {
          stopReady()
          stopStats()
          leave()
          await worker.stop()
        },
      }
    },
  }
}

function decodeView(stored: StoredView): TaskView {
  // JSON has no undefined.
  const absent = { message: undefined, result: undefined, error: undefined }
  return { ...absent, ...stored, inputs: new Map(stored.inputs) }
}

/** The time that a task may take from its admission until it exists. */
const ADMISSION_MS = 60_000
/** Owners whose full lists are remembered. */
const MAX_PRUNED = 1_000

/**
 * The limit on unfinished tasks, which the object of the owner counts. A process that dies after the admission leaves an
 * entry without a task; such entries are removed when the owner has reached the limit, at most once a minute.
 */
function createAdmissions(
  { names, call, now }: RestateAccess,
  maxOpenTasks: number,
  keep: EndedLimits,
  read: (id: string, owner: TaskOwner) => Promise<TaskView | undefined>,
) {
  type Calls = OwnerCalls
  const ask = async <K extends keyof Calls>(owner: TaskOwner, handler: K, input: Parameters<Calls[K]>[0]) =>
    (await call(names.owner, ownerKey(owner), handler, input, handler !== 'open')) as ReturnType<Calls[K]>
  const prunedAt = new Map<string, number>()
  const prune = async (owner: TaskOwner): Promise<void> => {
    const key = ownerKey(owner)
    if (now() - (prunedAt.get(key) ?? 0) < ADMISSION_MS) return
    if (prunedAt.size >= MAX_PRUNED) prunedAt.clear()
    prunedAt.set(key, now())
    for (const id of await ask(owner, 'open', { before: now() - ADMISSION_MS })) {
      const view = await read(id, owner)
      if (view === undefined) await ask(owner, 'ended', { id })
    }
  }
  return {
    /** Rejects with `LIMIT_TASKS`. Undefined if there is no limit. */
    async admit({ id, owner, ttlMs }: NewTask, at: number): Promise<'new' | 'again' | undefined> {
      if (!Number.isFinite(maxOpenTasks)) return undefined
      const entry = { id, at, expiresAt: at + ttlMs, limit: maxOpenTasks, keep }
      let admission = await ask(owner, 'admit', entry)
      if (admission === 'full') {
        await prune(owner)
        admission = await ask(owner, 'admit', entry)
      }
      if (admission === 'full') throw new RondoError('LIMIT_TASKS')
      return admission
    },
    async undo({ id, owner }: NewTask, at: number): Promise<void> {
      await ask(owner, 'forget', { id, createdAt: at })
    },
  }
}

/** The views of tasks that ended: they never change, so Restate is asked once. The oldest are evicted first. */
function createEndedTasks(now: () => number) {
  const kept = new Map<string, { readonly owner: TaskOwner; readonly view: TaskView }>()
  let bytes = 0
  const sizeOf = ({ result, error }: TaskView): number => (result ?? error ?? '').length
  const drop = (id: string) => {
    const found = kept.get(id)
    if (found && kept.delete(id)) bytes -= sizeOf(found.view)
  }
  const live = (id: string) => {
    const found = kept.get(id)
    if (found && found.view.expiresAt > now()) return found
    drop(id)
    return undefined
  }
  return {
    add(owner: TaskOwner, view: TaskView) {
      if (view.status === 'working' || view.status === 'input_required') return
      drop(view.id)
      kept.set(view.id, { owner, view })
      bytes += sizeOf(view)
      for (const oldest of kept.keys()) {
        if (kept.size <= MAX_ENDED && bytes <= MAX_ENDED_BYTES) break
        drop(oldest)
      }
    },
    get(id: string, { tenant, principal }: TaskOwner): TaskView | undefined {
      const found = live(id)
      return found?.owner.tenant === tenant && found.owner.principal === principal ? found.view : undefined
    },
    revision: (id: string): number | undefined => live(id)?.view.revision,
  }
}

/** The writes of a turn. */
function createTurnStore(call: CallTask, changed: <T>(id: string, result: T) => T): TurnStore {
  const write = async <K extends keyof TaskCalls>(
    { id, epoch }: Fence,
    handler: K,
    input: Omit<Parameters<TaskCalls[K]>[0], 'at' | 'epoch'>,
  ): Promise<ReturnType<TaskCalls[K]>> => {
    const whole = { ...input, epoch } as unknown as Omit<Parameters<TaskCalls[K]>[0], 'at'>
    return changed(id, await call(id, handler, whole))
  }
  return {
    append: ({ id, epoch }, from, entries) => call(id, 'append', { epoch, from, entries }),
    status: (fence, message) => write(fence, 'status', { message }),
    publish: async (fence, slots) => (await write(fence, 'publish', { slots })) ?? undefined,
    park: (fence, slots, wakeAt, liveUntil) => write(fence, 'park', { slots, wakeAt, liveUntil }),
    settle: (fence, ending) => write(fence, 'settle', { ending }),
    release: (fence, delayMs, failed) => write(fence, 'release', { delayMs, failed }),
    hold: (fence) => write(fence, 'hold', {}),
    slots: async (id, owner) => (await call(id, 'slots', { owner })) ?? undefined,
  }
}

type Settings = typeof defaults & Omit<EngineOptions, keyof typeof defaults>

interface Worker extends TurnRunner, Serving {}

function startWorker(
  store: TurnStore,
  call: CallTask,
  run: RunTurn,
  hints: HintBus,
  settings: Settings,
  { concurrency = 16, drainMs = 10_000 }: ServeOptions = {},
  emit: EmitEngineEvent,
): Worker {
  const { clock } = settings
  const worker = settings.worker ?? `${hostname()}-${process.pid}-${randomBytes(4).toString('hex')}`
  const running = new Set<RunningTurn>()
  const claims = new Set<Promise<unknown>>()
  /** Deliveries that wait for room, oldest first. */
  const waiting: (() => void)[] = []
  let taken = 0
  let stopping = false

  let beatAt = clock.elapsed()
  const beat = async () => {
    if (clock.elapsed() - beatAt < SILENCE_MS / 3) return
    beatAt = clock.elapsed()
    await Promise.all(
      [...running].map(({ lease: { fence } }) =>
        call(fence.id, 'renew', { epoch: fence.epoch }).catch((error) =>
          emit({ kind: 'store-error', during: 'renew', error }),
        ),
      ),
    )
  }
  const check = async (turn: RunningTurn) => {
    const { id, epoch } = turn.lease.fence
    try {
      const state = await call(id, 'held', { epoch })
      if (turn.ending || !running.has(turn)) return
      if (state?.held !== true) turn.lose('cancelled or taken over')
      else if (turn.waiting) await turn.refresh(state.revision)
    } catch (error) {
      emit({ kind: 'store-error', during: 'renew', error })
    }
  }
  const stopHints = hints.onHint((hint) => {
    for (const turn of running)
      if (hint.kind === 'changed' && hint.id === turn.lease.fence.id && !turn.ending) void check(turn)
  })
  const stopChecks = repeat(
    clock,
    () => CHECK_MS,
    async () => {
      await beat()
      await Promise.all([...running].filter((turn) => !turn.ending).map(check))
    },
  )

  /** Resolves when the turn is over, or its handler ignores for too long that it is. */
  const finish = (turn: RunningTurn): Promise<void> =>
    new Promise((resolve) => {
      const began = clock.elapsed()
      const leave = (end: Awaited<RunningTurn['done']>) => {
        if (!running.delete(turn)) return
        report(emit, turn.lease, end, clock.elapsed() - began)
        resolve()
      }
      running.add(turn)
      void turn.done.then(leave)
      const watchLoss = repeat(
        clock,
        () => GRACE_MS,
        () => {
          if (!running.has(turn)) return watchLoss()
          if (turn.lost !== undefined) leave({ kind: 'lost', reason: turn.lost })
        },
      )
    })

  /** Resolves when there is room for another turn. */
  const enter = async (): Promise<void> => {
    if (stopping || waiting.length >= concurrency * WAITING_RATIO)
      throw new Error('This worker has no room for another turn')
    if (taken >= concurrency) {
      // A turn that leaves passes its room on.
      await new Promise<void>((resolve) => waiting.push(resolve))
      if (stopping) throw new Error('This worker stops')
    } else taken++
  }
  const exit = () => {
    const next = waiting.shift()
    if (next) next()
    else taken--
  }
  const claim = async ({ id, wake }: Wake) => {
    const claimed = call(id, 'claim', { wake, worker })
    claims.add(claimed)
    return await claimed.finally(() => claims.delete(claimed))
  }
  const runDelivered = async (delivered: Wake, gone: AbortSignal): Promise<void> => {
    const lease = await claim(delivered)
    // The task ended, or another wake came after this one.
    if (lease === null) return
    if (stopping) {
      await store.release(lease.fence, 0, false)
      return
    }
    emit({ kind: 'claimed', count: 1 })
    const { takenOver = false, task, fence } = lease
    emit({ kind: 'began', id: fence.id, turn: fence.epoch, takenOver, failures: task.failures }, task)
    const turn = runTurn(store, lease, run, settings)
    // Restate dropped the connection and delivers the turn elsewhere: this one stops.
    const abandon = () => {
      turn.lose('cancelled or taken over')
      void store.release(fence, 0, false).catch(() => false)
    }
    gone.addEventListener('abort', abandon, { once: true })
    await finish(turn).finally(() => gone.removeEventListener('abort', abandon))
    // Only Restate knows whether anybody else has the turn: if not, it must deliver it again. A claim that is stale ends it.
    if (turn.lost !== undefined) throw new Error(`The turn was lost: ${turn.lost}`)
  }

  return {
    load: () => (stopping ? Number.POSITIVE_INFINITY : taken + waiting.length - concurrency),
    async run(delivered, gone) {
      await enter()
      await runDelivered(delivered, gone).finally(exit)
    },
    async stop() {
      stopping = true
      for (const reject of waiting.splice(0)) reject()
      await Promise.allSettled(claims)
      for (const turn of running) turn.drain()
      await settled(clock, [...running], drainMs)
      for (const turn of [...running]) {
        turn.lose('draining')
        await store.release(turn.lease.fence, 0, false).catch(() => false)
        running.delete(turn)
        report(emit, turn.lease, { kind: 'lost', reason: 'draining' }, 0)
      }
      stopHints()
      stopChecks()
    },
  }
}

const READY_RETRY_MS = 1_000

/** Opens the endpoint, and keeps trying while Restate cannot be reached; returns a function that stops it. */
async function keepReady(
  access: RestateAccess,
  clock: StoreClock,
  emit: EmitEngineEvent,
): Promise<() => void> {
  let stop = () => {}
  const attempt = async () => {
    try {
      await access.ready()
      stop()
    } catch (error) {
      // A mistake in the options does not go away.
      if (error instanceof TypeError) throw error
      emit({ kind: 'store-error', during: 'ready', error })
      return false
    }
    return true
  }
  if (await attempt()) return stop
  stop = repeat(
    clock,
    () => READY_RETRY_MS,
    () => attempt().then(() => {}),
  )
  return () => stop()
}

/** Counts tasks for a listener. */
function startStats(operator: OperatorTasks, settings: Settings, emit: EmitEngineEvent): () => void {
  const { clock, statsMs, onEvent } = settings
  if (!onEvent || statsMs <= 0) return () => {}
  return repeat(
    clock,
    () => statsMs,
    async () => {
      try {
        emit({ kind: 'queue', ...(await operator.stats()) })
      } catch (error) {
        emit({ kind: 'store-error', during: 'stats', error })
      }
    },
  )
}
