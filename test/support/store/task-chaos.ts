/**
 * Many tasks on workers that are killed and frozen, over a database that may crash: creates and answers them, and counts the outcomes.
 *
 * Tasks are created and answered through the workers, which may die meanwhile: a task counts as created when a worker
 * confirmed it, and is created again under the same id if its worker died first. All random events derive from a seed.
 */

import type { Store } from '../../../src/store/store.ts'
import { createTaskId } from '../../../src/store/task-engine.ts'
import { startAudit } from './store-audit.ts'
import { alice, until } from './store-harness.ts'
import { makeTrouble, type TroubleCount, type TroubleOptions } from './task-trouble.ts'
import { type Crew, startCrew } from './worker-crew.ts'
import type { Plan } from './worker-plan.ts'
import { createDownstream } from './worker-process.ts'

export interface ChaosOptions extends TroubleOptions {
  readonly workers: number
  readonly leaseMs: number
  /** Concurrent turns of one worker. Tasks that no worker has claimed cannot be taken over. */
  readonly concurrency: number
  readonly stepMs: number
  readonly fenced: boolean
  /** Two of three tasks wait for a time. */
  readonly timed?: boolean
  readonly guarded?: boolean
}

export interface ChaosReport {
  readonly created: number
  /** Acknowledged, and not completed in the end. */
  readonly lost: readonly string[]
  /** Completed with a result that differs from what its effects returned. */
  readonly wrong: number
  readonly finishedTwice: number
  /** Entries written by a worker that no longer held the task, or written over another. */
  readonly lateEntries: number
  readonly entries: number
  readonly effects: number
  readonly attempts: number
  /** Effects that ran before the sleep or the time limit in front of them was over. */
  readonly early: number
  readonly trouble: TroubleCount
  /** Workers that ended without having been killed. */
  readonly deaths: number
}

const STEPS = 3
/** Every third task asks a question in the middle; in a run about time the others sleep, or ask one that nobody answers. */
const ASKS: readonly Partial<Plan>[] = [{ askAt: 1 }, {}, {}]
const WAITS_LONG = 300
const TIMED: readonly Partial<Plan>[] = [
  { askAt: 1 },
  { sleepAt: 1, waitMs: WAITS_LONG },
  { expireAt: 2, waitMs: WAITS_LONG },
]
const AT_ONCE = 24
const sleep = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms))

/** Runs everything; resolves when all tasks have ended, or when nothing has changed for too long. */
export async function runChaos(options: ChaosOptions): Promise<ChaosReport> {
  const { database, random, workers, leaseMs, concurrency, fenced, guarded } = options
  const { address } = database
  const store = database.open()
  await store.ready()
  if (address === undefined) throw new Error('no address')
  const audit = await startAudit(address)
  const downstream = createDownstream()
  // Being killed repeatedly before anything is recorded is chance here, not the fault of the task.
  const settings = { address, leaseMs, concurrency, maxFailures: 50, fenced, guarded }
  const crew = await startCrew(workers, settings, downstream, random)
  const stopAnswers = answerQuestions(store, crew)
  const created: string[] = []
  let trouble: TroubleCount
  try {
    const making = makeTrouble(options, { crew, store, steps: STEPS, created })
    ;[trouble] = await Promise.all([making, createTasks(options, crew, created)])
    await until('all tasks to end', async () => !(await hasOpen(store)), options.patienceMs).catch(() => {})
  } finally {
    await stopAnswers()
    await crew.stop()
  }
  const finding = await audit.read()
  const ends = await Promise.all(created.map((id) => store.tasks.get(id, alice)))
  const values = (id: string) =>
    Array.from({ length: STEPS }, (_, step) => downstream.applied.get(`${id}/${step}`))
  return {
    created: created.length,
    lost: created.filter((_, i) => ends[i]?.status !== 'completed'),
    wrong: ends.filter((view) => view?.result && view.result !== JSON.stringify(values(view.id))).length,
    finishedTwice: [...finding.endings.values()].filter((count) => count > 1).length,
    lateEntries: finding.stale + finding.rewritten,
    entries: finding.entries,
    effects: downstream.applied.size,
    attempts: downstream.attempts,
    early: downstream.early,
    trouble,
    deaths: crew.deaths,
  }
}

async function createTasks(
  { tasks, stepMs, timed }: ChaosOptions,
  crew: Crew,
  created: string[],
): Promise<void> {
  let left = tasks
  const waits = timed ? TIMED : ASKS
  const client = async () => {
    while (left-- > 0) {
      const id = createTaskId()
      // Every third asks a question in the middle.
      const plan: Plan = { steps: STEPS, stepMs, ...waits[left % waits.length] }
      for (let tries = 0; tries < 100; tries++) {
        const worker = await crew.pick()
        const isDone = await worker.create(id, plan).then(
          () => true,
          () => false,
        )
        if (isDone) break
      }
      created.push(id)
    }
  }
  await Promise.all(Array.from({ length: AT_ONCE }, client))
}

/** Answers questions through the workers, repeating each until it is accepted, until told to stop. */
function answerQuestions(store: Store, crew: Crew): () => Promise<void> {
  let stopped = false
  const loop = async () => {
    while (!stopped) {
      const waiting = await store.tasks.list({ status: 'input_required', limit: 200 }).catch(() => [])
      for (const { id } of waiting) (await crew.pick()).answer(id)
      await sleep(50)
    }
  }
  const ended = loop()
  return async () => {
    stopped = true
    await ended
  }
}

async function hasOpen(store: Store): Promise<boolean> {
  const [working] = await store.tasks.list({ status: 'working', limit: 1 })
  const [waiting] = await store.tasks.list({ status: 'input_required', limit: 1 })
  // A task that was answered between the two queries appears in neither.
  const [again] = await store.tasks.list({ status: 'working', limit: 1 })
  return [working, waiting, again].some((task) => task !== undefined)
}
