/**
 * The engine over a real store. When a turn ends, the process that ran it does what a client would: it answers the
 * question, or starts the next task. So the processes together always have as many tasks in progress as they have
 * clients, whichever process runs them.
 */

import { createLeaseEngine } from '../../packages/rondo/src/store/engine/lease-engine.ts'
import { createPostgresStore } from '../../packages/rondo/src/store/postgres/store.ts'
import { createSqliteStore } from '../../packages/rondo/src/store/sqlite/store.ts'
import type { EngineStore, Store } from '../../packages/rondo/src/store/store.ts'
import type {
  EngineEvent,
  EngineOptions,
  NewTask,
  RunTurn,
  TaskEngine,
  TaskOwner,
} from '../../packages/rondo/src/store/task-engine.ts'
import { COUNT_LIMIT } from '../../packages/rondo/src/store/task-store.ts'
import { ANSWER, KEY, newTask, QUESTION, RESULT } from './row.ts'
import {
  AT_ONCE,
  type Done,
  type EngineAddress,
  KEPT,
  type RestateAddress,
  repeatTogether,
  type StoreAddress,
  type Subject,
} from './subject.ts'

export function openStore(address: StoreAddress): Store {
  if (address.kind === 'sqlite') return createSqliteStore({ file: address.file })
  const { connectionString, schema } = address
  return createPostgresStore({ connectionString, schema })
}

/** Loaded when needed: another checkout that is measured may not have it. */
async function openRestate(address: RestateAddress): Promise<EngineStore> {
  const { createRestateStore } = await import('../../packages/restate/src/store.ts')
  const { ingress, admin, namespace, identityKey, port = 0, url } = address
  const endpoint = { port, url, identityKeys: [identityKey] }
  return createRestateStore({ ingress, admin, namespace, endpoint })
}

/** A store and its engine. */
export async function openEngine(
  address: EngineAddress,
  options: EngineOptions = {},
): Promise<{ readonly store: Store | EngineStore; readonly engine: TaskEngine }> {
  if (address.kind !== 'restate') {
    const store = openStore(address)
    return { store, engine: createLeaseEngine(store, options) }
  }
  const store = await openRestate(address)
  return { store, engine: store.createEngine(options) }
}

const inputs = new Map([[KEY, QUESTION]])
const answers = new Map([[KEY, ANSWER]])

/** Tasks of this process whose owner is not known by the turn's event. */
type Owners = Map<string, TaskOwner>

export async function openRondo(address: EngineAddress, processes: number): Promise<Subject> {
  let asks = true
  let onEnd: (event: EngineEvent & { kind: 'turn' }) => void = () => {}
  const owners: Owners = new Map()
  const { store, engine } = await openEngine(address, {
    statsMs: 3_600_000,
    onEvent(event) {
      if (event.kind === 'store-error') throw event.error
      if (event.kind === 'turn') onEnd(event)
    },
  })
  const run: RunTurn = async ({ task, answers: given }) => {
    if (!asks || given.has(KEY)) return { kind: 'complete', result: RESULT }
    owners.set(task.id, task.owner)
    return { kind: 'park', inputs }
  }
  const serving = await engine.serve(run, { concurrency: AT_ONCE })
  const kept = await keepSome(store, (task) => engine.create(task))

  const work = async (ms: number): Promise<Done> => {
    const began = performance.now()
    const isOver = (): boolean => performance.now() - began >= ms
    let count = 0
    const begin = (): void => void engine.create(newTask())
    const answer = (id: string): void => {
      const owner = owners.get(id)
      owners.delete(id)
      if (owner !== undefined) void engine.deliver(id, owner, answers)
    }
    onEnd = ({ id, outcome }) => {
      if (outcome === 'park') answer(id)
      if (outcome !== 'complete' || isOver()) return
      count++
      begin()
    }
    for (let client = 0; client < AT_ONCE; client++) begin()
    await new Promise((resolve) => setTimeout(resolve, ms))
    return { count, ms: performance.now() - began }
  }
  const lone = async (count: number): Promise<readonly number[]> => {
    const times: number[] = []
    for (let i = 0; i < count; i++) {
      const began = performance.now()
      const task = newTask()
      await new Promise<void>((resolve) => {
        onEnd = ({ id, outcome }) => {
          if (id !== task.id) return
          if (outcome === 'park') void engine.deliver(id, task.owner, answers)
          if (outcome === 'complete') resolve()
        }
        void engine.create(task)
      })
      times.push(performance.now() - began)
    }
    return times
  }
  let next = 0
  const look = async (): Promise<number> => {
    const { id, owner } = kept[next++ % KEPT] as NewTask
    if ((await engine.get(id, owner))?.inputs.get(KEY) !== QUESTION) throw new Error('A task is missing')
    return 1
  }
  return {
    async run(kind, ms) {
      asks = kind === 'resume'
      return kind === 'get' ? repeatTogether(ms, look) : work(ms)
    },
    lone(kind, count) {
      asks = kind === 'resume'
      return lone(count)
    },
    settle: () => settle(store, KEPT * processes),
    async close() {
      await serving.stop()
      await store.close()
    },
  }
}

/** Other processes may run some of them, so the store reports when all have parked. */
async function keepSome(
  { tasks }: Pick<EngineStore, 'tasks'>,
  create: (task: NewTask) => Promise<unknown>,
): Promise<NewTask[]> {
  const before = (await tasks.stats()).parked
  const kept = Array.from({ length: KEPT }, newTask)
  await Promise.all(kept.map(create))
  await settle({ tasks }, before + KEPT)
  return kept
}

/** Nothing due, nothing running, and nothing parked except the tasks that are kept, as far as the store counts. */
export async function settle({ tasks }: Pick<EngineStore, 'tasks'>, kept: number): Promise<void> {
  for (let look = 0; look < 1_000; look++) {
    const { due, running, parked } = await tasks.stats()
    if (due + running === 0 && parked === Math.min(kept, COUNT_LIMIT)) return
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
  throw new Error('Some tasks are still due or running')
}
