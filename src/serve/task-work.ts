/**
 * A server's part in tasks: the engine over its store, and the worker that runs turns in this process. The worker starts
 * with the first entrance that is used, when every tool has been declared.
 *
 * The log shows what an operator must know of the engine: tasks that were claimed, taken over, lost or given up, turns that
 * threw, and a store that cannot be reached, at most once a minute.
 */

import type { FlowHost, LogFacts, LogPlace, TaskHost } from '../carry/host.ts'
import { createRunTurn, type FindTarget } from '../carry/task/turn.ts'
import { misuse } from '../errors.ts'
import { createEvery } from '../lib/clock.ts'
import type { Observer } from '../protocol/observer.ts'
import { createLeaseEngine } from '../store/engine/lease-engine.ts'
import type { EmitEngineEvent, EngineEvent, Serving, TaskHead } from '../store/task-engine.ts'
import { assertTaskTimes } from '../tool/registry.ts'
import { quietly } from './failure.ts'
import { createSlowHandlers } from './heartbeat.ts'
import type { Log } from './log.ts'
import type { ServerOptions } from './options.ts'

const DAY_MS = 86_400_000
const MAX_PIECE_BYTES = 16 * 1024 * 1024

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
}

const NO_WORK: TaskWork = { start: () => {}, stop: async () => {} }

export function createTaskHost(
  { store, tasks = {} }: Pick<ServerOptions, 'store' | 'tasks'>,
  { log, instance, observer, placeOf }: TaskReports,
): TaskHost | undefined {
  assertTaskTimes({ ttl: ['tasks.ttlMs', tasks.ttlMs], poll: ['tasks.pollMs', tasks.pollMs] })
  const tools = toToolTerms(tasks.tools)
  if (!store && tools) throw misuse('tasks: { tools: true } needs a store: createServer({ store, … })')
  if (!store) return undefined
  const { ttlMs = DAY_MS, pollMs = 1000, maxPieceBytes = MAX_PIECE_BYTES } = tasks
  // Counting costs a query, so it is done only for a listener.
  const statsMs = tasks.onEvent || observer?.queue ? undefined : 0
  const { maxOpen: maxOpenTasks, maxJournalBytes, leaseMs } = tasks
  const logged = logTaskEvents(log, placeOf, tasks.onEvent)
  const onEvent: EmitEngineEvent = observer?.queue
    ? (event, task) => {
        logged(event, task)
        if (event.kind === 'queue') observer.queue?.(event)
      }
    : logged
  const settings = { maxOpenTasks, maxJournalBytes, onEvent, leaseMs, statsMs, worker: instance }
  const given = Object.fromEntries(Object.entries(settings).filter(([, value]) => value !== undefined))
  return {
    engine: 'createEngine' in store ? store.createEngine(given) : createLeaseEngine(store, given),
    ttlMs,
    pollMs,
    maxPieceBytes,
    tools,
    related: tasks.related === true,
  }
}

/** How long `task_status` waits, so that a model does not have to poll a short task. */
const TOOL_WAIT_MS = 5_000
/** Hosts give up on a call after a minute. */
const MAX_TOOL_WAIT_MS = 55_000

function toToolTerms(tools: NonNullable<ServerOptions['tasks']>['tools']): TaskHost['tools'] {
  if (tools === undefined || tools === false) return undefined
  if (tools !== true && (typeof tools !== 'object' || tools === null))
    throw misuse(`tasks.tools must be true, false or { waitMs }; got ${JSON.stringify(tools)}.`)
  const { waitMs = TOOL_WAIT_MS } = tools === true ? {} : tools
  if (typeof waitMs === 'number' && waitMs >= 0 && waitMs <= MAX_TOOL_WAIT_MS) return { waitMs }
  throw misuse(`tasks.tools.waitMs must be a number of milliseconds from 0 to ${MAX_TOOL_WAIT_MS}.`)
}

export function createTaskWork(
  host: FlowHost,
  find: FindTarget,
  { tasks = {} }: Pick<ServerOptions, 'tasks'>,
): TaskWork {
  const { concurrency = 16 } = tasks
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
      // Without keys it could only hold on to what it claims. Why they do not load is logged for each turn.
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

const REPORT_MS = 60_000

/** Logs what matters, and passes every event to the operator's listener. */
function logTaskEvents(
  log: Log,
  placeOf: TaskReports['placeOf'],
  listener: ((event: EngineEvent) => void) | undefined,
  now: () => number = Date.now,
): EmitEngineEvent {
  const reportedAt = new Map<string, number>()
  const notify = quietly(listener, (error) =>
    log({ event: 'warning', message: 'The listener tasks.onEvent threw or rejected', error }),
  )
  const isNew = ({ during }: Extract<EngineEvent, { kind: 'store-error' }>): boolean => {
    const last = reportedAt.get(during)
    if (last !== undefined && now() - last < REPORT_MS) return false
    reportedAt.set(during, now())
    return true
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
