/** A commit waits for the disk, so what many tasks cost is the number of commits. */

import { afterEach, beforeEach, expect, it } from 'vitest'
import { createSqliteDatabase } from '../../../../../test/support/store/sqlite-database.ts'
import { newTask, until } from '../../../../../test/support/store/store-harness.ts'
import { createLeaseEngine } from '../engine/lease-engine.ts'
import type { Store } from '../store.ts'
import { openDatabase } from './schema.ts'
import { createStoreOn } from './store.ts'

let database: Awaited<ReturnType<typeof createSqliteDatabase>>
let store: Store
let commits: number
beforeEach(async () => {
  database = await createSqliteDatabase()
  const connection = openDatabase(database.file)
  commits = 0
  const exec = (sql: string) => {
    if (sql === 'COMMIT') commits++
    connection.exec(sql)
  }
  store = createStoreOn(() => ({ ...connection, exec }), {})
})
afterEach(async () => {
  await store.close()
  await database.close()
})

it('G1 a wake-up costs one commit for as many tasks as there are slots: outcomes and the next claim share it', async () => {
  const [tasks, slots] = [96, 8]
  await Promise.all(Array.from({ length: tasks }, () => store.tasks.create(newTask(), tasks)))
  let done = 0
  const engine = createLeaseEngine(store, {
    onEvent(event) {
      if (event.kind === 'turn' && event.outcome === 'complete') done++
    },
  })
  commits = 0
  const serving = await engine.serve(async () => ({ kind: 'complete', result: '' }), { concurrency: slots })
  await until('the end of all tasks', () => done === tasks)
  // The first claim has no outcome beside it, and the last outcomes no claim. Two commits a task and slot would be 24.
  expect(commits).toBeLessThanOrEqual(tasks / slots + 4)
  await serving.stop()
})
