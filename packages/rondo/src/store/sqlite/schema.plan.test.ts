/** SQLite runs in the event loop: a statement that looks at every task there is would hold up everything else. */

import { afterEach, beforeEach, expect, it } from 'vitest'
import { createSqliteDatabase } from '../../../../../test/support/store/sqlite-database.ts'
import { alice, answers, claimNew, inputs, newTask } from '../../../../../test/support/store/store-harness.ts'
import { openSlots } from '../input-slots.ts'
import type { Store } from '../store.ts'
import type { SqliteConnection } from './database.ts'
import { openDatabase } from './schema.ts'
import { createStoreOn } from './store.ts'

let database: Awaited<ReturnType<typeof createSqliteDatabase>>
let connection: SqliteConnection
let statements: Set<string>
let store: Store
beforeEach(async () => {
  database = await createSqliteDatabase()
  connection = openDatabase(database.file)
  statements = new Set()
  const prepare = (sql: string) => {
    statements.add(sql)
    return connection.prepare(sql)
  }
  store = createStoreOn(() => ({ ...connection, prepare }), {})
})
afterEach(async () => {
  await store.close()
  await database.close()
})

/** Steps of its plan that go through all tasks, or through all that have not expired. */
function fullScans(sql: string): string[] {
  // A parameter with a number may occur several times.
  const values = [...new Set(Array.from(sql.matchAll(/\?(\d*)/g), ([, number], at) => number || at))].map(
    () => '1',
  )
  const steps = connection.prepare(`EXPLAIN QUERY PLAN ${sql}`).all(...values)
  const details = steps.map(({ detail }) => String(detail))
  return details.filter((detail) => /^SCAN (task|t)$|task_expiry \(expires_at>/.test(detail))
}

/** Everything that is done while tasks run. */
async function doEverything(): Promise<void> {
  const { tasks } = store
  const { fence, slots } = await claimNew(store)
  await tasks.append(fence, 0, ['one', 'two'])
  await tasks.status(fence, 'on it')
  await store.operator?.label(fence, 'labels', ['tag'])
  await tasks.renew([fence], 1_000)
  await tasks.held([fence])
  await tasks.park(fence, openSlots(slots, inputs('a', 'b')))
  await tasks.deliver(fence.id, alice, answers({ a: '1' }))
  const taker = { worker: 'w', leaseMs: 1_000 }
  const { lease } = await tasks.deliver(fence.id, alice, answers({ b: '2' }), taker)
  if (lease) await tasks.settle(lease.fence, { kind: 'complete', result: 'x' })
  await settleNew()
  expect(await tasks.trim(alice, { count: 1, bytes: 1_000 })).toBe(1)
  const other = await claimNew(store)
  await tasks.release(other.fence, 0, true)
  const task = newTask({ journal: ['before'] })
  await tasks.create(task, 10)
  await tasks.create(task, 0)
  await tasks.get(task.id, alice)
  await tasks.revisions([task.id])
  await tasks.cancel(task.id, alice)
  await tasks.stats()
  await tasks.list({})
  await tasks.list({ status: 'failed' })
  await tasks.list({ id: task.id })
  await tasks.list({ owner: alice, status: 'failed' })
  await tasks.list({ labels: [['tag']] })
  await tasks.nextDueMs(1_000)
  await store.sweep(10)
  // Of a process that has ended, so that it is reclaimed.
  const tag = (await claimedBy()).replace(/\d+$/, '1')
  connection.prepare('UPDATE task SET worker = ?').run(`${tag} w`)
  expect(await tasks.reclaim?.()).toBeGreaterThan(0)
}

async function settleNew(): Promise<void> {
  const { fence } = await claimNew(store)
  await store.tasks.settle(fence, { kind: 'complete', result: 'x' })
}

async function claimedBy(): Promise<string> {
  await claimNew(store)
  const row = connection.prepare('SELECT worker FROM task WHERE worker IS NOT NULL').get()
  return String(row?.worker).split(' ')[0] ?? ''
}

it('T18 SQLite uses an index for every query on tasks', async () => {
  await doEverything()
  expect(statements.size).toBeGreaterThan(25)
  expect([...statements].flatMap((sql) => fullScans(sql).map((step) => `${step}: ${sql}`))).toEqual([])
})

it('control: the check detects a query that scans all tasks', () => {
  expect(fullScans('UPDATE task SET due_at = ? WHERE failures = ?')).toHaveLength(1)
  expect(fullScans('SELECT count(*) FROM task WHERE failures = ? AND expires_at > ?')).toHaveLength(1)
})
