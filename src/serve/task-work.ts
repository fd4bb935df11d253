/**
 * A server's part in tasks: the engine over its store, and the worker that runs turns in this process. Work begins with
 * the first entrance that is used, when every tool has been declared.
 */

import type { FlowHost, TaskHost } from '../carry/host.ts'
import { createRunTurn, type FindTarget } from '../carry/task/turn.ts'
import { isThenable } from '../lib/json.ts'
import { createLeaseEngine } from '../store/engine/lease-engine.ts'
import type { EngineEvent, OnEngineEvent, Serving } from '../store/task-engine.ts'
import { assertTaskTimes } from '../tool/registry.ts'
import type { Log } from './log.ts'
import type { ServerOptions } from './options.ts'

const DAY_MS = 86_400_000
const MAX_PIECE_BYTES = 16 * 1024 * 1024

export interface TaskWork {
  /** Begins to take turns, unless it has begun, or this process was told to stop. */
  start(): void
  /** Lets turns hand back, then stops. */
  stop(): Promise<void>
}

const NO_WORK: TaskWork = { start: () => {}, stop: async () => {} }

export function createTaskHost(
  { store, tasks = {} }: Pick<ServerOptions, 'store' | 'tasks'>,
  log: Log,
): TaskHost | undefined {
  assertTaskTimes({ ttl: ['tasks.ttlMs', tasks.ttlMs], poll: ['tasks.pollMs', tasks.pollMs] })
  if (!store) return undefined
  const { ttlMs = DAY_MS, pollMs = 1000, maxPieceBytes = MAX_PIECE_BYTES } = tasks
  // Counting costs a query: only for somebody who wants to hear of it.
  const statsMs = tasks.onEvent ? undefined : 0
  const { maxOpen: maxOpenTasks, maxJournalBytes, leaseMs } = tasks
  const onEvent = logTaskEvents(log, tasks.onEvent)
  const settings = { maxOpenTasks, maxJournalBytes, onEvent, leaseMs, statsMs }
  const given = Object.fromEntries(Object.entries(settings).filter(([, value]) => value !== undefined))
  return { engine: createLeaseEngine(store, given), ttlMs, pollMs, maxPieceBytes }
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

/*
 * What an operator sees of the engine behind tasks without having asked for it: turns that threw, tasks given up, a store
 * that cannot be reached. The last comes with every look, so it is told once a minute.
 */

const AGAIN_MS = 60_000

/** Logs what matters, and hands every event to the operator's own listener, which cannot break anything. */
function logTaskEvents(
  log: Log,
  listener: OnEngineEvent = () => {},
  now: () => number = Date.now,
): OnEngineEvent {
  const toldAt = new Map<string, number>()
  const isNew = ({ during }: Extract<EngineEvent, { kind: 'store-error' }>): boolean => {
    const last = toldAt.get(during)
    if (last !== undefined && now() - last < AGAIN_MS) return false
    toldAt.set(during, now())
    return true
  }
  return (event) => {
    const message = event.kind === 'store-error' && !isNew(event) ? undefined : messageOf(event)
    if (message !== undefined) log({ event: 'warning', message, error: errorOf(event) })
    const onFailure = (error: unknown): void =>
      log({ event: 'warning', message: 'The listener tasks.onEvent threw or rejected', error })
    try {
      const outcome: unknown = listener(event)
      if (isThenable(outcome)) Promise.resolve(outcome).catch(onFailure)
    } catch (error) {
      onFailure(error)
    }
  }
}

function messageOf(event: EngineEvent): string | undefined {
  switch (event.kind) {
    case 'store-error':
      return `The store of tasks failed (${event.during})`
    case 'retry':
      return `A turn of the task ${event.id} threw and will be run again (${event.failures})`
    case 'gave-up':
      return `The task ${event.id} was given up after ${event.failures} turns that threw or died`
    default:
      return undefined
  }
}

function errorOf(event: EngineEvent): unknown {
  return 'error' in event ? event.error : undefined
}
