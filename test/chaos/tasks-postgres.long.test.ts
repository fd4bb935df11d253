/**
 * Tasks on PostgreSQL while workers are killed and frozen and the database itself crashes. The long form runs with
 * `npm run test:chaos`, a short one with every `npm test`.
 */

import pg from 'pg'
import { afterAll, afterEach, beforeAll, beforeEach, expect, it } from 'vitest'
import { seededRandom, testSeed } from '../../packages/store-kit/src/harness.ts'
import { describePostgres } from '../support/postgres.ts'
import { startPostgres, type TestPostgres } from '../support/postgres-server.ts'
import { createPostgresDatabase } from '../support/store/postgres-database.ts'
import type { Database } from '../support/store/store-harness.ts'
import { type ChaosOptions, runChaos } from '../support/store/task-chaos.ts'
import { createDownstream } from '../support/store/worker-process.ts'

const LONG = process.env.RONDO_LONG !== undefined
const TIMEOUT = LONG ? 1_800_000 : 600_000

describePostgres('tasks on PostgreSQL', () => {
  let server: TestPostgres
  let database: Database
  beforeAll(async () => {
    server = await startPostgres()
  })
  afterAll(() => server.stop())
  beforeEach(() => {
    database = createPostgresDatabase(server, { retryMs: 30_000 })
  })
  afterEach(() => database.close())

  const run = (changes: Partial<ChaosOptions>) => {
    const seed = testSeed()
    console.log(`RONDO_SEED=${seed}`)
    return runChaos({
      database,
      random: seededRandom(seed),
      tasks: 60,
      workers: 2,
      kills: 1,
      freezes: 1,
      crashes: 1,
      crashDatabase: async () => {
        await server.crash()
        await server.start()
      },
      leaseMs: 1_000,
      concurrency: 16,
      stepMs: 5,
      fenced: true,
      patienceMs: LONG ? 300_000 : 120_000,
      ...changes,
    })
  }

  it('E9 P16 the workers lose no task, finish none twice and apply no effect twice, whatever crashes', {
    timeout: TIMEOUT,
  }, async () => {
    const report = await run(LONG ? { tasks: 600, kills: 10, freezes: 8, crashes: 5 } : {})
    console.log(report)
    expect(report.lost).toEqual([])
    expect(report).toMatchObject({ wrong: 0, finishedTwice: 0, lateEntries: 0 })
    expect(report.effects).toBe(report.created * 3)
    expect(report.entries).toBe(report.created * 3)
    // Effects were retried under their old keys, so the faults mattered. A short run may end before that.
    expect(report.attempts).toBeGreaterThan(report.effects - (LONG ? 0 : 1))
    expect(report.trouble).toMatchObject(
      LONG ? { kills: 10, freezes: 8, crashes: 5 } : { kills: 1, freezes: 1, crashes: 1 },
    )
  })

  /** Terminates every connection that a store has open. */
  const breakConnections = async () => {
    const client = new pg.Client({ connectionString: server.connectionString })
    await client.connect()
    const { rows } = await client.query(
      "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'rondo'",
    )
    await client.end()
    return rows.length
  }
  const breaking = (breaks: number) => ({ breakConnections, breaks, kills: 0, freezes: 0, crashes: 0 })

  it('E9 R11 no worker process ends when the database terminates its connections', {
    timeout: TIMEOUT,
  }, async () => {
    const report = await run({ workers: 3, ...breaking(LONG ? 120 : 12), tasks: LONG ? 1200 : 120 })
    console.log(report)
    expect(report.deaths).toBe(0)
    expect(report.lost).toEqual([])
    expect(report).toMatchObject({ wrong: 0, finishedTwice: 0, lateEntries: 0 })
    expect(report.effects).toBe(report.created * 3)
    expect(report.trouble.broken).toBeGreaterThanOrEqual(LONG ? 500 : 50)
  })

  it.runIf(LONG)(
    'control: without an error listener on every connection, some workers end',
    { timeout: TIMEOUT },
    async () => {
      const report = await run({ workers: 3, ...breaking(120), tasks: 1200, guarded: false })
      console.log(report)
      expect(report.deaths).toBeGreaterThan(0)
    },
  )

  it('G1 G2 G3 P16 tasks that sleep, expire and receive events: none is lost, early or doubled, and each has the event that was accepted', {
    timeout: TIMEOUT,
  }, async () => {
    const report = await run({
      timed: true,
      ...(LONG
        ? { tasks: 2_000, kills: 50, freezes: 3, crashes: 0 }
        : { tasks: 32, kills: 2, crashes: 0, freezes: 0 }),
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
        crashes: 0,
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
    const report = await run({
      fenced: false,
      kills: 0,
      crashes: 0,
      tasks: LONG ? 300 : 40,
      freezes,
      patienceMs: 20_000,
    })
    console.log(report)
    // Every frozen worker continued a task that another had finished.
    expect(report.lateEntries).toBeGreaterThanOrEqual(freezes)
    expect(report.finishedTwice).toBeGreaterThanOrEqual(freezes)
  })
})
