/**
 * A server's part in tasks: the engine over its store, and the worker that runs turns in this process. Work begins with
 * the first entrance that is used, when every tool has been declared.
 */

import type { FlowHost, TaskHost } from '../carry/flow-host.ts'
import { createRunTurn, type FindTarget } from '../carry/task.ts'
import { createLeaseEngine } from '../store/lease-engine.ts'
import type { Serving } from '../store/task-engine.ts'
import { assertTaskTimes } from '../tool/task-times.ts'
import type { Log } from './log.ts'
import type { ServerOptions } from './options.ts'
import { logTaskEvents } from './task-log.ts'

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
