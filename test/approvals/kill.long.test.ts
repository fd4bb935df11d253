/** Like `kill.test.ts`, at every call of the store that changes something, before it, while it is under way, and after it. */

import { afterAll, beforeAll, expect, it } from 'vitest'
import { describePostgres } from '../support/postgres.ts'
import { startPostgres, type TestPostgres } from '../support/postgres-server.ts'
import { createPostgresDatabase } from '../support/store/postgres-database.ts'
import { createSqliteDatabase } from '../support/store/sqlite-database.ts'
import type { Database } from '../support/store/store-harness.ts'
import { type KillPoint, type Pair, startPair } from './kill.ts'

/** Jobs and tasks are claimed again and again: beyond the first claims, an order is over. */
const LAST: Readonly<Record<KillPoint['method'], number>> = {
  put: 12,
  get: 30,
  list: 12,
  claim: 6,
  'tasks.append': 12,
  'tasks.park': 4,
  'tasks.settle': 2,
  'tasks.claim': 4,
  'tasks.deliverHook': 2,
}
const METHODS = Object.keys(LAST) as KillPoint['method'][]
const TIMEOUT = { timeout: 3_600_000 }

/** Kills at the first point of a kind, then at the second, until an order ends before its point is reached. */
async function killAll(pair: Pair, kind: Omit<KillPoint, 'at'>): Promise<void> {
  for (let at = 1; at <= LAST[kind.method]; at++) {
    const before = pair.kills
    const name = `${kind.role}-${kind.method}-${at}-${kind.when}`
    expect(await pair.order(name, { ...kind, at }), name).toEqual([])
    if (pair.kills === before) return
  }
}

async function killEverywhere(database: Database): Promise<void> {
  const pair = await startPair(database)
  try {
    for (const role of ['worker', 'pages'] as const)
      for (const method of METHODS)
        for (const when of ['before', 'during', 'after'] as const) await killAll(pair, { role, method, when })
    console.log(`${pair.kills} kills`)
    expect(pair.kills).toBeGreaterThan(40)
  } finally {
    await pair.close()
  }
}

async function replaceOften(database: Database): Promise<void> {
  const pair = await startPair(database)
  try {
    const orders = Array.from({ length: 40 }, (_, i) => pair.order(`r${i}`))
    for (let i = 0; i < 5; i++) {
      await pair.replace('pages')
      await pair.replace('worker')
    }
    expect((await Promise.all(orders)).flat()).toEqual([])
  } finally {
    await pair.close()
  }
}

it('L6 V7 a process that is killed at any point on SQLite loses no decision', TIMEOUT, async () => {
  const database = await createSqliteDatabase()
  await killEverywhere(database)
  await database.close()
})

it('L6 V7 processes that are replaced again and again on SQLite lose no decision', TIMEOUT, async () => {
  const database = await createSqliteDatabase()
  await replaceOften(database)
  await database.close()
})

describePostgres('on PostgreSQL', () => {
  let server: TestPostgres
  beforeAll(async () => {
    server = await startPostgres()
  })
  afterAll(() => server.stop())

  it('L6 V7 a process that is killed at any point loses no decision', TIMEOUT, async () => {
    const database = createPostgresDatabase(server)
    await killEverywhere(database)
    await database.close()
  })

  it('L6 V7 processes that are replaced again and again lose no decision', TIMEOUT, async () => {
    const database = createPostgresDatabase(server)
    await replaceOften(database)
    await database.close()
  })
})
