import { existsSync } from 'node:fs'
import { expect, it, onTestFinished } from 'vitest'
import { createSqliteDatabase } from '../../../../../test/support/store/sqlite-database.ts'
import { alice, newTask, until } from '../../../../../test/support/store/store-harness.ts'
import { createDownstream, startWorker } from '../../../../../test/support/store/worker-process.ts'
import { createLeaseEngine } from '../engine/lease-engine.ts'
import type { Serving, TaskTurnOutcome } from '../task-engine.ts'

it.runIf(existsSync('/proc/self/stat'))(
  'E9 a worker takes over at once from a process that was killed, without waiting for its lease',
  async () => {
    const database = await createSqliteDatabase()
    const engine = createLeaseEngine(database.open())
    const address = { kind: 'sqlite', file: database.file } as const
    const options = { address, leaseMs: 600_000, concurrency: 4, maxFailures: 3, fenced: true }
    const downstream = createDownstream()
    const first = await startWorker(options, downstream)
    const task = newTask({ head: JSON.stringify({ steps: 2, stepMs: 20 }) })
    const began = first.began(task.id, 1)
    await engine.create(task)
    await began
    first.signal('SIGKILL')
    await first.ended
    const second = await startWorker(options, downstream)
    await until('the end', async () => (await engine.get(task.id, alice))?.status === 'completed')
    expect(downstream.applied.size).toBe(2)
    await second.stop()
    await database.close()
  },
)

it('no failure is counted when a worker whose clock is ahead takes a task from one that is alive', async () => {
  const database = await createSqliteDatabase()
  const servings: Serving[] = []
  onTestFinished(async () => {
    await Promise.all(servings.map((serving) => serving.stop()))
    await database.close()
  })
  let began = 0
  let lost = 0
  let finish: ((outcome: TaskTurnOutcome) => void) | undefined
  /** Each one's clock is a minute ahead of the one before, so that each takes the task from the one before. */
  const hire = async (minutes: number) => {
    const store = database.open(() => Date.now() + minutes * 60_000)
    const onEvent = ({ kind }: { kind: string }) => void (kind === 'lost' && lost++)
    const engine = createLeaseEngine(store, { maxFailures: 3, onEvent })
    const serving = await engine.serve(({ signal }) => {
      began++
      return new Promise((resolve, reject) => {
        finish = resolve
        signal.addEventListener('abort', () => reject(signal.reason))
      })
    })
    servings.push(serving)
    return { engine, store }
  }
  const { engine, store } = await hire(0)
  const task = newTask({ ttlMs: 3_600_000 })
  await engine.create(task)
  await until('the first turn', () => began === 1)
  for (let minutes = 1; minutes <= 6; minutes++) {
    await hire(minutes)
    await until('the next to take it', () => began === minutes + 1)
    await until('the one before to notice', () => lost === minutes)
    await until('no failure', async () => (await store.tasks.list({ id: task.id }))[0]?.failures === 0)
  }
  finish?.({ kind: 'complete', result: 'done' })
  await until('the end', async () => (await engine.get(task.id, alice))?.result === 'done')
})
