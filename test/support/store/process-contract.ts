/** Workers that die, freeze or kill themselves, as real processes (E9, P16). */

import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { createLeaseEngine } from '../../../packages/rondo/src/store/engine/lease-engine.ts'
import type { Store } from '../../../packages/rondo/src/store/store.ts'
import { createTaskId, type TaskEngine } from '../../../packages/rondo/src/store/task-engine.ts'
import { freezeWorker } from './freeze-worker.ts'
import { type StoreAudit, startAudit } from './store-audit.ts'
import { alice, type Database, type DatabaseHarness, newTask, until } from './store-harness.ts'
import type { Plan, WorkerOptions } from './worker-plan.ts'
import { createDownstream, type Downstream, startWorker, type WorkerProcess } from './worker-process.ts'

const LEASE = 700

export function describeProcessContract(harness: DatabaseHarness): void {
  describe(`${harness.name}: processes`, () => declare(harness))
}

function declare(harness: DatabaseHarness): void {
  let database: Database
  let store: Store
  let engine: TaskEngine
  let audit: StoreAudit
  let downstream: Downstream
  let workers: WorkerProcess[]
  beforeEach(async () => {
    database = await harness.create()
    store = database.open()
    await store.ready()
    engine = createLeaseEngine(store)
    audit = await startAudit(database.address)
    downstream = createDownstream()
    workers = []
  })
  afterEach(async () => {
    for (const worker of workers) worker.signal('SIGKILL')
    await Promise.all(workers.map(({ ended }) => ended))
    await database.close()
  })

  const start = async (changes: Partial<WorkerOptions> = {}) => {
    const options = {
      address: database.address,
      leaseMs: LEASE,
      concurrency: 4,
      maxFailures: 3,
      fenced: true,
    }
    const worker = await startWorker({ ...options, ...changes }, downstream)
    workers.push(worker)
    return worker
  }
  const create = (plan: Plan) => {
    const id = createTaskId()
    const made = engine.create(newTask({ id, head: JSON.stringify(plan) }))
    return { id, made }
  }
  const ended = (id: string) =>
    until('the end of the task', async () => {
      const view = await engine.get(id, alice)
      return view?.status === 'completed' || view?.status === 'failed' ? view : undefined
    })

  /** Freezes the first worker in the middle of a step until another has finished its task, then wakes it. */
  const freeze = async (fenced: boolean) => {
    const first = await start({ fenced })
    const { id, made } = create({ steps: 3, stepMs: 300 })
    const began = first.began(id, 1)
    await made
    await began
    await until('the effect of the step', () => downstream.applied.has(`${id}/1`))
    await freezeWorker(first, store)
    const second = await start({ fenced })
    const view = await ended(id)
    first.signal('SIGCONT')
    // The frozen worker continues its step, and has time to do damage: it can still be stopped afterwards.
    await first.stop()
    await second.stop()
    return { id, view, finding: await audit.read() }
  }

  it('E9 after kill -9 in the middle of a step, another worker continues from the journal', async () => {
    const first = await start()
    const { id, made } = create({ steps: 3, stepMs: 50 })
    const began = first.began(id, 1)
    await made
    await began
    first.signal('SIGKILL')
    await first.ended
    await start()
    const view = await ended(id)
    expect(view.status).toBe('completed')
    expect(JSON.parse(view.result ?? '')).toEqual(
      [0, 1, 2].map((step) => downstream.applied.get(`${id}/${step}`)),
    )
    expect(await audit.read()).toMatchObject({ stale: 0, rewritten: 0, entries: 3 })
  })

  describe('a frozen worker', () => {
    it('E9 P16 is fenced: its writes after the lease have no effect', async () => {
      const { id, view, finding } = await freeze(true)
      expect(view.status).toBe('completed')
      expect(finding.endings.get(id)).toBe(1)
      expect(finding).toMatchObject({ stale: 0, rewritten: 0, entries: 3 })
      expect(downstream.applied.size).toBe(3)
    })

    it('P16 control: does damage if the store does not fence it', async () => {
      const { id, finding } = await freeze(false)
      expect(finding.stale + finding.rewritten + (finding.endings.get(id) ?? 0) - 1).toBeGreaterThan(0)
    })
  })

  it('E9 a task that kills every process ends as failed, and the workers survive', async () => {
    const { id, made } = create({ steps: 1, stepMs: 1, poison: true })
    await made
    for (let deaths = 0; deaths < 3; deaths++) await (await start()).ended
    await start()
    expect(await ended(id)).toMatchObject({ status: 'failed', error: undefined })
  })
}
