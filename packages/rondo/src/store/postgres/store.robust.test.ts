/** Conditions that only PostgreSQL imposes on a store: many that migrate at once, poolers, crashes, other epochs, hints. */

import pg from 'pg'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { describePostgres } from '../../../../../test/support/postgres.ts'
import { startPostgres, type TestPostgres } from '../../../../../test/support/postgres-server.ts'
import { createPostgresDatabase } from '../../../../../test/support/store/postgres-database.ts'
import { startWire } from '../../../../../test/support/store/silent-wire.ts'
import {
  alice,
  answers,
  claimNew,
  type Database,
  inputs,
  newTask,
  until,
} from '../../../../../test/support/store/store-harness.ts'
import { unguard } from '../../../../../test/support/store/unfenced-store.ts'
import { createLeaseEngine } from '../engine/lease-engine.ts'
import { openSlots } from '../input-slots.ts'
import type { RunTurn, TaskTurnOutcome } from '../task-engine.ts'
import { createResilientPool, type PgPool } from './driver.ts'
import { createPostgresStore } from './store.ts'

const complete = (result: string): TaskTurnOutcome => ({ kind: 'complete', result })

describePostgres('PostgreSQL as a store', () => {
  let server: TestPostgres
  let database: Database
  let schema: string
  beforeAll(async () => {
    server = await startPostgres({ fsync: false })
  })
  afterAll(() => server.stop())
  beforeEach(() => {
    database = createPostgresDatabase(server)
    if (database.address?.kind === 'postgres') schema = database.address.schema
  })
  afterEach(() => database.close())

  const ask = async (text: string, connectionString = server.connectionString) => {
    const client = new pg.Client({ connectionString })
    await client.connect()
    try {
      return (await client.query(text)).rows
    } finally {
      await client.end()
    }
  }

  describe('the migration', () => {
    it('runs once when many stores start together', async () => {
      const stores = Array.from({ length: 8 }, () => database.open())
      await Promise.all(stores.map((store) => store.ready()))
      await stores[3]?.tasks.create(newTask(), 10)
      expect(await ask(`SELECT value FROM ${schema}.meta WHERE key = 'version'`)).toEqual([{ value: '11' }])
    })

    const setVersion = (version: number, least: number) =>
      ask(`UPDATE ${schema}.meta SET value = '${version}' WHERE key = 'version';
        UPDATE ${schema}.meta SET value = '${least}' WHERE key = 'min_compatible'`)

    it('starts on the tables of a later release that earlier ones can use', async () => {
      await database.open().ready()
      await setVersion(99, 6)
      const store = database.open()
      expect((await store.tasks.create(newTask(), 10)).kind).toBe('created')
      expect(await store.check?.()).toEqual({ version: 99, minCompatible: 6, supported: 11, problems: [] })
    })

    it('refuses the tables of a later release that earlier ones cannot use', async () => {
      await database.open().ready()
      await setVersion(99, 98)
      for (const readOnly of [false, true]) {
        const { connectionString } = server
        const store = createPostgresStore({ connectionString, schema, readOnly, listen: false })
        await expect(store.tasks.list({})).rejects.toMatchObject({
          code: 'STORE_SCHEMA',
          message: expect.stringContaining('this one supports up to 11: upgrade Rondo'),
        })
        expect((await store.check?.())?.problems).toHaveLength(1)
        await store.close()
      }
    })

    it('builds an index while writes continue, and again one whose build was interrupted', async () => {
      const store = database.open()
      // Not `ready`, which builds in the background what this test takes away.
      await store.migrate?.()
      await ask(`DROP INDEX ${schema}.task_status`)
      // As an interrupted build leaves it.
      await ask(`UPDATE pg_index SET indisvalid = false WHERE indexrelid = '${schema}.task_owner'::regclass`)
      expect((await store.check?.())?.problems).toEqual([
        'The index task_owner is incomplete: rondo store migrate builds it',
        'The index task_status is missing: rondo store migrate builds it',
      ])
      const writer = new pg.Client({ connectionString: server.connectionString })
      await writer.connect()
      await writer.query(`BEGIN; DELETE FROM ${schema}.task`)
      const building = database.open().migrate?.()
      const waits = `SELECT 1 FROM pg_stat_activity WHERE query LIKE '%INDEX CONCURRENTLY%${schema}%' AND wait_event_type = 'Lock'`
      await until('the build waits for the open transaction', async () => (await ask(waits)).length > 0)
      // A build that blocks writes would hold this back for as long as the transaction is open.
      await ask(`DELETE FROM ${schema}.task WHERE id = 'none'`)
      await writer.query('COMMIT')
      await writer.end()
      await building
      expect((await store.check?.())?.problems).toEqual([])
    })

    it('builds the indexes that are missing in the background when a store starts', async () => {
      await database.open().migrate?.()
      await ask(`DROP INDEX ${schema}.task_status`)
      const store = database.open()
      await store.ready()
      await until('the index', async () => (await store.check?.())?.problems.length === 0)
    })

    it('is not needed by a role that may only use the tables', async () => {
      await database.open().ready()
      const role = `user_${schema}`
      await ask(`CREATE ROLE ${role} LOGIN; GRANT USAGE ON SCHEMA ${schema} TO ${role};
        GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA ${schema} TO ${role}`)
      const connectionString = server.connectionString.replace('rondo@', `${role}@`)
      const store = createPostgresStore({ connectionString, schema })
      expect((await store.tasks.create(newTask(), 10)).kind).toBe('created')
      expect((await store.once.epoch()).length).toBeGreaterThan(10)
      await store.close()
      await ask(`DROP OWNED BY ${role}; DROP ROLE ${role}`)
    })

    it('reports a role that may not create the tables', async () => {
      const role = `other_${schema}`
      await ask(`CREATE ROLE ${role} LOGIN`)
      const connectionString = server.connectionString.replace('rondo@', `${role}@`)
      const store = createPostgresStore({ connectionString, schema })
      await expect(store.tasks.create(newTask(), 10)).rejects.toMatchObject({ code: 'STORE_SCHEMA' })
      await store.close()
      await ask(`DROP ROLE ${role}`)
    })

    it.each(['Rondo', 'a b', "x'; DROP TABLE y; --", ''])('refuses the schema name %j', (name) => {
      expect(() => createPostgresStore({ schema: name })).toThrow(TypeError)
    })
  })

  it('T18 PostgreSQL counts up to a limit and lists by index, among any number of tasks', async () => {
    const inner = new pg.Pool({ connectionString: server.connectionString, max: 2 })
    const asked: [string, unknown[]][] = []
    const pool = {
      query(text: string, values: unknown[] = []) {
        asked.push([text, values])
        return inner.query(text, values)
      },
      connect: () => inner.connect(),
      end: () => inner.end(),
      on: (...given: [never, never]) => inner.on(...given),
    } as unknown as PgPool
    const store = createPostgresStore({ pool, schema, listen: false })
    await store.ready()
    await ask(`INSERT INTO ${schema}.task (id, tenant, principal, status, head, created_at, updated_at, expires_at, poll_ms,
        revision, epoch, failures, known)
      SELECT 'parked-' || n, 'tracker', 'alice', 'input_required', '', n, n, 9e15, 1, 1, 1, 0, true
      FROM generate_series(1, 20000) n; ANALYZE ${schema}.task`)
    asked.length = 0
    expect(await store.tasks.stats()).toEqual({ due: 0, oldestDueMs: 0, running: 0, parked: 10_000 })
    expect(await store.tasks.list({ limit: 2 })).toMatchObject([
      { id: 'parked-20000' },
      { id: 'parked-19999' },
    ])
    await store.tasks.list({ status: 'failed', limit: 2 })
    await store.tasks.list({ owner: alice, limit: 2 })
    await store.tasks.list({ id: 'parked-7' })
    const scans = async ([text, values]: [string, unknown[]]) =>
      JSON.stringify((await inner.query(`EXPLAIN ${text}`, values)).rows).match(/Seq Scan on task/g) ?? []
    const tasks = asked.filter(([text]) => text.includes(`${schema}.task`))
    expect(tasks).toHaveLength(5)
    for (const one of tasks) expect(await scans(one), one[0]).toEqual([])
    // Control.
    expect(await scans([`SELECT count(*) FROM ${schema}.task WHERE failures = 0`, []])).toHaveLength(1)
    await store.close()
    await inner.end()
  })

  it('the store works behind a pooler that runs every statement on another connection', async () => {
    const pool = new pg.Pool({ connectionString: server.connectionString, max: 4, maxUses: 1 })
    const store = createPostgresStore({ pool, schema, listen: false, pollMs: 30 })
    const engine = createLeaseEngine(store)
    const run: RunTurn = async (turn) => {
      await turn.record('step')
      const name = turn.answers.get('name')
      return name === undefined ? { kind: 'park', inputs: inputs('name') } : complete(name)
    }
    const serving = await engine.serve(run)
    const tasks = Array.from({ length: 10 }, () => newTask())
    for (const task of tasks) {
      await engine.create(task)
      await until('a question', async () => (await engine.get(task.id, alice))?.inputs.has('name'))
      await engine.deliver(task.id, alice, answers({ name: task.id }))
      await until('the result', async () => (await engine.get(task.id, alice))?.result === task.id)
    }
    await serving.stop()
    await store.close()
    await pool.end()
  })

  it('the store continues without prepared statements if a pooler shares its connections', async () => {
    const { connectionString } = server
    const options = { connectionString, maxConnections: 1, retryMs: 100, prepares: true }
    const pool = createResilientPool(options)
    const one = async () => (await pool.query('SELECT $1::integer + 1 AS two', [1])).rows
    const names = async () => (await pool.query('SELECT name FROM pg_prepared_statements', [])).rows
    expect(await one()).toEqual([{ two: 2 }])
    expect((await names()).length).toBeGreaterThan(0)
    // As if the next statement went to another connection.
    await pool.query('DEALLOCATE ALL', [])
    expect(await one()).toEqual([{ two: 2 }])
    await pool.query('DEALLOCATE ALL', [])
    expect([await one(), await names()]).toEqual([[{ two: 2 }], []])
    await pool.end()
  })

  it.each(['park', 'publish'] as const)(
    'G4 the store recognises its %s after the response was lost',
    async (write) => {
      const pool = new pg.Pool({ connectionString: server.connectionString, max: 5 })
      let lost = 0
      const lossy: PgPool = {
        async query(text, values) {
          const result = await pool.query(text, values)
          if (!text.includes('SET inputs = q.inputs') || lost++ > 0) return result
          throw Object.assign(new Error('read ECONNRESET'), { code: 'ECONNRESET' })
        },
        connect: () => pool.connect(),
        end: () => pool.end(),
        on: pool.on.bind(pool),
      }
      const store = createPostgresStore({ pool: lossy, schema })
      const { fence } = await claimNew(store)
      expect(await store.tasks[write](fence, openSlots([], inputs('a')))).toBeTruthy()
      expect(lost).toBe(2)
      expect((await store.tasks.get(fence.id, alice))?.inputs).toEqual(inputs('a'))
      expect(await store.tasks.held([fence])).toEqual(new Set(write === 'publish' ? [fence.id] : []))
      await store.close()
      await pool.end()
    },
  )

  it('E9 a worker finds its lease again after the response to the resuming write was lost', async () => {
    const pool = new pg.Pool({ connectionString: server.connectionString, max: 5 })
    let lost = 0
    const lossy: PgPool = {
      async query(text, values) {
        const result = await pool.query(text, values)
        if (!text.includes('AND t.worker IS NULL') || lost++ > 0) return result
        throw Object.assign(new Error('read ECONNRESET'), { code: 'ECONNRESET' })
      },
      connect: () => pool.connect(),
      end: () => pool.end(),
      on: pool.on.bind(pool),
    }
    const store = createPostgresStore({ pool: lossy, schema })
    const { fence } = await claimNew(store)
    await store.tasks.append(fence, 0, ['before'])
    await store.tasks.park(fence, openSlots([], inputs('a')))
    const given = answers({ a: '1' })
    const taker = { worker: 'taker', leaseMs: 10_000 }
    const { kind, lease } = await store.tasks.deliver(fence.id, alice, given, taker)
    expect(lost).toBe(2)
    expect({ kind, lease }).toMatchObject({ kind: 'resumed', lease: { journal: ['before'] } })
    expect(await store.tasks.held(lease ? [lease.fence] : [])).toEqual(new Set([fence.id]))
    // Somebody else who sends the same answers has no part in it.
    expect(await store.tasks.deliver(fence.id, alice, given, taker)).toEqual({ kind: 'resumed' })
    await store.close()
    await pool.end()
  })

  describe('a connection that breaks', () => {
    /** Looks at every connection right when it is handed out, before its taker could listen: how many would not be heard. */
    const countUnheard = async (wrap: (pool: pg.Pool) => PgPool) => {
      const pool = new pg.Pool({ connectionString: server.connectionString, max: 5 })
      const store = createPostgresStore({ pool: wrap(pool), schema })
      let taken = 0
      let unheard = 0
      const listen = store.tasks.onHint(() => {})
      await store.ready()
      pool.on('acquire', (client) => {
        queueMicrotask(() => {
          taken++
          if (client.listenerCount('error') === 0) unheard++
        })
      })
      await store.once.renewEpoch()
      await store.tasks.create(newTask(), 10)
      listen()
      await store.close()
      await pool.end()
      expect(taken).toBeGreaterThan(0)
      return unheard
    }

    it('R11 always has an error listener, so it cannot end the process', async () => {
      expect(await countUnheard((pool) => pool)).toBe(0)
    })

    it('control: ends the process of a store that does not listen to every connection', async () => {
      expect(await countUnheard(unguard)).toBeGreaterThan(0)
    })
  })

  describe('a crash of the server', () => {
    it('loses nothing that was acknowledged, and running turns continue', async () => {
      // For as long as a busy machine takes to start the server again.
      database = createPostgresDatabase(server, { retryMs: 120_000 })
      const store = database.open()
      const engine = createLeaseEngine(store, { leaseMs: 1_000, pollMs: 50 })
      const serving = await engine.serve(async (turn) => {
        for (let step = turn.journal.length; step < 4; step++) {
          await new Promise((resolve) => setTimeout(resolve, 30))
          await turn.record(`${step}`)
        }
        return complete('done')
      })
      const tasks = Array.from({ length: 40 }, () => newTask())
      const creating = Promise.all(tasks.map((task) => engine.create(task)))
      await server.crash()
      await server.start()
      await creating
      for (const { id } of tasks)
        await until('the end', async () => (await engine.get(id, alice))?.status === 'completed')
      await serving.stop()
    })

    it('ends in an error if the server does not come back', async () => {
      const connectionString = 'postgres://rondo@127.0.0.1:1/postgres'
      const store = createPostgresStore({ connectionString, retryMs: 300 })
      await expect(store.tasks.create(newTask(), 10)).rejects.toMatchObject({ code: 'STORE_UNAVAILABLE' })
      await store.close()
    })
  })

  it('B8 the store starts a new epoch after a restore, and refuses what was handed out before', async () => {
    const store = database.open()
    const epoch = await store.once.epoch()
    const slot = { flow: 'f', round: 1, digest: 'd', epoch, expiresAt: Date.now() + 60_000 }
    const attempt = { claimant: 'c', holdMs: 1000 }
    // As a restored copy would look: written down in another cluster, timeline or table.
    await ask(`UPDATE ${schema}.meta SET value = 'elsewhere' WHERE key = 'life'`)
    expect(await store.once.claim(slot, attempt)).toEqual({ kind: 'refused', reason: 'epoch' })
    const next = await store.once.epoch()
    expect(next).not.toBe(epoch)
    expect(await store.once.claim({ ...slot, epoch: next }, attempt)).toEqual({ kind: 'first' })
    await ask(`DROP SCHEMA ${schema} CASCADE`)
    const emptied = database.open()
    expect(await emptied.once.epoch()).not.toBe(next)
    expect(await emptied.once.claim({ ...slot, epoch: next }, attempt)).toEqual({
      kind: 'refused',
      reason: 'epoch',
    })
  })

  describe('the end of a store', () => {
    it('does not wait for a worker, and rejects every statement that has not begun', async () => {
      const store = database.open()
      const engine = createLeaseEngine(store, { maxOpenTasks: 1_000 })
      const serving = await engine.serve(
        async (turn) => {
          for (;;) await turn.record('more')
        },
        { concurrency: 40 },
      )
      const creating = Promise.allSettled(Array.from({ length: 100 }, () => engine.create(newTask())))
      await until('work', async () => (await store.tasks.stats()).running > 10)
      await store.close()
      await creating
      await serving.stop()
      await store.close()
      await expect(store.tasks.stats()).rejects.toThrow(/closed/)
    })

    it('comes although the database no longer responds', async () => {
      const wire = await startWire(server.connectionString)
      const store = createPostgresStore({ connectionString: wire.connectionString, schema })
      await store.ready()
      wire.cut()
      const asked = store.tasks.stats().catch((error) => error.code)
      await until('the question to get lost', () => wire.lost > 0)
      await store.close()
      expect(await asked).toBe('STORE_UNAVAILABLE')
      wire.close()
    })
  })

  it('createPostgresStore needs at least two connections if one of them listens', () => {
    expect(() => createPostgresStore({ maxConnections: 1 })).toThrow(/at least 2/)
    expect(() => createPostgresStore({ maxConnections: 1, listen: false })).not.toThrow()
  })

  describe('hints', () => {
    it('wake workers and watchers in other processes long before they would poll', async () => {
      const slow = { pollMs: 600_000 }
      const [here, there] = [
        createLeaseEngine(database.open(), slow),
        createLeaseEngine(database.open(), slow),
      ]
      const serving = await there.serve(async () => complete('done'))
      const seen: (string | undefined)[] = []
      const first = newTask()
      await here.create(first)
      await until('the first result', async () => (await here.get(first.id, alice))?.result)
      const second = newTask()
      await here.create(second)
      await here.watch([second.id], alice, (_, view) => seen.push(view?.status))
      await until('the news', () => seen.includes('completed'))
      await serving.stop()
    })

    it('are sent one at a time, outside of transactions', async () => {
      const pool = new pg.Pool({ connectionString: server.connectionString, max: 5 })
      let underWay = 0
      let most = 0
      let sent = 0
      const watched: PgPool = {
        async query(text, values) {
          const isHint = text.includes('pg_notify')
          if (isHint) {
            sent++
            most = Math.max(most, ++underWay)
          }
          return pool.query(text, values).finally(() => {
            if (isHint) underWay--
          })
        },
        connect: () => pool.connect(),
        end: () => pool.end(),
        on: pool.on.bind(pool),
      }
      const store = createPostgresStore({ pool: watched, schema })
      await Promise.all(Array.from({ length: 100 }, () => store.tasks.create(newTask(), 1000)))
      await until('a hint', () => sent > 0 && underWay === 0)
      expect(most).toBe(1)
      expect(sent).toBeLessThan(50)
      await store.close()
      await pool.end()
    })
  })
})
