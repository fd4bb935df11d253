/** Changes of many tasks in one statement, and everything that can go wrong with it. */

import pg from 'pg'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { describePostgres } from '../../../../../test/support/postgres.ts'
import { startPostgres, type TestPostgres } from '../../../../../test/support/postgres-server.ts'
import { createPostgresDatabase } from '../../../../../test/support/store/postgres-database.ts'
import {
  alice,
  answers,
  bob,
  type Database,
  inputs,
  newTask,
  until,
} from '../../../../../test/support/store/store-harness.ts'
import { openUnfenced } from '../../../../../test/support/store/unfenced-store.ts'
import { createLeaseEngine } from '../engine/lease-engine.ts'
import { openSlots } from '../input-slots.ts'
import type { Store } from '../store.ts'
import type { Fence } from '../task-store.ts'
import type { PgPool, PgRow } from './driver.ts'
import { createPostgresStore, type PostgresStoreOptions } from './store.ts'

const LEASE = 60_000
const UNLIMITED = Number.POSITIVE_INFINITY

/** A fault that a statement of the store meets on its way: it may throw before or after the statement runs. */
type Meddle = (text: string, run: () => Promise<{ rows: PgRow[] }>) => Promise<{ rows: PgRow[] }>

describePostgres('PostgreSQL: writes in groups', () => {
  let server: TestPostgres
  let database: Database
  let schema: string
  let store: Store
  let ends: (() => Promise<unknown>)[]
  beforeAll(async () => {
    server = await startPostgres({ fsync: false })
  })
  afterAll(() => server.stop())
  beforeEach(() => {
    database = createPostgresDatabase(server)
    if (database.address.kind === 'postgres') schema = database.address.schema
    store = database.open()
    ends = []
  })
  afterEach(async () => {
    for (const end of ends.reverse()) await end()
    await database.close()
  })

  const connect = async () => {
    const client = new pg.Client({ connectionString: server.connectionString })
    client.on('error', () => {})
    await client.connect()
    ends.push(() => client.end())
    return client
  }
  const ask = async (text: string) => (await (await connect()).query(text)).rows

  interface Sent {
    readonly text: string
    readonly rows: number
    readonly bytes: number
  }
  /** A store whose statements are recorded and meddled with. */
  const openThrough = (
    meddle: Meddle = (_, run) => run(),
    { max = 5, ...options }: PostgresStoreOptions & { max?: number } = {},
  ) => {
    const pool = new pg.Pool({ connectionString: server.connectionString, max })
    const sent: Sent[] = []
    const through: PgPool = {
      query(text, values = []) {
        const [ids] = values.slice(1)
        sent.push({
          text,
          rows: Array.isArray(ids) ? ids.length : 1,
          bytes: values
            .flat()
            .reduce<number>((sum, one) => sum + (typeof one === 'string' ? one.length : 0), 0),
        })
        return meddle(text, () => pool.query(text, values))
      },
      connect: () => pool.connect(),
      end: () => pool.end(),
      on: pool.on.bind(pool),
    }
    const opened = createPostgresStore({ pool: through, schema, listen: false, ...options })
    ends.push(() => pool.end())
    ends.push(() => opened.close())
    return { store: opened, sent }
  }
  const claimMany = async (count: number, from = store): Promise<Fence[]> => {
    const tasks = Array.from({ length: count }, () => newTask())
    await Promise.all(tasks.map((task) => store.tasks.create(task, UNLIMITED)))
    const leases = await from.tasks.claim('worker', LEASE, count)
    expect(leases).toHaveLength(count)
    const fences = new Map(leases.map(({ fence }) => [fence.id, fence]))
    return tasks.map(({ id }) => fences.get(id) as Fence)
  }
  const entriesOf = async ({ id }: Fence) =>
    (await ask(`SELECT entry FROM ${schema}.journal WHERE task = '${id}' ORDER BY seq`)).map(
      ({ entry }) => entry,
    )

  it('J3 changes of one moment share a statement, and a lone change is a statement of its own', async () => {
    const { store: seen, sent } = openThrough()
    const fences = await claimMany(100, seen)
    const writes = [
      () => Promise.all(fences.map((fence) => seen.tasks.append(fence, 0, ['a', 'b']))),
      () => Promise.all(fences.map((fence) => seen.tasks.status(fence, `message ${fence.id}`))),
      () => Promise.all(fences.map((fence) => seen.tasks.park(fence, openSlots([], inputs('a'))))),
      () => Promise.all(fences.map(({ id }) => seen.tasks.deliver(id, alice, answers({ a: id })))),
    ]
    for (const write of writes) {
      sent.length = 0
      await write()
      expect(sent.length).toBeLessThan(10)
      expect(Math.max(...sent.map(({ rows }) => rows))).toBeGreaterThan(50)
    }
    const again = await seen.tasks.claim('worker', LEASE, 100)
    expect(again.map(({ journal }) => journal)).toEqual(Array(100).fill(['a', 'b']))
    for (const { fence, slots } of again)
      expect(slots).toEqual([{ kind: 'answered', key: 'a', answer: fence.id }])
    sent.length = 0
    const [first] = again
    if (first) expect(await seen.tasks.status(first.fence, 'alone')).toBe(true)
    expect(sent.map(({ rows, text }) => [rows, text.includes('unnest')])).toEqual([[1, false]])
  })

  it('T18 a group of creations respects the limit of each owner', async () => {
    const { store: seen, sent } = openThrough()
    const tasks = Array.from({ length: 60 }, (_, i) => newTask({ owner: i % 2 ? alice : bob }))
    await seen.ready()
    sent.length = 0
    const kinds = await Promise.all(tasks.map(async (task) => (await seen.tasks.create(task, 4)).kind))
    expect(Math.max(...sent.map(({ rows }) => rows))).toBeGreaterThan(20)
    expect(kinds.filter((kind) => kind === 'created')).toHaveLength(8)
    expect(await ask(`SELECT count(*)::int, principal FROM ${schema}.task GROUP BY 2 ORDER BY 2`)).toEqual([
      { count: 4, principal: 'alice' },
      { count: 4, principal: 'bob' },
    ])
  })

  describe('the fence', () => {
    /** Settles 20 tasks in one moment, of which every third was taken over. Returns the outcome of each caller. */
    const settleAll = async (writer: Store) => {
      const fences = await claimMany(20)
      const lost = fences.filter((_, i) => i % 3 === 0)
      await ask(
        `UPDATE ${schema}.task SET due_at = 0 WHERE id IN (${lost.map(({ id }) => `'${id}'`).join()})`,
      )
      expect(await store.tasks.claim('another', LEASE, 100)).toHaveLength(lost.length)
      const outcomes = await Promise.all(
        fences.map((fence) => writer.tasks.settle(fence, { kind: 'complete', result: fence.id })),
      )
      const views = await Promise.all(fences.map(({ id }) => store.tasks.get(id, alice)))
      return {
        outcomes,
        statuses: views.map((view) => view?.status),
        lost: fences.map((one) => lost.includes(one)),
      }
    }

    it('P16 is checked for each row, and each caller receives its own outcome', async () => {
      const { outcomes, statuses, lost } = await settleAll(store)
      expect(outcomes).toEqual(lost.map((is) => !is))
      expect(statuses).toEqual(lost.map((is) => (is ? 'working' : 'completed')))
    })

    it('P16 control: without it, a group changes tasks that others hold', async () => {
      const unfenced = openUnfenced(database.address)
      ends.push(() => unfenced.close())
      const { outcomes, statuses } = await settleAll(unfenced)
      expect(outcomes).toEqual(Array(20).fill(true))
      expect(statuses).toEqual(Array(20).fill('completed'))
    })
  })

  describe('a change that the database refuses', () => {
    it('R11 fails alone, after few statements', async () => {
      const { store: seen, sent } = openThrough()
      const fences = await claimMany(64, seen)
      sent.length = 0
      const outcomes = await Promise.allSettled(
        fences.map((fence, i) => seen.tasks.append(fence, 0, [i === 40 ? 'bad \0 text' : `entry ${i}`])),
      )
      expect(outcomes.map(({ status }) => status === 'rejected')).toEqual(fences.map((_, i) => i === 40))
      expect(outcomes[40]).toMatchObject({ reason: { code: 'STORE_UNAVAILABLE' } })
      expect(sent.length).toBeLessThan(20)
      const journals = await Promise.all(fences.map(entriesOf))
      expect(journals).toEqual(fences.map((_, i) => (i === 40 ? [] : [`entry ${i}`])))
    })

    it('fails alone among creations', async () => {
      const tasks = Array.from({ length: 20 }, (_, i) => newTask(i === 7 ? { pollMs: 2 ** 40 } : {}))
      const outcomes = await Promise.allSettled(tasks.map((task) => store.tasks.create(task, 100)))
      expect(outcomes.map(({ status }) => status === 'rejected')).toEqual(tasks.map((_, i) => i === 7))
      expect(await store.tasks.claim('worker', LEASE, 100)).toHaveLength(19)
    })

    it('fails alone if an entry exists already', async () => {
      const fences = await claimMany(10)
      const [first] = fences
      if (first) await store.tasks.append(first, 0, ['mine'])
      const outcomes = await Promise.allSettled(
        fences.map((fence) => store.tasks.append(fence, 0, ['theirs'])),
      )
      expect(outcomes.map(({ status }) => status)).toEqual(['rejected', ...Array(9).fill('fulfilled')])
      expect(first && (await entriesOf(first))).toEqual(['mine'])
    })
  })

  describe('a connection that is lost', () => {
    const gone = () => Object.assign(new Error('read ECONNRESET'), { code: 'ECONNRESET' })
    const losing = (isLost: (text: string) => boolean, when: 'before' | 'after', error = gone) => {
      let lost = 0
      const opened = openThrough(async (text, run) => {
        if (!isLost(text) || lost > 0) return run()
        lost++
        if (when === 'after') await run()
        throw error()
      })
      return { ...opened, lost: () => lost }
    }
    const isMany = (part: string) => (text: string) => text.includes(part) && text.includes('unnest')

    it.each(['before', 'after'] as const)(
      'E9 %s a group took effect: every change is made once, and every caller learns that',
      async (when) => {
        for (const [part, write] of [
          ['outcome = q.outcome', (fence: Fence) => [fence, 'settle'] as const],
          ['INSERT INTO', (fence: Fence) => [fence, 'append'] as const],
          ['worker = NULL, failures = 0', (fence: Fence) => [fence, 'park'] as const],
        ] as const) {
          const { store: lossy, lost } = losing(
            (text) => isMany(part)(text) && !text.includes('made AS'),
            when,
          )
          const fences = await claimMany(30, lossy)
          const outcomes = await Promise.all(
            fences.map(async (one) => {
              const [fence, kind] = write(one)
              if (kind === 'append') return lossy.tasks.append(fence, 0, ['once'])
              if (kind === 'park') return lossy.tasks.park(fence, openSlots([], inputs('a')))
              return lossy.tasks.settle(fence, { kind: 'complete', result: 'done' })
            }),
          )
          expect(lost()).toBe(1)
          expect(outcomes).toEqual(Array(30).fill(true))
          const rows = await ask(
            `SELECT revision, status FROM ${schema}.task WHERE id IN (${fences
              .map(({ id }) => `'${id}'`)
              .join()})`,
          )
          const expected = { settle: [2, 'completed'], append: [1, 'working'], park: [2, 'input_required'] }
          const kind = write(fences[0] as Fence)[1]
          expect(rows.map(({ revision, status }) => [revision, status])).toEqual(
            Array(30).fill(expected[kind]),
          )
          if (kind === 'append') for (const fence of fences) expect(await entriesOf(fence)).toEqual(['once'])
        }
      },
    )

    it('E2 after creations: each is claimed by its caller, once', async () => {
      const { store: lossy, lost } = losing(isMany('made AS'), 'after')
      const taker = { worker: 'taker', leaseMs: LEASE }
      const tasks = Array.from({ length: 30 }, () => newTask({ journal: ['before'] }))
      const outcomes = await Promise.all(tasks.map((task) => lossy.tasks.create(task, 100, taker)))
      expect(lost()).toBe(1)
      expect(outcomes.map((one) => one.kind === 'created' && one.lease?.fence)).toEqual(
        tasks.map(({ id }) => ({ id, epoch: 1 })),
      )
      expect(await store.tasks.claim('another', LEASE, 100)).toEqual([])
      const held = await store.tasks.held(tasks.map(({ id }) => ({ id, epoch: 1 })))
      expect(held.size).toBe(30)
    })

    it('a serialization failure is retried, and fails nobody', async () => {
      const failure = () => Object.assign(new Error('could not serialize access'), { code: '40001' })
      const { store: lossy, lost } = losing(isMany('outcome = q.outcome'), 'before', failure)
      const fences = await claimMany(30, lossy)
      const settle = (fence: Fence) => lossy.tasks.settle(fence, { kind: 'complete', result: 'done' })
      expect(await Promise.all(fences.map(settle))).toEqual(Array(30).fill(true))
      expect(lost()).toBe(1)
    })

    it('E9 in the middle of a statement: the server ends the backend, and nothing is half done', async () => {
      const fences = await claimMany(30)
      // A sequence is not rolled back, so this happens once.
      await ask(`CREATE SEQUENCE ${schema}.strokes;
        CREATE FUNCTION ${schema}.strike() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
          IF nextval('${schema}.strokes') = 15 THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF;
          RETURN NEW; END $$;
        CREATE TRIGGER strike BEFORE INSERT ON ${schema}.journal FOR EACH ROW EXECUTE FUNCTION ${schema}.strike()`)
      const outcomes = await Promise.all(fences.map((fence) => store.tasks.append(fence, 0, ['once'])))
      expect(outcomes).toEqual(Array(30).fill(true))
      for (const fence of fences) expect(await entriesOf(fence)).toEqual(['once'])
      const [{ last }] = (await ask(`SELECT last_value::int AS last FROM ${schema}.strokes`)) as [
        { last: number },
      ]
      expect(last).toBeGreaterThan(30)
    })

    it('I2 for good: every caller gets an error, in bounded time', async () => {
      let down = false
      const { store: cut } = openThrough((_, run) => (down ? Promise.reject(gone()) : run()), {
        retryMs: 200,
      })
      const fences = await claimMany(600, cut)
      down = true
      const outcomes = await Promise.allSettled(fences.map((fence) => cut.tasks.status(fence, 'm')))
      const codes = outcomes.map((one) => one.status === 'rejected' && one.reason.code)
      expect(codes).toEqual(Array(600).fill('STORE_UNAVAILABLE'))
    })
  })

  describe('locks', () => {
    it('I2 a row that somebody else has locked does not delay its neighbours', async () => {
      const fences = await claimMany(10)
      const other = await connect()
      await other.query('BEGIN')
      await other.query(`SELECT 1 FROM ${schema}.task WHERE id = $1 FOR UPDATE`, [fences[4]?.id])
      const done = new Set<number>()
      const all = fences.map(async (fence, i) => {
        const outcomes = await store.tasks.settle(fence, { kind: 'complete', result: 'done' })
        done.add(i)
        return outcomes
      })
      await until('the neighbours', () => done.size === 9)
      expect(done.has(4)).toBe(false)
      await other.query('COMMIT')
      expect(await Promise.all(all)).toEqual(Array(10).fill(true))
    })

    it('two processes whose groups share rows and owners do not deadlock', async () => {
      const other = database.open()
      const owners = Array.from({ length: 20 }, (_, i) => ({ tenant: 't', principal: `p${i}` }))
      for (let round = 0; round < 5; round++) {
        const tasks = owners.map((owner) => newTask({ owner }))
        const reversed = [...tasks].reverse()
        const make = (by: Store) => (task: (typeof tasks)[number]) => by.tasks.create(task, 100)
        await Promise.all([...tasks.map(make(store)), ...reversed.map(make(other))])
        const leases = await store.tasks.claim('worker', LEASE, 100)
        expect(leases).toHaveLength(20)
        await Promise.all(leases.map(({ fence }) => store.tasks.park(fence, openSlots([], inputs('a', 'b')))))
        const give = (by: Store, key: string) => (task: (typeof tasks)[number]) =>
          by.tasks.deliver(task.id, task.owner, answers({ [key]: '1' }))
        const outcomes = await Promise.all([
          ...tasks.map(give(store, 'a')),
          ...reversed.map(give(other, 'b')),
        ])
        expect(outcomes.filter(({ kind }) => kind === 'resumed')).toHaveLength(20)
        const again = await other.tasks.claim('worker', LEASE, 100)
        await Promise.all(
          again.map(({ fence }) => other.tasks.settle(fence, { kind: 'complete', result: 'r' })),
        )
      }
      const [row] = await ask(
        'SELECT deadlocks::int FROM pg_stat_database WHERE datname = current_database()',
      )
      expect(row).toEqual({ deadlocks: 0 })
    })
  })

  describe('guesses', () => {
    it('G4 a wrong guess of the slots costs no answer, even if the next read fails', async () => {
      let fails = false
      const { store: seen } = openThrough((text, run) =>
        fails && text.startsWith('SELECT t.inputs') ? Promise.reject(new Error('refused')) : run(),
      )
      const [fence] = await claimMany(1, seen)
      if (fence === undefined) throw new Error('no task')
      const slots = openSlots([], inputs('a', 'b'))
      await seen.tasks.publish(fence, slots)
      await store.tasks.deliver(fence.id, alice, answers({ a: 'kept' }))
      fails = true
      await expect(seen.tasks.publish(fence, openSlots(slots, inputs('c')))).rejects.toThrow()
      fails = false
      expect(await seen.tasks.park(fence, slots)).toBe(true)
      const [lease] = await store.tasks.claim('worker', LEASE, 1)
      expect(lease?.slots[0]).toEqual({ kind: 'answered', key: 'a', answer: 'kept' })
    })

    it('E3 answers to a task that this process parked are checked against what others did to it', async () => {
      const fences = await claimMany(4)
      await Promise.all(fences.map((fence) => store.tasks.park(fence, openSlots([], inputs('a', 'b')))))
      const [answered, cancelled, foreign, plain] = fences.map(({ id }) => id) as [
        string,
        string,
        string,
        string,
      ]
      const other = database.open()
      await other.tasks.deliver(answered, alice, answers({ a: 'first' }))
      await other.tasks.cancel(cancelled, alice)
      const both = answers({ a: 'second', b: '2' })
      expect(await store.tasks.deliver(foreign, bob, both)).toEqual({ kind: 'unknown' })
      expect(await store.tasks.deliver(plain, alice, answers({ c: '3' }))).toEqual({ kind: 'partial' })
      const given = await Promise.all(fences.map(({ id }) => store.tasks.deliver(id, alice, both)))
      expect(given.map(({ kind }) => kind)).toEqual(['resumed', 'idle', 'resumed', 'resumed'])
      const leases = await other.tasks.claim('worker', LEASE, 10)
      const firsts = new Map(leases.map(({ fence, slots }) => [fence.id, slots[0]]))
      expect(firsts.get(answered)).toMatchObject({ answer: 'first' })
      expect(firsts.get(plain)).toMatchObject({ answer: 'second' })
    })

    it('an answer to a task that this process parked needs no read', async () => {
      const { store: seen, sent } = openThrough()
      const [fence] = await claimMany(1, seen)
      if (fence === undefined) throw new Error('no task')
      await seen.tasks.park(fence, openSlots([], inputs('a')))
      sent.length = 0
      const taker = { worker: 'taker', leaseMs: LEASE }
      const { lease } = await seen.tasks.deliver(fence.id, alice, answers({ a: '1' }), taker)
      expect(lease?.slots).toEqual([{ kind: 'answered', key: 'a', answer: '1' }])
      expect(sent).toHaveLength(1)
    })
  })

  it('a group keeps the changes of one task apart, and in order', async () => {
    const [fence] = await claimMany(1)
    if (fence === undefined) throw new Error('no task')
    const outcomes = await Promise.all(
      Array.from({ length: 20 }, (_, i) => store.tasks.status(fence, `${i}`)),
    )
    expect(outcomes).toEqual(Array(20).fill(true))
    expect(await store.tasks.get(fence.id, alice)).toMatchObject({ revision: 21 })
  })

  it('a change of a task does not overtake an earlier one that takes longer', async () => {
    const [fence] = await claimMany(1)
    if (fence === undefined) throw new Error('no task')
    let others = 0
    const { store: slow } = openThrough(async (text, run) => {
      if (!text.includes('message')) return run()
      others += 1
      // The first one is sent, and then delayed until the second one is done, or nobody has sent it.
      if (others === 1) for (let look = 0; look < 40 && others === 1; look++) await new Promise(setImmediate)
      return run()
    })
    await Promise.all(['first', 'second', 'third'].map((one) => slow.tasks.status(fence, one)))
    expect(await store.tasks.get(fence.id, alice)).toMatchObject({ message: 'third' })
    expect(others).toBe(3)
  })

  it('I3 a group has bounded numbers of rows and bytes', async () => {
    const { store: seen, sent } = openThrough()
    const fences = await claimMany(600, seen)
    sent.length = 0
    await Promise.all(fences.map((fence) => seen.tasks.status(fence, 'm')))
    expect(Math.max(...sent.map(({ rows }) => rows))).toBe(256)
    sent.length = 0
    const large = 'x'.repeat(400_000)
    const some = fences.slice(0, 12)
    expect(await Promise.all(some.map((fence) => seen.tasks.append(fence, 0, [large])))).toEqual(
      Array(12).fill(true),
    )
    expect(Math.max(...sent.map(({ bytes }) => bytes))).toBeLessThan(1_100_000)
    expect(await seen.tasks.append(fences[20] as Fence, 0, ['y'.repeat(3_000_000)])).toBe(true)
  })

  it('a group works with a single connection', async () => {
    const { store: narrow } = openThrough(undefined, { max: 1 })
    const engine = createLeaseEngine(narrow, { maxOpenTasks: 1_000 })
    const serving = await engine.serve(async (turn) => {
      await turn.record('step')
      return { kind: 'complete', result: 'done' }
    })
    const tasks = Array.from({ length: 100 }, () => newTask())
    await Promise.all(tasks.map((task) => engine.create(task)))
    for (const { id } of tasks)
      await until('the end', async () => (await store.tasks.get(id, alice))?.status === 'completed')
    await serving.stop()
  })

  it('I8 closing settles every change that waits, and keeps what was acknowledged', async () => {
    const fences = await claimMany(900)
    const writes = fences.map((fence) => store.tasks.append(fence, 0, ['entry']))
    const settled = Promise.allSettled(writes)
    await writes[0]
    await store.close()
    const outcomes = await settled
    const kept = new Set((await ask(`SELECT task FROM ${schema}.journal`)).map(({ task }) => task as string))
    expect(kept.size).toBeGreaterThan(0)
    for (const [i, one] of outcomes.entries()) {
      if (one.status === 'fulfilled') expect(kept.has(fences[i]?.id ?? '')).toBe(true)
      else expect(String(one.reason)).toMatch(/STORE_UNAVAILABLE|closed/)
    }
  })
})
