/**
 * Many tasks on workers that are killed and frozen, over a database that may crash: creates and answers them, and counts the outcomes.
 *
 * Tasks are created and answered through the workers, which may die meanwhile: a task counts as created when a worker
 * confirmed it, and is created again under the same id if its worker died first. All random events derive from a seed.
 */

import type { Store } from '../../../packages/rondo/src/store/store.ts'
import { createTaskId } from '../../../packages/rondo/src/store/task-engine.ts'
import type { SeededRandom } from '../../../packages/store-kit/src/harness.ts'
import { startAudit } from './store-audit.ts'
import { alice, until } from './store-harness.ts'
import { createSurely, makeTrouble, type TroubleCount, type TroubleOptions } from './task-trouble.ts'
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
  /** Tasks sleep, ask questions that expire, and wait for events from outside. */
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
  /** The number of entries in the plans of all tasks. */
  readonly plannedEntries: number
  /** Tasks that waited for an event, and of these the ones whose result has another event than the one that was accepted. */
  readonly events: number
  readonly wrongEvents: number
  readonly effects: number
  readonly attempts: number
  /** Effects that ran before the sleep or the time limit in front of them was over. */
  readonly early: number
  readonly trouble: TroubleCount
  /** Workers that ended without having been killed. */
  readonly deaths: number
}

const STEPS = 3
/** Every third task asks a question in the middle; in a run about time each waits for something. */
const ASKS: readonly Partial<Plan>[] = [{ askAt: 1 }, {}, {}]
const WAITS_LONG = 300
const TIMED: readonly Partial<Plan>[] = [
  { askAt: 1 },
  { sleepAt: 1, waitMs: WAITS_LONG },
  { expireAt: 2, waitMs: WAITS_LONG },
  { hookAt: 1 },
]
/** The record that a task keeps beside its steps. */
const entriesOf = (plan: Partial<Plan>): number =>
  STEPS + ((plan.sleepAt ?? plan.expireAt ?? plan.hookAt ?? 0) ? 1 : 0)
const AT_ONCE = 24
const AGAIN_MS = 1_000
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
  const stopAnswers = answerQuestions(store, crew, random)
  const created: string[] = []
  const plans = new Map<string, Plan>()
  const events = createEvents(crew, plans)
  let trouble: TroubleCount
  try {
    const making = makeTrouble(options, { crew, store, steps: STEPS, created })
    ;[trouble] = await Promise.all([making, createTasks(options, crew, created, plans)])
    await until('all tasks to end', async () => !(await hasOpen(store)), options.patienceMs).catch(() => {})
  } finally {
    await stopAnswers()
    await events.stop()
    await crew.stop()
  }
  const finding = await audit.read()
  const ends = await Promise.all(created.map((id) => store.tasks.get(id, alice)))
  const values = (id: string) =>
    Array.from({ length: STEPS }, (_, step) => downstream.applied.get(`${id}/${step}`))
  return {
    created: created.length,
    lost: created.filter((_, i) => ends[i]?.status !== 'completed'),
    wrong: ends.filter(
      (view) =>
        view?.result && JSON.stringify(resultOf(view.result).values) !== JSON.stringify(values(view.id)),
    ).length,
    events: [...plans.values()].filter(({ hookAt }) => hookAt !== undefined).length,
    wrongEvents: ends.filter((view) => view?.result && !events.fits(view.id, resultOf(view.result).event))
      .length,
    finishedTwice: [...finding.endings.values()].filter((count) => count > 1).length,
    lateEntries: finding.stale + finding.rewritten,
    entries: finding.entries,
    plannedEntries: created.reduce((sum, id) => sum + entriesOf(plans.get(id) ?? {}), 0),
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
  plans: Map<string, Plan>,
): Promise<void> {
  let left = tasks
  const waits = timed ? TIMED : ASKS
  const client = async () => {
    while (left-- > 0) {
      const id = createTaskId()
      const plan: Plan = { steps: STEPS, stepMs, ...waits[left % waits.length] }
      await createSurely(crew, id, plan)
      created.push(id)
      plans.set(id, plan)
    }
  }
  await Promise.all(Array.from({ length: AT_ONCE }, client))
}

/** Answers questions through the workers, repeating each until it is accepted, until told to stop. */
function answerQuestions(store: Store, crew: Crew, random: SeededRandom): () => Promise<void> {
  let stopped = false
  /** When an answer was last sent: a busy database is not flooded. */
  const sent = new Map<string, number>()
  const loop = async () => {
    while (!stopped) {
      const waiting = await store.tasks.list({ status: 'input_required', limit: 200 }).catch(() => [])
      const now = Date.now()
      for (const { id } of waiting) {
        if (now - (sent.get(id) ?? 0) < AGAIN_MS) continue
        sent.set(id, now)
        ;(await crew.pick()).answer(id, random.below(4) === 0)
      }
      await sleep(50)
    }
  }
  const ended = loop()
  return async () => {
    stopped = true
    await ended
  }
}

/** The values of the steps, and the event if there was one. */
function resultOf(result: string): { values: readonly unknown[]; event: unknown } {
  const all = JSON.parse(result) as unknown[]
  return { values: all.slice(0, STEPS), event: all[STEPS] }
}

const SENDERS = 2

/** Delivers events: two senders for each hook, with different events, each until it is told what became of its own. */
export function createEvents(crew: Pick<Crew, 'pick'>, plans: ReadonlyMap<string, Plan>) {
  const accepted = new Map<string, Set<string>>()
  const sending: Promise<void>[] = []
  const begun = new Set<string>()
  let stopped = false
  const send = async (id: string, event: string) => {
    while (!stopped) {
      const outcome = await (await crew.pick()).deliver(id, event)
      if (outcome === 'accepted') accepted.set(id, (accepted.get(id) ?? new Set()).add(event))
      if (outcome === 'accepted' || outcome === 'duplicate') return
      // Not open yet; or the reply was lost, and the task has ended since. Then the run stops this.
      await sleep(200)
    }
  }
  const loop = async () => {
    while (!stopped) {
      for (const [id, { hookAt }] of plans) {
        if (hookAt === undefined || begun.has(id)) continue
        begun.add(id)
        for (let n = 0; n < SENDERS; n++) sending.push(send(id, `by ${n}`))
      }
      await sleep(50)
    }
  }
  const ended = loop()
  return {
    /** At most one event was accepted, and it is the one that the task has. */
    fits(id: string, event: unknown): boolean {
      if (plans.get(id)?.hookAt === undefined) return event === undefined
      const told = [...(accepted.get(id) ?? [])]
      return typeof event === 'string' && told.every((one) => one === event)
    },
    async stop() {
      stopped = true
      await ended
      await Promise.all(sending)
    },
  }
}

async function hasOpen(store: Store): Promise<boolean> {
  const [working] = await store.tasks.list({ status: 'working', limit: 1 })
  const [waiting] = await store.tasks.list({ status: 'input_required', limit: 1 })
  // A task that was answered between the two queries appears in neither.
  const [again] = await store.tasks.list({ status: 'working', limit: 1 })
  return [working, waiting, again].some((task) => task !== undefined)
}
