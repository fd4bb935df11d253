import { existsSync } from 'node:fs'
import { expect, it } from 'vitest'
import { createSqliteDatabase } from '../../../test/support/store/sqlite-database.ts'
import { alice, newTask, until } from '../../../test/support/store/store-harness.ts'
import { createDownstream, startWorker } from '../../../test/support/store/worker-process.ts'
import { createLeaseEngine } from '../lease-engine.ts'

it.runIf(existsSync('/proc/self/stat'))(
  'E9 takes over from a process that was killed at once, without waiting for its lease',
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
