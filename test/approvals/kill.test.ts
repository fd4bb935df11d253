/**
 * Real processes that are killed with signal 9: a worker and the pages of their own, on SQLite and PostgreSQL. A few points with
 * every `npm test`; `kill.long.test.ts` has all of them. Needs the build.
 */

import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { describePostgres } from '../support/postgres.ts'
import { startPostgres, type TestPostgres } from '../support/postgres-server.ts'
import { createPostgresDatabase } from '../support/store/postgres-database.ts'
import { createSqliteDatabase } from '../support/store/sqlite-database.ts'
import type { Database } from '../support/store/store-harness.ts'
import { type KillPoint, startPair, type Weakness } from './kill.ts'

/** The write of a request, of a vote, and of the use of a decision; and the claim of its delivery. */
const POINTS: readonly KillPoint[] = [
  { role: 'worker', method: 'put', at: 1, when: 'after' },
  { role: 'pages', method: 'put', at: 1, when: 'before' },
  { role: 'pages', method: 'put', at: 1, when: 'after' },
  { role: 'pages', method: 'claim', at: 2, when: 'after' },
  { role: 'worker', method: 'put', at: 2, when: 'during' },
]

/** Kills at each point, then replaces both processes while people decide. */
async function disturb(database: Database, points = POINTS): Promise<void> {
  const pair = await startPair(database)
  try {
    for (const [i, point] of points.entries())
      expect(await pair.order(`o${i}`, point), JSON.stringify(point)).toEqual([])
    expect(pair.kills).toBe(points.length)
    const orders = ['a', 'b', 'c'].map((name) => pair.order(name))
    await pair.replace('pages')
    await pair.replace('worker')
    expect((await Promise.all(orders)).flat()).toEqual([])
  } finally {
    await pair.close()
  }
}

const TITLE =
  'L6 V7 processes that are killed or replaced lose no decision, count none twice, and execute nothing without one'

describe('on SQLite', () => {
  let database: Database
  beforeEach(async () => {
    database = await createSqliteDatabase()
  })
  afterEach(() => database.close())

  it(TITLE, () => disturb(database))

  it.each<[Weakness, RegExp]>([
    ['rash', /executed without a decision/],
    ['doubling', /asked twice/],
    ['forgetful', /decision about weak was lost/],
  ])('control: a %s process is found', async (weak, problem) => {
    const pair = await startPair(database, { weak })
    try {
      expect((await pair.order('weak')).join()).toMatch(problem)
    } finally {
      await pair.close()
    }
  })
})

describePostgres('on PostgreSQL', () => {
  let server: TestPostgres
  beforeAll(async () => {
    server = await startPostgres()
  })
  afterAll(() => server.stop())

  it(TITLE, async () => {
    const database = createPostgresDatabase(server)
    await disturb(database, POINTS.slice(3))
    await database.close()
  })
})
