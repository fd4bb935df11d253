/**
 * Many tasks on workers that are killed and frozen, over a database that may crash: who creates, answers and counts.
 *
 * Tasks are created through the workers, so that their creator may die too: one counts as created when a worker said
 * so, and one whose worker died first is created again under the same id. Everything that happened is drawn from a seed.
 */

import { createLeaseEngine } from '../../../src/store/lease-engine.ts'
import type { Store } from '../../../src/store/store.ts'
import { createTaskId } from '../../../src/store/task-id.ts'
import type { SeededRandom } from '../seeded-random.ts'
import { freezeWorker } from './freeze-worker.ts'
import { startAudit } from './store-audit.ts'
import { alice, answers, type Database, until } from './store-harness.ts'
import type { Plan, WorkerOptions } from './worker-plan.ts'
import { createDownstream, type Downstream, startWorker, type WorkerProcess } from './worker-process.ts'

export interface ChaosOptions {
  readonly database: Database
  readonly random: SeededRandom
  readonly tasks: number
  readonly workers: number
  readonly kills: number
  readonly freezes: number
  /** Crashes the database and starts it again. */
  readonly crashDatabase?: () => Promise<void>
  readonly crashes: number
  readonly leaseMs: number
  /** Turns of one worker at a time. Tasks that nobody gets to are not taken over either. */
  readonly concurrency: number
  readonly stepMs: number
  readonly fenced: boolean
  /** How long to wait for the last tasks, after the trouble is over. */
  readonly patienceMs: number
}

export interface ChaosReport {
  readonly created: number
  /** Acknowledged, and not completed in the end. */
  readonly lost: readonly string[]
  /** Completed with something else than what its effects gave. */
  readonly wrong: number
  readonly finishedTwice: number
  /** Entries written by a worker that no longer held the task, or written over another. */
  readonly lateEntries: number
  readonly entries: number
  readonly effects: number
  readonly attempts: number
  readonly kills: number
  readonly freezes: number
  readonly crashes: number
}

const STEPS = 3
const AT_ONCE = 24
const sleep = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms))

/** Workers that are replaced when they end. */
interface Crew {
  pick(): Promise<WorkerProcess>
  stop(): Promise<void>
}

async function startCrew(options: ChaosOptions, downstream: Downstream): Promise<Crew> {
  const { database, random, fenced, leaseMs, concurrency } = options
  if (database.address === undefined) throw new Error('no address')
  // Killed often without having recorded anything is bad luck here, not poison.
  const settings: WorkerOptions = {
    address: database.address,
    leaseMs,
    concurrency,
    maxFailures: 50,
    fenced,
  }
  const alive = new Set<WorkerProcess>()
  let stopped = false
  const hire = async (): Promise<void> => {
    const worker = await startWorker(settings, downstream)
    alive.add(worker)
    if (stopped) worker.signal('SIGKILL')
    void worker.ended.then(() => {
      alive.delete(worker)
      if (!stopped) hired.push(hire())
    })
  }
  const hired = Array.from({ length: options.workers }, hire)
  await Promise.all(hired)
  return {
    pick: async () => {
      await until('a worker that is alive', () => alive.size > 0)
      return random.pick([...alive])
    },
    async stop() {
      stopped = true
      for (const worker of alive) worker.signal('SIGKILL')
      await Promise.all(hired)
      await Promise.all([...alive].map(({ ended }) => ended))
    },
  }
}

/** Runs everything; resolves when all tasks have ended, or when nothing moved any more for too long. */
export async function runChaos(options: ChaosOptions): Promise<ChaosReport> {
  const { database } = options
  const store = database.open()
  await store.ready()
  if (database.address === undefined) throw new Error('no address')
  const audit = await startAudit(database.address)
  const downstream = createDownstream()
  const crew = await startCrew(options, downstream)
  const done = { kills: 0, freezes: 0, crashes: 0 }
  const stopAnswers = answerQuestions(store)
  const created: string[] = []
  try {
    await Promise.all([createTasks(options, crew, created), makeTrouble(options, crew, done)])
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
    ...done,
  }
}

async function createTasks({ tasks, stepMs }: ChaosOptions, crew: Crew, created: string[]): Promise<void> {
  let left = tasks
  const client = async () => {
    while (left-- > 0) {
      const id = createTaskId()
      // Every third asks a question in the middle.
      const plan: Plan = { steps: STEPS, stepMs, ...(left % 3 === 0 ? { askAt: 1 } : {}) }
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

async function makeTrouble(
  { database, random, kills, freezes, crashes, crashDatabase, leaseMs }: ChaosOptions,
  crew: Crew,
  done: { kills: number; freezes: number; crashes: number },
): Promise<void> {
  while (done.kills < kills || done.freezes < freezes || done.crashes < crashes) {
    await sleep(100 + random.below(300))
    const left = [
      ...(done.kills < kills ? ['kill'] : []),
      ...(done.freezes < freezes ? ['freeze'] : []),
      ...(done.crashes < crashes ? ['crash'] : []),
    ]
    const what = random.pick(left)
    const worker = await crew.pick()
    if (what === 'kill') {
      worker.signal('SIGKILL')
      await worker.ended
      done.kills++
    } else if (what === 'freeze') {
      await freezeWorker(worker, database)
      await sleep(leaseMs * 1.5 + random.below(leaseMs))
      worker.signal('SIGCONT')
      done.freezes++
    } else {
      await crashDatabase?.()
      done.crashes++
    }
  }
}

/** Somebody who answers what is asked, until told to stop. */
function answerQuestions(store: Store): () => Promise<void> {
  const engine = createLeaseEngine(store)
  let stopped = false
  const loop = async () => {
    while (!stopped) {
      const waiting = await store.tasks.list({ status: 'input_required', limit: 200 }).catch(() => [])
      await Promise.all(
        waiting.map(({ id }) => engine.deliver(id, alice, answers({ go: 'yes' })).catch(() => 'lost')),
      )
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
  // A task that was answered between the two looks is seen by neither.
  const [again] = await store.tasks.list({ status: 'working', limit: 1 })
  return [working, waiting, again].some((task) => task !== undefined)
}
