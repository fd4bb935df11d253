/**
 * One at a time (M3): how many calls of a tool run at once, over several instances of a server, in rounds and as tasks; and calls that
 * are the same call.
 */

import fc from 'fast-check'
import { createServer, generateKey, type Server, type ServerOptions, type ToolDefinition } from 'rondo'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import type { Store } from '../../packages/rondo/src/store/store.ts'
import { describePostgres } from '../support/postgres.ts'
import { startPostgres, type TestPostgres } from '../support/postgres-server.ts'
import { createPostgresDatabase } from '../support/store/postgres-database.ts'
import { createSqliteDatabase } from '../support/store/sqlite-database.ts'
import { until } from '../support/store/store-harness.ts'
import { follow, type Rpc, send, settled } from '../support/task-client.ts'

const keys = generateKey('k')
const closing: (() => Promise<unknown>)[] = []
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close()
})

/** The world outside: who is in it now, who was, and gates that hold steps back. */
interface World {
  inside: number
  most: number
  readonly order: string[]
  readonly gates: Map<string, () => void>
}

const newWorld = (): World => ({ inside: 0, most: 0, order: [], gates: new Map() })

const input = z.object({ order: z.string(), name: z.string() })
type Terms = Pick<ToolDefinition<typeof input>, 'concurrency' | 'dedupe' | 'task'>

function start(world: World, store: Store, terms: Terms, options: Partial<ServerOptions> = {}): Server {
  const server = createServer({
    name: 'shop',
    version: '1',
    keys,
    log: 'off',
    store,
    authenticate: ({ headers }) => ({ subject: headers('x-user') ?? 'ada' }),
    ...options,
  })
  const enter = async (name: string): Promise<void> => {
    world.inside += 1
    world.most = Math.max(world.most, world.inside)
    world.order.push(name)
    await new Promise<void>((resolve) => world.gates.set(name, resolve))
    world.inside -= 1
  }
  server.tool('work', { input, ...terms }, async ({ name }, ctx) => {
    await ctx.step('work', () => enter(name))
    return `${name} done`
  })
  server.tool('ask', { input, ...terms }, async ({ name }, ctx) => {
    const sure = await ctx.confirm('sure', `Sure, ${name}?`)
    await ctx.effect('pay', () => void world.order.push(`pay ${name}`))
    return `${name} ${sure}`
  })
  closing.push(() => server.close())
  return server
}

const byOrder: Terms['concurrency'] = { key: ({ order }) => order, otherwise: 'refuse' }
const ROUNDS = { elicitation: { form: {} } }
const call = (server: Server, tool: string, name: string, more: Record<string, unknown> = {}, user = 'ada') =>
  send(
    server,
    'tools/call',
    { name: tool, arguments: { order: '7', name }, ...more },
    { capabilities: ROUNDS, headers: { 'x-user': user } },
  )
const begin = async (server: Server, tool: string, name: string, order = '7', user = 'ada') => {
  const reply = await send(
    server,
    'tools/call',
    { name: tool, arguments: { order, name } },
    { headers: { 'x-user': user } },
  )
  return String(reply.result?.taskId)
}
const open = async (world: World, name: string) =>
  (await until(`${name} works`, () => world.gates.get(name)))()
const accept = { sure: { action: 'accept', content: { confirm: true } } }
const textOf = ({ result }: Rpc) => (result?.content as { text: string }[] | undefined)?.[0]?.text

describe('a call in rounds', () => {
  it('M3 is refused on any instance while another of its key runs or waits for an answer, and the next one is not', async () => {
    const [world, store] = [newWorld(), createMemoryStore()]
    const [one, two] = [
      start(world, store, { concurrency: byOrder }),
      start(world, store, { concurrency: byOrder }),
    ]
    const asked = await call(one, 'ask', 'a')
    expect(asked.result).toMatchObject({ resultType: 'input_required' })
    const refused = await call(two, 'ask', 'b')
    expect(refused.error).toMatchObject({
      code: -32000,
      message: expect.stringContaining('as many calls as it allows'),
    })
    const free = { arguments: { order: '8', name: 'c' } }
    expect((await call(two, 'ask', 'c', free)).result).toMatchObject({ resultType: 'input_required' })
    const { requestState } = asked.result as { requestState: string }
    const paused = await call(two, 'ask', 'a', { requestState, inputResponses: accept })
    expect(textOf(paused)).toBe('a true')
    expect((await call(one, 'ask', 'b')).result).toMatchObject({ resultType: 'input_required' })
    expect(world.order).toEqual(['pay a'])
  })

  it('M3 makes room while it waits for an answer, if the tool says so', async () => {
    const [world, store] = [newWorld(), createMemoryStore()]
    const server = start(world, store, { concurrency: { ...byOrder, whileWaiting: 'release' } })
    const first = await call(server, 'ask', 'a')
    const second = await call(server, 'ask', 'b')
    for (const [name, asked] of [
      ['a', first],
      ['b', second],
    ] as const) {
      const { requestState } = asked.result as { requestState: string }
      expect(textOf(await call(server, 'ask', name, { requestState, inputResponses: accept }))).toBe(
        `${name} true`,
      )
    }
  })

  it('M3 continues as a task that waits, if its client can follow one, and is refused otherwise', async () => {
    const [world, store] = [newWorld(), createMemoryStore()]
    const server = start(world, store, { concurrency: { key: ({ order }) => order } })
    const first = call(server, 'work', 'a')
    await until('a works', () => world.gates.get('a'))
    expect((await call(server, 'work', 'b')).error?.message).toContain('as many calls as it allows')
    const id = await begin(server, 'work', 'c')
    expect((await send(server, 'tasks/get', { taskId: id })).result).toMatchObject({ status: 'working' })
    expect(world.order).toEqual(['a'])
    await open(world, 'a')
    expect(textOf(await first)).toBe('a done')
    await open(world, 'c')
    expect(await settled(server, id)).toMatchObject({ result: { content: [{ text: 'c done' }] } })
    expect(world.most).toBe(1)
  })

  it('M3 runs no effect after its hold has ended and another call may run', async () => {
    let at = 1_800_000_000_000
    const now = () => at
    const [world, store] = [newWorld(), createMemoryStore({ now })]
    const server = createServer({ name: 'shop', version: '1', keys, log: 'off', store, now })
    closing.push(() => server.close())
    const frozen: (() => void)[] = []
    server.tool('pay', { input, concurrency: byOrder }, async ({ name }, ctx) => {
      await ctx.confirm('sure', 'Sure?')
      await ctx.step('freeze', () =>
        name === 'a' ? new Promise<void>((resolve) => frozen.push(resolve)) : undefined,
      )
      await ctx.effect('pay', () => void world.order.push(`pay ${name}`))
      return 'paid'
    })
    const finish = async (name: string) => {
      const { result } = await call(server, 'pay', name)
      const { requestState } = result as { requestState: string }
      return call(server, 'pay', name, { requestState, inputResponses: accept })
    }
    const former = finish('a')

    await until('a is frozen', () => frozen[0])
    at += 60_000
    expect(textOf(await finish('b'))).toBe('paid')
    frozen[0]?.()
    expect((await former).error).toMatchObject({
      message: expect.stringContaining('no longer holds its permit'),
    })
    expect(world.order).toEqual(['pay b'])
  })

  it.each([
    ['checks its permit', 'permits.renew'],
    ['claims an effect with `once`', 'once.claim'],
  ])('M3 runs no effect if its process froze while it %s', async (_, place) => {
    let at = 1_800_000_000_000
    const now = () => at
    let isFrozen = false
    const freezes = <A extends unknown[], T>(name: string, ask: (...args: A) => Promise<T>) => {
      return async (...args: A): Promise<T> => {
        const reply = await ask(...args)
        if (isFrozen && name === place) at += 60_000
        return reply
      }
    }
    const store = createMemoryStore({ now })
    const { permits, once } = store
    const connected = {
      ...store,
      permits: permits && { ...permits, renew: freezes('permits.renew', permits.renew) },
      once: { ...once, claim: freezes('once.claim', once.claim) },
    }
    const server = createServer({ name: 'shop', version: '1', keys, log: 'off', store: connected, now })
    closing.push(() => server.close())
    let paid = 0
    server.tool('pay', { input, concurrency: byOrder }, async (_args, ctx) => {
      await ctx.confirm('sure', 'Sure?')
      await ctx.effect('pay', () => void paid++, { once: true })
      return 'paid'
    })
    const { requestState } = (await call(server, 'pay', 'a')).result as { requestState: string }
    const finish = () => call(server, 'pay', 'a', { requestState, inputResponses: accept })
    isFrozen = true
    expect((await finish()).error?.message).toContain('no longer holds its permit')
    expect(paid).toBe(0)
    isFrozen = false
    expect(textOf(await finish())).toBe('paid')
    expect(paid).toBe(1)
  })
})

const STORES: [string, () => Promise<() => Store>][] = [
  [
    'memory',
    async () => {
      const store = createMemoryStore()
      return () => store
    },
  ],
  [
    'SQLite',
    async () => {
      const database = await createSqliteDatabase()
      closing.push(() => database.close())
      return () => database.open()
    },
  ],
]

function describeTasks(connect: () => Promise<() => Store>): void {
  it('M3 run one at a time for each key, in their order, on two instances; other keys do not wait', async () => {
    const world = newWorld()
    const store = await connect()
    const terms: Terms = { task: 'always', concurrency: { key: ({ order }) => order } }
    const servers = [start(world, store(), terms), start(world, store(), terms)]
    const [one] = servers as [Server]
    const names = ['a', 'b', 'c', 'd', 'e']
    const ids: string[] = []
    for (const [i, name] of names.entries()) {
      ids.push(await begin(servers[i % 2] as Server, 'work', name))
      if (i === 0) await until('a works', () => world.gates.get('a'))
      else await until(`${name} is in the queue`, async () => await waiting(one, ids.at(-1) ?? ''))
    }
    const free = await begin(one, 'work', 'free', '8')
    await open(world, 'free')
    expect(await settled(one, free)).toMatchObject({ status: 'completed' })
    world.most = 0
    for (const name of names) await open(world, name)
    for (const id of ids) expect(await settled(one, id)).toMatchObject({ status: 'completed' })
    expect(world.order.filter((name) => name !== 'free')).toEqual(names)
    expect(world.most).toBeLessThanOrEqual(1)
  })

  it('M3 give way when the one before them is cancelled while it waits for an answer', async () => {
    const world = newWorld()
    const store = await connect()
    const server = start(world, store(), { task: 'always', concurrency: {} })
    const first = await begin(server, 'ask', 'a')
    expect(await settled(server, first)).toMatchObject({ status: 'input_required' })
    const second = await begin(server, 'ask', 'b', '8')
    await until('b is in the queue', () => waiting(server, second))
    await send(server, 'tasks/cancel', { taskId: first })
    expect(await follow(server, second, { sure: { confirm: true } })).toMatchObject({ status: 'completed' })
  })

  it('M3 are found instead of begun twice: the same call of the same caller returns the task that is open', async () => {
    const world = newWorld()
    const store = await connect()
    const terms: Terms = { task: 'always', dedupe: ({ order }) => order }
    const [one, two] = [start(world, store(), terms), start(world, store(), terms)]
    const id = await begin(one, 'work', 'a')
    expect(await begin(two, 'work', 'a')).toBe(id)
    const all = await Promise.all([begin(one, 'work', 'a'), begin(two, 'work', 'a')])
    expect(new Set(all)).toEqual(new Set([id]))
    expect(await begin(two, 'work', 'other', '8')).not.toBe(id)
    expect(await begin(two, 'work', 'bob', '7', 'bob')).not.toBe(id)
    await open(world, 'a')
    expect(await settled(two, id)).toMatchObject({ status: 'completed' })
    world.gates.delete('a')
    const next = await begin(one, 'work', 'a')
    expect(next).not.toBe(id)
    for (const name of ['other', 'bob', 'a']) await open(world, name)
    expect(world.order.filter((name) => name === 'a')).toHaveLength(2)
  })
}

describe.each(STORES)('tasks in %s', (_name, connect) => describeTasks(connect))

describePostgres('tasks in PostgreSQL', () => {
  let server: TestPostgres
  beforeAll(async () => {
    server = await startPostgres({ fsync: false })
  })
  afterAll(() => server.stop())

  describeTasks(async () => {
    const database = createPostgresDatabase(server)
    closing.push(() => database.close())
    return () => database.open()
  })
})

it('M3 anonymous callers never get the tasks of each other, whatever they call', async () => {
  const world = newWorld()
  const terms: Terms = { task: 'always', dedupe: ({ order }) => order }
  const server = start(world, createMemoryStore(), terms, { authenticate: undefined })
  const ids = [await begin(server, 'work', 'a'), await begin(server, 'work', 'b')]
  expect(new Set(ids).size).toBe(2)
  for (const name of ['a', 'b']) await open(world, name)
})

it('M3 a call that is refused before it begins leaves no permit behind', async () => {
  const world = newWorld()
  const server = start(world, createMemoryStore(), { task: 'always', concurrency: byOrder })
  expect((await call(server, 'work', 'a')).error?.message).toContain('runs only as a task')
  const id = await begin(server, 'work', 'b')
  await open(world, 'b')
  expect(await settled(server, id)).toMatchObject({ status: 'completed' })
})

it('M3 a call whose task is refused does not keep its caller from the same call later', async () => {
  const world = newWorld()
  const terms: Terms = { task: 'always', dedupe: ({ order }) => order }
  const server = start(world, createMemoryStore(), terms, { tasks: { maxOpen: 1 } })
  const first = await begin(server, 'work', 'a', '1')
  const full = await send(server, 'tools/call', { name: 'work', arguments: { order: '2', name: 'b' } })
  expect(full.error?.message).toContain('Too many tasks are open')
  await open(world, 'a')
  await settled(server, first)
  const second = await begin(server, 'work', 'b', '2')
  await open(world, 'b')
  expect(await settled(server, second)).toMatchObject({ status: 'completed' })
})

it('M3 tools do not share their limits, even if their keys are the same', async () => {
  const world = newWorld()
  const server = start(world, createMemoryStore(), { concurrency: byOrder })
  const working = call(server, 'work', 'a')
  await until('the work runs', async () => world.gates.has('a'))
  expect((await call(server, 'ask', 'b')).result?.resultType).toBe('input_required')
  expect(JSON.stringify(await call(server, 'work', 'c'))).toContain('as many calls as it allows')
  world.gates.get('a')?.()
  await working
})

it('M3 a task that has lost its permit records no result', async () => {
  const store = createMemoryStore()
  const server = createServer({ name: 'shop', version: '1', keys, log: 'off', store })
  closing.push(() => server.close())
  const seen: unknown[] = []
  server.tool('work', { task: 'always', concurrency: {} }, async (_args, ctx) => {
    await ctx.step('work', () => {
      seen.push('step')
      return store.permits?.release(ctx.flow)
    })
    seen.push('result')
    return 'done'
  })
  const { result } = await send(server, 'tools/call', { name: 'work', arguments: {} })
  const id = String(result?.taskId)
  const stored = async () => (await store.tasks.list({ id }))[0]
  await until('the task is released', async () => {
    const task = await stored()
    return seen.length > 0 && task?.worker === undefined
  })
  expect(await stored()).toMatchObject({ status: 'working', entries: 0 })
  expect(seen).toEqual(['step'])
})

it('M3 keys are told apart whatever their text is', async () => {
  const odd = ['__proto__', 'constructor', '', ' ', 'a\u0000b', 'x'.repeat(1_000_000)]
  const server = start(newWorld(), createMemoryStore(), { concurrency: byOrder })
  for (const order of odd) {
    const more = { arguments: { order, name: 'a' } }
    expect((await call(server, 'ask', 'a', more)).result).toMatchObject({ resultType: 'input_required' })
    expect((await call(server, 'ask', 'a', more)).error?.message).toContain('as many calls as it allows')
  }
})

it('M3 a release that lowers the limit admits nobody before enough calls have ended', async () => {
  const [world, store] = [newWorld(), createMemoryStore()]
  const former = start(world, store, { concurrency: { limit: 2, otherwise: 'refuse' } })
  const next = start(world, store, { concurrency: { limit: 1, otherwise: 'refuse' } })
  const states: string[] = []
  for (const name of ['a', 'b']) states.push(String((await call(former, 'ask', name)).result?.requestState))
  for (const [i, name] of ['a', 'b'].entries()) {
    expect((await call(next, 'ask', 'c')).error?.message).toContain('as many calls as it allows')
    const requestState = states[i]
    expect(textOf(await call(next, 'ask', name, { requestState, inputResponses: accept }))).toBe(
      `${name} true`,
    )
  }
  expect((await call(next, 'ask', 'c')).result).toMatchObject({ resultType: 'input_required' })
})

const SKEWS = [0, 3 * 60_000, -3 * 60_000, 40 * 86_400_000]

it('M3 E9 holds one task of a key at a time, in the order in which they came, on instances whose clocks disagree', async () => {
  const asked: string[] = []
  const step = fc.oneof(
    fc.record({ kind: fc.constant('begin' as const), at: fc.nat(3), order: fc.constantFrom('7', '8') }),
    fc.record({ kind: fc.constant('answer' as const), at: fc.nat(3), order: fc.constantFrom('7', '8') }),
    fc.record({ kind: fc.constant('pass' as const), ms: fc.constantFrom(1_000, 90_000, 3_600_000) }),
  )
  const check = async (steps: readonly (typeof step extends fc.Arbitrary<infer T> ? T : never)[]) => {
    let time = Date.now()
    const store = createMemoryStore({ now: () => time })
    const terms: Terms = { task: 'always', concurrency: { key: ({ order }) => order } }
    const servers = SKEWS.map((skew) => start(newWorld(), store, terms, { now: () => time + skew }))
    const open: Record<string, string[]> = { 7: [], 8: [] }
    const statusOf = async (id: string) =>
      (await send(servers[0] as Server, 'tasks/get', { taskId: id })).result?.status
    /** The first of each key is asked, and nobody else is. */
    const settle = async () => {
      for (const [first, ...others] of Object.values(open)) {
        if (first === undefined) continue
        await until(`${first} is asked`, async () => (await statusOf(first)) === 'input_required')
        for (const id of others) await until(`${id} waits`, () => waiting(servers[0] as Server, id))
        asked.push(first)
      }
    }
    for (const one of steps) {
      if (one.kind === 'pass') time += one.ms
      else if (one.kind === 'begin') {
        const id = await begin(servers[one.at] as Server, 'ask', String(asked.length), one.order)
        open[one.order]?.push(id)
      } else {
        const id = open[one.order]?.shift()
        if (id === undefined) continue
        await send(servers[one.at] as Server, 'tasks/update', { taskId: id, inputResponses: accept })
        await until(`${id} ends`, async () => (await statusOf(id)) === 'completed')
      }
      await settle()
    }
    await Promise.all(servers.map((server) => server.close()))
  }
  await fc.assert(fc.asyncProperty(fc.array(step, { minLength: 4, maxLength: 10 }), check), {
    numRuns: 12,
    seed: 7,
    examples: [
      [
        [
          { kind: 'begin', at: 3, order: '7' },
          { kind: 'pass', ms: 3_600_000 },
          { kind: 'begin', at: 2, order: '7' },
          { kind: 'answer', at: 1, order: '7' },
        ],
      ],
    ],
  })
  expect(asked.length).toBeGreaterThan(12)
})

/** Whether the task says that it waits for others. */
const waiting = async (server: Server, taskId: string): Promise<boolean> =>
  (await send(server, 'tasks/get', { taskId })).result?.statusMessage === 'Waiting for other calls to end'

describe('a definition', () => {
  const declare = (terms: object, store: Store | undefined = createMemoryStore()) => {
    const server = createServer({ name: 'shop', version: '1', keys, log: 'off', store })
    server.tool('work', terms as ToolDefinition, () => 'done')
    return server
  }

  it.each([
    [{ concurrency: { limit: 0 } }, 'limit'],
    [{ concurrency: { limit: 1.5 } }, 'whole number'],
    [{ concurrency: { otherwise: 'wait' } }, "'queue' or 'refuse'"],
    [{ concurrency: { whileWaiting: true } }, "'hold' or 'release'"],
    [{ concurrency: { key: 'order' } }, 'must be a function'],
    [{ concurrency: { keys: () => '' } }, 'has no option "keys"'],
    [{ dedupe: 'order' }, 'dedupe'],
  ])('is refused with a sentence for %j', (terms, message) => {
    expect(() => declare(terms)).toThrow(message)
  })

  it('needs a store, and one that has permits', () => {
    const { permits: _permits, ...without } = createMemoryStore()
    expect(() => declare({ concurrency: {} }, without)).toThrow('needs a store with permits')
    const server = createServer({ name: 'shop', version: '1', keys, log: 'off' })
    expect(() => server.tool('work', { dedupe: () => '' }, () => 'done')).toThrow(
      'has dedupe, which needs a store',
    )
  })

  it('R11 whose key throws or is no text runs nothing and ends the call', async () => {
    for (const key of [
      () => 7,
      () => {
        throw new Error('CANARY')
      },
    ]) {
      const server = declare({ concurrency: { key } })
      closing.push(() => server.close())
      const reply = await send(server, 'tools/call', { name: 'work' }, { capabilities: {} })
      expect(JSON.stringify(reply)).not.toContain('CANARY')
      expect(reply.error ?? reply.result?.isError).toBeTruthy()
    }
  })
})
