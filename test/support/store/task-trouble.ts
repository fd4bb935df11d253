/**
 * Kills workers, freezes them, and crashes the database, spread over the time in which tasks are created.
 *
 * A worker is frozen in the middle of a step and wakes up when another worker has finished that task, so each time there
 * is a worker that continues without its lease.
 */

import type { Store } from '../../../packages/rondo/src/store/store.ts'
import { createTaskId } from '../../../packages/rondo/src/store/task-engine.ts'
import type { SeededRandom } from '../../../packages/store-kit/src/harness.ts'
import { freezeWorker } from './freeze-worker.ts'
import { alice, type Database, until } from './store-harness.ts'
import type { Crew } from './worker-crew.ts'
import type { Plan } from './worker-plan.ts'
import type { WorkerProcess } from './worker-process.ts'

export interface TroubleOptions {
  readonly database: Database
  readonly random: SeededRandom
  readonly tasks: number
  readonly kills: number
  readonly freezes: number
  /** Crashes the database and starts it again. */
  readonly crashDatabase?: () => Promise<void>
  readonly crashes: number
  /** Breaks connections to the running database; returns how many. */
  readonly breakConnections?: () => Promise<number>
  /** The number of times that connections are broken. */
  readonly breaks?: number
  readonly patienceMs: number
}

export interface TroubleCount {
  kills: number
  freezes: number
  crashes: number
  /** Connections. */
  broken: number
}

/** Long enough that the worker is frozen in the middle of it. */
const STEP_MS = 300
const CREATION_MS = 600_000
const FINISH_MS = 300_000
const BEGAN = 'began'

/** `created` grows meanwhile, and gets the tasks that are made here. */
export async function makeTrouble(
  options: TroubleOptions,
  { crew, store, steps, created }: { crew: Crew; store: Store; steps: number; created: string[] },
): Promise<TroubleCount> {
  const { random, tasks, kills, freezes, crashes, breaks = 0 } = options
  const { crashDatabase, breakConnections } = options
  const kinds = [
    ...Array.from({ length: kills }, () => 'kill'),
    ...Array.from({ length: freezes }, () => 'freeze'),
    ...Array.from({ length: crashes }, () => 'crash'),
    ...Array.from({ length: breaks }, () => 'break'),
  ]
  const total = kinds.length
  const done: TroubleCount = { kills: 0, freezes: 0, crashes: 0, broken: 0 }
  for (let turn = 0; turn < total; turn++) {
    const share = (tasks * (turn + 0.5)) / total
    await until('more tasks', () => created.length >= share, CREATION_MS)
    const [kind] = kinds.splice(random.below(kinds.length), 1)
    if (kind === 'kill') {
      const worker = await crew.pick()
      worker.signal('SIGKILL')
      await worker.ended
      done.kills++
    } else if (kind === 'freeze') {
      const { worker, id } = await freezeInStep({ crew, store, steps, created })
      await until('another worker to finish', () => isCompleted(store, id), FINISH_MS)
      worker.signal('SIGCONT')
      done.freezes++
    } else if (kind === 'break') {
      done.broken += (await breakConnections?.()) ?? 0
    } else {
      await crashDatabase?.()
      done.crashes++
    }
  }
  return done
}

/** Creates tasks with a worker until one of them is in the middle of a step there when the worker is frozen. */
async function freezeInStep({
  crew,
  store,
  steps,
  created,
}: {
  crew: Crew
  store: Store
  steps: number
  created: string[]
}): Promise<{ worker: WorkerProcess; id: string }> {
  const plan: Plan = { steps, stepMs: STEP_MS }
  for (let tries = 0; tries < 50; tries++) {
    const worker = await crew.pick()
    const id = createTaskId()
    const began = worker.began(id, 0).then(() => BEGAN)
    await createSurely(crew, id, plan, worker)
    created.push(id)
    // If the worker is at its limit, another one may claim the task.
    const elsewhere = until('the end', () => isCompleted(store, id), 60_000).catch(() => false)
    if ((await Promise.race([began, elsewhere])) !== BEGAN) continue
    await freezeWorker(worker, store)
    if (!(await isCompleted(store, id))) return { worker, id }
    worker.signal('SIGCONT')
  }
  throw new Error('No worker could be frozen in the middle of a step')
}

/** Creates a task with this worker, or with others until one confirms it. */
export async function createSurely(crew: Crew, id: string, plan: Plan, first?: WorkerProcess): Promise<void> {
  let worker = first ?? (await crew.pick())
  for (let tries = 0; tries < 100; tries++) {
    const isDone = await worker.create(id, plan).then(
      () => true,
      () => false,
    )
    if (isDone) return
    worker = await crew.pick()
  }
  throw new Error('No worker could create a task')
}

async function isCompleted(store: Store, id: string): Promise<boolean> {
  return (await store.tasks.get(id, alice))?.status === 'completed'
}
