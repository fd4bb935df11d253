/**
 * Tasks on SQLite while their workers are killed, also in the middle of a commit. The long form runs with
 * `npm run test:chaos`, a short one with every `npm test`.
 */

import { afterEach, beforeEach, expect, it } from 'vitest'
import { openSqlite } from '../../packages/rondo/src/store/sqlite/database.ts'
import { seededRandom, testSeed } from '../../packages/store-kit/src/harness.ts'
import { createSqliteDatabase } from '../support/store/sqlite-database.ts'
import { until } from '../support/store/store-harness.ts'
import { type ChaosOptions, createEvents, runChaos } from '../support/store/task-chaos.ts'
import { createDownstream } from '../support/store/worker-process.ts'

const LONG = process.env.RONDO_LONG !== undefined
const TIMEOUT = LONG ? 1_800_000 : 600_000

let database: Awaited<ReturnType<typeof createSqliteDatabase>>
beforeEach(async () => {
  database = await createSqliteDatabase()
})
afterEach(() => database.close())

const run = (changes: Partial<ChaosOptions>) => {
  const seed = testSeed()
  console.log(`RONDO_SEED=${seed}`)
  return runChaos({
    database,
    random: seededRandom(seed),
    tasks: 200,
    workers: 2,
    kills: 3,
    freezes: 0,
    crashes: 0,
    leaseMs: 1_000,
    concurrency: 16,
    stepMs: 1,
    fenced: true,
    patienceMs: LONG ? 300_000 : 120_000,
    ...changes,
  })
}

it('E9 P16 the workers lose no task, finish none twice and apply no effect twice, whichever worker is killed', {
  timeout: TIMEOUT,
}, async () => {
  const report = await run(LONG ? { tasks: 5_400, kills: 20, freezes: 3 } : {})
  console.log(report)
  expect(report.lost).toEqual([])
  expect(report).toMatchObject({ wrong: 0, finishedTwice: 0, lateEntries: 0 })
  expect(report.effects).toBe(report.created * 3)
  expect(report.entries).toBe(report.created * 3)
  // Effects were retried under their old keys, so the faults mattered. A short run may end before that.
  expect(report.attempts).toBeGreaterThan(report.effects - (LONG ? 0 : 1))
  expect(report.trouble).toMatchObject(
    LONG ? { kills: 20, freezes: 3, crashes: 0 } : { kills: 3, freezes: 0, crashes: 0 },
  )
  const connection = openSqlite(database.file)
  expect(connection.prepare('PRAGMA integrity_check').get()?.integrity_check).toBe('ok')
  connection.close()
})

it('G1 G2 G3 P16 tasks that sleep, expire and receive events: none is lost, early or doubled, and each has the event that was accepted', {
  timeout: TIMEOUT,
}, async () => {
  const report = await run({
    timed: true,
    ...(LONG ? { tasks: 2_000, kills: 50, freezes: 3 } : { tasks: 32, kills: 2 }),
  })
  console.log(report)
  expect(report.lost).toEqual([])
  expect(report).toMatchObject({ wrong: 0, finishedTwice: 0, lateEntries: 0, early: 0, wrongEvents: 0 })
  expect(report.effects).toBe(report.created * 3)
  expect(report.entries).toBe(report.plannedEntries)
  expect(report.events).toBeGreaterThanOrEqual(LONG ? 500 : 8)
})

it('G1 control: an effect before its time is noticed', () => {
  const downstream = createDownstream()
  downstream.apply('late', Date.now())
  downstream.apply('early', Date.now() + 60_000)
  expect(downstream.early).toBe(1)
})

it('G3 control: a hook that accepts two events, or loses one, is noticed', async () => {
  const sent: string[] = []
  const worker = { deliver: async (_id: string, event: string) => sent.push(event) && 'accepted' }
  const plan = { steps: 3, stepMs: 1, hookAt: 1 }
  const events = createEvents({ pick: async () => worker as never }, new Map([['a', plan]]))
  await until('two deliveries', () => sent.length === 2)
  await events.stop()
  expect([events.fits('a', 'by 0'), events.fits('a', undefined), events.fits('b', 'by 0')]).toEqual([
    false,
    false,
    false,
  ])
})

it.runIf(LONG)(
  'G1 P16 control: the check reports damage to tasks that wait for a time when the fence is removed',
  {
    timeout: TIMEOUT,
  },
  async () => {
    const freezes = LONG ? 6 : 1
    const report = await run({
      timed: true,
      fenced: false,
      kills: 0,
      tasks: LONG ? 300 : 42,
      freezes,
      patienceMs: 20_000,
    })
    console.log(report)
    expect(report.lateEntries + report.finishedTwice).toBeGreaterThanOrEqual(1)
  },
)

it('P16 control: the check reports damage when the fence is removed', { timeout: TIMEOUT }, async () => {
  const freezes = LONG ? 6 : 1
  const report = await run({ fenced: false, kills: 0, tasks: LONG ? 300 : 40, freezes, patienceMs: 20_000 })
  console.log(report)
  // Every frozen worker continued a task that another had finished.
  expect(report.lateEntries).toBeGreaterThanOrEqual(freezes)
  expect(report.finishedTwice).toBeGreaterThanOrEqual(freezes)
})
