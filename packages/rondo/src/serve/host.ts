/**
 * Creates the host of calls from options, for our own server and for a mount in another one, and with a store the host
 * of tasks and the worker that runs them.
 */

import { AsyncLocalStorage } from 'node:async_hooks'
import type { CallStep } from '../carry/around.ts'
import type { FlowHost, FlowPlatform, RunningRound, StateCarrier, TaskHost, Tracer } from '../carry/host.ts'
import { createMigration, type MigrationMode, sealedWithHandles } from '../carry/migration.ts'
import { notedEnd } from '../carry/report.ts'
import { recallEpoch } from '../carry/single-use.ts'
import { placeOfTask, toolOfTask } from '../carry/task/journal.ts'
import { createRunTurn, type FindTarget } from '../carry/task/turn.ts'
import { sealedStates } from '../carry/token.ts'
import { isStoreFault, misuse } from '../errors.ts'
import { createEvery, idle } from '../lib/clock.ts'
import { isRecord } from '../lib/json.ts'
import { quietly } from '../lib/quietly.ts'
import { drawId } from '../lib/random.ts'
import { createRate } from '../lib/rate.ts'
import type { LogFacts, LogPlace } from '../log/event.ts'
import { createEvents, createLog, type Log } from '../log/log.ts'
import type { Codec } from '../protocol/codec.ts'
import { guardObserver, type Observer } from '../protocol/observer.ts'
import { createCodecs } from '../protocol/revisions.ts'
import type { Scope } from '../replay/input.ts'
import { deriveBytes, digest } from '../seal/envelope.ts'
import { type KeyHolder, resolveKeys } from '../seal/key-ring.ts'
import { createLeaseEngine } from '../store/engine/lease-engine.ts'
import type { EmitEngineEvent, EngineEvent, Serving, TaskHead } from '../store/task-engine.ts'
import type { Approver } from '../tool/approval.ts'
import type { ForwardedTasks, RowsFor } from '../tool/forward.ts'
import { createSlowHandlers } from './heartbeat.ts'
import { createOverload } from './limits.ts'
import {
  assertEras,
  REVISIONS,
  readTaskOptions,
  resolveLimits,
  type ServerOptions,
  type SharedOptions,
  type TaskSettings,
} from './options.ts'
import { watchStore } from './store-watch.ts'

export interface HostOptions extends SharedOptions {
  /** The service that states are sealed for; the same on all instances of one service. */
  audience: string
}

export interface OpenHost extends FlowHost {
  /** Extensions add to it. */
  readonly steps: CallStep[]
  readonly store: ServerOptions['store']
  /** Set by an extension, before the first request. */
  approver?: Approver
  /** Set by a gateway. */
  forwarded?: ForwardedTasks
  rowsFor?: RowsFor
  /** Sets `draining`, and calls the listeners. */
  drain(): void
  /** Stops timers. */
  close(): void
}

export function createHost(
  options: HostOptions & { tracer?: Tracer },
  keys: KeyHolder = resolveKeys(options.keys),
  codecs: readonly Codec[] = REVISIONS.codecs,
): OpenHost {
  assertEras(options.eras)
  assertStore(options.store)
  const platform = createPlatform(options)
  const written = createLog({ ...options, now: platform.now })
  const { instance } = written
  const observer = guardObserver(options.telemetry, platform.now, (error) =>
    written.log({ event: 'warning', message: 'The telemetry threw; something was not observed', error }),
  )
  const log = createEvents(written, observer)
  const overload = createOverload(options.shed, platform.now, (error) =>
    log({ event: 'warning', message: 'The function `shed` threw; nothing is shed', error }),
  )
  const storeWatch = options.store && watchStore(options.store, log, platform.now)
  const watched = { ...options, store: storeWatch?.store }
  const isSaid = () => storeWatch?.isSaid() ?? false
  const placeOf = (task: TaskHead) => host.tasks && placeOfTask(host, host.tasks, task)
  const toolOf = (task: TaskHead) => host.tasks && toolOfTask(host, host.tasks, task)
  const drainListeners = new Set<() => void>()
  const host: OpenHost & { draining: boolean } = {
    audience: options.audience,
    codecs: createCodecs(codecs, options.eras),
    keys,
    limits: resolveLimits(options.limits),
    platform,
    dev: options.dev ?? false,
    skipSleep: options.skipSleep ?? options.dev ?? false,
    tracer: options.tracer,
    log,
    silent: written.write === undefined && observer?.event === undefined,
    observer,
    instance,
    running: new Set<RunningRound>(),
    steps: [],
    draining: false,
    overloaded: overload.overloaded,
    maxRoundMs: options.maxRoundMs ?? Number.POSITIVE_INFINITY,
    states: chooseStates(watched, platform, log),
    tasks: createTaskHost(watched, {
      log,
      instance,
      observer,
      placeOf,
      toolOf,
      now: platform.now,
      isSaid,
    }),
    leaseMs: readTaskOptions(options.tasks).leaseMs,
    store: storeWatch?.store,
    epoch: storeWatch ? recallEpoch(storeWatch.store.once) : async () => undefined,
    storeWatch,
    onDrain(listener) {
      const own = (): void => listener()
      drainListeners.add(own)
      return () => void drainListeners.delete(own)
    },
    drain() {
      host.draining = true
      for (const listener of drainListeners) listener()
      drainListeners.clear()
    },
    close() {
      keys.close()
      overload.close()
    },
  }
  return host
}

// Captured here: a test that replaces the global timers must not stop the timers of the runtime.
const { setTimeout, clearTimeout } = globalThis

/** Beyond this a timer fires at once. */
const MAX_DELAY_MS = 2 ** 31 - 1

const scope: Scope = { storage: new AsyncLocalStorage<object>(), running: 0 }

/** The environment of replay, on Node and on runtimes that have its crypto. */
function createPlatform({
  now = Date.now,
  randomId = drawId,
  restTimer: rest,
}: Pick<HostOptions, 'now' | 'randomId' | 'restTimer'>): FlowPlatform {
  return {
    now,
    randomId,
    idle,
    digest,
    derive: deriveBytes,
    after(ms, fn) {
      const timer = setTimeout(fn, Math.min(ms, MAX_DELAY_MS))
      return () => clearTimeout(timer)
    },
    rest,
    scope,
  }
}

const MODES: readonly MigrationMode[] = ['stored', 'dual', 'sealed-first', 'sealed']

function chooseStates(
  { continuation: mode = 'sealed', store }: Pick<ServerOptions, 'continuation' | 'store'>,
  { randomId }: FlowPlatform,
  log: Log,
): StateCarrier {
  if (!MODES.includes(mode)) {
    throw misuse(`continuation must be one of ${MODES.join(', ')}; got ${JSON.stringify(mode)}.`)
  }
  if (mode === 'sealed') return store ? sealedWithHandles(store.blobs) : sealedStates
  if (!store) throw misuse(`continuation: '${mode}' needs a store: createServer({ store, … })`)
  return createMigration({
    mode,
    blobs: store.blobs,
    randomId,
    report: (finding) => log({ event: 'continuation', ...finding }),
  })
}

/** The address of a database is an easy mistake, and may contain a password: no message shows what was given. */
function assertStore(store: unknown): void {
  if (store === undefined || isRecord(store)) return
  throw misuse(
    `store must be a store, such as createPostgresStore({ connectionString }); got ${store === null ? 'null' : `a value of the type ${typeof store}`}.`,
  )
}

// A server's part in tasks: the engine over its store, and the worker that runs turns in this process. The worker starts
// with the first entrance that is used, when every tool has been declared.
//
// The log shows what an operator must know of the engine: tasks that were claimed, taken over, lost or given up, turns that
// threw, and a store that cannot be reached, at most once a minute.

interface TaskWork {
  /** Starts to run turns, unless it has started or this process is draining. */
  start(): void
  /** Lets turns hand their tasks back, then stops. */
  stop(): Promise<void>
}

interface TaskReports {
  readonly log: Log
  readonly instance: string
  readonly observer?: Observer
  /** The flow to which a task belongs, if that can be read. */
  placeOf(task: TaskHead): LogPlace | undefined
  /** The tool of a task, if that can be read. */
  toolOf(task: TaskHead): string | undefined
  readonly now: () => number
  /** Whether the log has already said that the store fails; otherwise the caller says so. */
  isSaid(): boolean
}

const NO_WORK: TaskWork = { start: () => {}, stop: async () => {} }

function createTaskHost(
  { store, tasks: given }: Pick<ServerOptions, 'store' | 'tasks'>,
  reports: TaskReports,
): TaskHost | undefined {
  const tasks = readTaskOptions(given)
  const { log, instance, observer } = reports
  const tools = toToolTerms(tasks.tools)
  if (!store && tools) throw misuse('tasks: { tools: true } needs a store: createServer({ store, … })')
  if (!store) return undefined
  const operates = store.operator !== undefined
  if (!operates && (given?.listTools || given?.keepFailedMs))
    throw misuse(
      `tasks.${given.listTools ? 'listTools' : 'keepFailedMs'} needs a store with a part for operators, such as SQLite or PostgreSQL; ${store.kind ?? 'this store'} has none.`,
    )
  const { ttlMs, maxTtlMs, pollMs, maxPieceBytes } = tasks
  // Counting costs a query, so it is done only for a listener.
  const isCounted = tasks.onEvent !== undefined || observer?.queue !== undefined
  const { maxOpen: maxOpenTasks, maxEnded: maxEndedTasks, maxEndedBytes, maxJournalBytes, leaseMs } = tasks
  const logged = logTaskEvents(log, reports, tasks.onEvent)
  const observe = observer && observeTaskEvents(observer, reports, tasks.concurrency)
  const onEvent: EmitEngineEvent = (event, task) => {
    logged(event, task)
    observe?.(event, task)
  }
  const keepFailedMs = operates ? tasks.keepFailedMs : 0
  const limits = { maxOpenTasks, maxEndedTasks, maxEndedBytes, maxJournalBytes, keepFailedMs }
  const settings = { ...limits, onEvent, leaseMs, worker: instance, ...(isCounted ? {} : { statsMs: 0 }) }
  return {
    engine: 'createEngine' in store ? store.createEngine(settings) : createLeaseEngine(store, settings),
    ttlMs,
    maxTtlMs,
    pollMs,
    maxPieceBytes,
    tools,
    related: tasks.related,
    ...(operates && { toolAs: tasks.listTools ? 'name' : 'tag' }),
  }
}

/** How long `task_status` waits: long enough that a model seldom polls, and well below the minute after which hosts give up. */
const TOOL_WAIT_MS = 25_000
/** Hosts give up on a call after a minute. */
const MAX_TOOL_WAIT_MS = 55_000

function toToolTerms(tools: TaskSettings['tools']): TaskHost['tools'] {
  if (tools === false) return undefined
  if (tools !== true && (typeof tools !== 'object' || tools === null))
    throw misuse(`tasks.tools must be true, false or { waitMs }; got ${JSON.stringify(tools)}.`)
  const { waitMs = TOOL_WAIT_MS } = tools === true ? {} : tools
  if (typeof waitMs === 'number' && waitMs >= 0 && waitMs <= MAX_TOOL_WAIT_MS) return { waitMs }
  throw misuse(`tasks.tools.waitMs must be a number of milliseconds from 0 to ${MAX_TOOL_WAIT_MS}.`)
}

export function createTaskWork(
  host: FlowHost,
  find: FindTarget,
  { tasks }: Pick<ServerOptions, 'tasks'>,
): TaskWork {
  const { concurrency } = readTaskOptions(tasks)
  if (!host.tasks || concurrency === 0) return NO_WORK
  const { engine } = host.tasks
  const run = createRunTurn(host, host.tasks, find)
  const slow = createSlowHandlers(host)
  let stopWatching: (() => void) | undefined
  let serving: Promise<Serving> | undefined
  let stopped = Promise.resolve()
  return {
    start() {
      if (host.draining || serving) return
      const serve = () => engine.serve(run, { concurrency })
      // Without keys a worker could not run the tasks that it claims. The reason why keys do not load is logged for each turn.
      serving = host.keys.ready()?.then(serve, serve) ?? serve()
      stopWatching = slow && createEvery(() => {})(slow.everyMs, slow.check)
    },
    stop() {
      stopWatching?.()
      if (serving) stopped = serving.then((working) => working.stop())
      serving = undefined
      return stopped
    },
  }
}

/** Tells telemetry of the queue, of what interrupts tasks, and of their ends. */
function observeTaskEvents(
  { queue, count }: Observer,
  { toolOf, now }: Pick<TaskReports, 'toolOf' | 'now'>,
  slots: number,
): EmitEngineEvent {
  return (event, task) => {
    if (event.kind === 'queue') return queue?.({ ...event, slots })
    if (event.kind === 'store-error') return count?.({ kind: 'store', during: event.during })
    if (count === undefined || task === undefined) return
    const trouble = troubleOf(event)
    if (trouble !== undefined) return count({ kind: 'turn', trouble, target: toolOf(task) })
    const end = endingOf(event, task)
    if (end === undefined) return
    count({ kind: 'ended', ...end, target: toolOf(task), ageMs: Math.max(0, now() - task.createdAt) })
  }
}

function troubleOf(event: EngineEvent): 'retried' | 'lost' | 'taken_over' | undefined {
  if (event.kind === 'began') return event.takenOver ? 'taken_over' : undefined
  if (event.kind === 'retry') return 'retried'
  // A process that stops hands its tasks back.
  return event.kind === 'lost' && event.reason !== 'draining' ? 'lost' : undefined
}

function endingOf(event: EngineEvent, task: TaskHead): { outcome: string; code?: string } | undefined {
  if (event.kind === 'gave-up') return { outcome: 'given_up' }
  if (event.kind !== 'turn' || !(event.outcome === 'complete' || event.outcome === 'fail')) return undefined
  return notedEnd(task) ?? { outcome: event.outcome === 'complete' ? 'complete' : 'refused' }
}

/** Logs what matters, and passes every event to the operator's listener. */
function logTaskEvents(
  log: Log,
  { placeOf, isSaid }: Pick<TaskReports, 'placeOf' | 'isSaid'>,
  listener: ((event: EngineEvent) => void) | undefined,
  now: () => number = Date.now,
): EmitEngineEvent {
  const rate = createRate(60_000, now)
  const notify = quietly(listener, (error) =>
    log({ event: 'warning', message: 'The listener tasks.onEvent threw or rejected', error }),
  )
  const isNew = ({ during, error }: Extract<EngineEvent, { kind: 'store-error' }>): boolean => {
    return isStoreFault(error) ? !isSaid() : rate(during) !== undefined
  }
  return (event, task) => {
    const facts = event.kind === 'store-error' && !isNew(event) ? undefined : factsOf(event)
    if (facts !== undefined) log(task ? { ...facts, ...placeOf(task) } : facts)
    notify(event)
  }
}

function factsOf(event: EngineEvent): LogFacts | undefined {
  switch (event.kind) {
    case 'store-error':
      return { event: 'warning', message: `The task store failed (${event.during})`, error: event.error }
    case 'began': {
      const { id: task, turn, takenOver, failures } = event
      const phase = takenOver ? 'taken_over' : 'claimed'
      return { event: 'task', phase, task, turn, ...(failures > 0 && { failures }) }
    }
    case 'lost':
      return { event: 'task', phase: 'lost', task: event.id, turn: event.turn, reason: event.reason }
    case 'retry':
    case 'gave-up': {
      const { id: task, turn, failures, error } = event
      const phase = event.kind === 'retry' ? 'failed' : 'given_up'
      return { event: 'task', phase, task, turn, failures, ...(error !== undefined && { error }) }
    }
    default:
      return undefined
  }
}
