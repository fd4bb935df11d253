/**
 * A server's part in tasks: the engine over its store, and the worker that runs turns in this process. The worker starts
 * with the first entrance that is used, when every tool has been declared.
 *
 * The log shows what an operator must know of the engine: turns that threw, tasks that were given up, and a store that
 * cannot be reached, at most once a minute.
 */

import type { FlowHost, TaskHost } from '../carry/host.ts'
import { createRunTurn, type FindTarget } from '../carry/task/turn.ts'
import { misuse } from '../errors.ts'
import { createLeaseEngine } from '../store/engine/lease-engine.ts'
import type { EngineEvent, OnEngineEvent, Serving } from '../store/task-engine.ts'
import { assertTaskTimes } from '../tool/registry.ts'
import type { Log } from './log.ts'
import type { ServerOptions } from './options.ts'
import { quietly } from './service.ts'

const DAY_MS = 86_400_000
const MAX_PIECE_BYTES = 16 * 1024 * 1024

interface TaskWork {
  /** Starts to run turns, unless it has started or this process is draining. */
  start(): void
  /** Lets turns hand their tasks back, then stops. */
  stop(): Promise<void>
}

const NO_WORK: TaskWork = { start: () => {}, stop: async () => {} }

export function createTaskHost(
  { store, tasks = {} }: Pick<ServerOptions, 'store' | 'tasks'>,
  log: Log,
): TaskHost | undefined {
  assertTaskTimes({ ttl: ['tasks.ttlMs', tasks.ttlMs], poll: ['tasks.pollMs', tasks.pollMs] })
  const tools = toToolTerms(tasks.tools)
  if (!store && tools) throw misuse('tasks: { tools: true } needs a store: createServer({ store, … })')
  if (!store) return undefined
  const { ttlMs = DAY_MS, pollMs = 1000, maxPieceBytes = MAX_PIECE_BYTES } = tasks
  // Counting costs a query, so it is done only for a listener.
  const statsMs = tasks.onEvent ? undefined : 0
  const { maxOpen: maxOpenTasks, maxJournalBytes, leaseMs } = tasks
  const onEvent = logTaskEvents(log, tasks.onEvent)
  const settings = { maxOpenTasks, maxJournalBytes, onEvent, leaseMs, statsMs }
  const given = Object.fromEntries(Object.entries(settings).filter(([, value]) => value !== undefined))
  return { engine: createLeaseEngine(store, given), ttlMs, pollMs, maxPieceBytes, tools }
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
  { tasks = {}, slowCallMs }: Pick<ServerOptions, 'tasks' | 'slowCallMs'>,
): TaskWork {
  const { concurrency = 16 } = tasks
  if (!host.tasks || concurrency === 0) return NO_WORK
  const { engine } = host.tasks
  const run = createRunTurn(host, host.tasks, find, slowCallMs)
  let serving: Promise<Serving> | undefined
  let stopped = Promise.resolve()
  return {
    start() {
      if (!host.draining) serving ??= engine.serve(run, { concurrency })
    },
    stop() {
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
  listener: OnEngineEvent | undefined,
  now: () => number = Date.now,
): OnEngineEvent {
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
  return (event) => {
    const message = event.kind === 'store-error' && !isNew(event) ? undefined : messageOf(event)
    if (message !== undefined) log({ event: 'warning', message, error: errorOf(event) })
    notify(event)
  }
}

function messageOf(event: EngineEvent): string | undefined {
  switch (event.kind) {
    case 'store-error':
      return `The task store failed (${event.during})`
    case 'retry':
      return `A turn of task ${event.id} threw and will be retried (failure ${event.failures})`
    case 'gave-up':
      return `Task ${event.id} was given up after ${event.failures} turns that threw or died`
    default:
      return undefined
  }
}

function errorOf(event: EngineEvent): unknown {
  return 'error' in event ? event.error : undefined
}
