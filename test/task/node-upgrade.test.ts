/**
 * Two versions of Node, and so of SQLite, on one file, as in a rolling upgrade of Node from 20 to 22, and back. Needs the
 * other binary: `npm run test:nodes` downloads it. Skipped without it, and on a Node version with a newer SQLite.
 */

import { execFileSync } from 'node:child_process'
import { rm } from 'node:fs/promises'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { createSqliteStore } from '../../packages/rondo/src/store/sqlite/store.ts'
import type { Store } from '../../packages/rondo/src/store/store.ts'
import { createTaskId } from '../../packages/rondo/src/store/task-engine.ts'
import { findNode } from '../support/node-binaries.ts'
import { createSqliteDatabase } from '../support/store/sqlite-database.ts'
import { alice, newTask, until } from '../support/store/store-harness.ts'
import { createDownstream, startWorker, type WorkerProcess } from '../support/store/worker-process.ts'

const NEWER = findNode(24) ?? findNode(22)
const isOld = process.versions.node.startsWith('20.')
if (isOld && NEWER === undefined)
  console.warn('\n*** SKIPPED, no newer Node here: run npm run test:nodes ***\n')

describe.runIf(isOld && NEWER !== undefined)('a file that Node 20 and a newer version share', () => {
  let database: Awaited<ReturnType<typeof createSqliteDatabase>>
  let store: Store
  const workers: WorkerProcess[] = []
  beforeEach(async () => {
    database = await createSqliteDatabase()
    await rm(database.file, { force: true })
    store = createSqliteStore({ file: database.file })
  })
  afterEach(async () => {
    for (const worker of workers.splice(0)) await worker.stop()
    await store.close()
    await database.close()
  })

  const hire = async (): Promise<WorkerProcess> => {
    const address = { kind: 'sqlite' as const, file: database.file }
    const settings = { address, leaseMs: 2_000, concurrency: 4, maxFailures: 5, fenced: true }
    const worker = await startWorker(settings, createDownstream(), NEWER)
    workers.push(worker)
    return worker
  }
  /** Byte 18 of the file, read by a separate process: closing the file here would drop the locks of this one. */
  const hasLog = (): boolean => {
    const read = `process.stdout.write(String(require('fs').readFileSync(process.argv[1])[18]))`
    return execFileSync(process.execPath, ['-e', read, database.file], { encoding: 'utf8' }) === '2'
  }
  const isDone = async (id: string) => (await store.tasks.get(id, alice))?.status === 'completed'
  const finish = async (worker: WorkerProcess) => {
    const id = createTaskId()
    await worker.create(id, { steps: 2, stepMs: 1 })
    await until('the end', () => isDone(id))
  }

  it('E9 keeps the journal mode that Node 20 created it with, and both versions work on it', async () => {
    await store.ready()
    const newer = await hire()
    await finish(newer)
    const ours = newTask({ head: JSON.stringify({ steps: 1, stepMs: 1 }) })
    await store.tasks.create(ours, 10)
    await until('the newer one to finish ours', () => isDone(ours.id))
    expect(hasLog()).toBe(false)
    // The file keeps its mode after the newer version restarts, even if no other process uses it.
    await workers.pop()?.stop()
    await finish(await hire())
    expect(hasLog()).toBe(false)
  })

  it('is refused by Node 20 while a newer version has it open with a write-ahead log, and accepted afterwards', async () => {
    const newer = await hire()
    await newer.create(createTaskId(), { steps: 1, stepMs: 1 })
    expect(hasLog()).toBe(true)
    const refused = { code: 'STORE_SCHEMA', message: expect.stringContaining('Node 22.23') }
    await expect(store.ready()).rejects.toMatchObject(refused)
    await expect(store.tasks.create(newTask(), 10)).rejects.toMatchObject(refused)
    // It did not disturb the other process, and needs no restart.
    await newer.create(createTaskId(), { steps: 1, stepMs: 1 })
    await workers.pop()?.stop()
    expect((await store.tasks.create(newTask(), 10)).kind).toBe('created')
    expect(hasLog()).toBe(false)
    await finish(await hire())
    expect(hasLog()).toBe(false)
  })
})
