/**
 * A reply that creates a task gets lost, and its client calls again. In a first request (R6) there are two tasks, and the client
 * knows one of them. In every dialect the other one runs its steps and asks its questions, but runs no effect. After rounds the
 * flow is known, and there is one task (I5).
 */

import { createMcpHandler, McpServer } from '@modelcontextprotocol/server'
import { type Context, createServer, inputRequired, type Server, type ServerOptions } from 'rondo'
import { createRondo } from 'rondo/sdk'
import { afterEach, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import type { Store } from '../../packages/rondo/src/store/store.ts'
import { connectOlder } from '../support/older-client.ts'
import { createSqliteDatabase } from '../support/store/sqlite-database.ts'
import { type Database, until } from '../support/store/store-harness.ts'
import { follow, send, settled } from '../support/task-client.ts'

const keys = 'k:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE='
const closing: (() => Promise<unknown>)[] = []
afterEach(async () => {
  await Promise.all(closing.splice(0).map((close) => close()))
})

const one = (store: Store) => () => store

/** The systems outside, and the changes that were made there. */
interface World {
  /** The keys under which something was paid. */
  readonly paid: Set<string>
  steps: number
}

interface Work {
  step(key: string, fn: () => unknown): Promise<unknown>
  effect(key: string, fn: (given: { key: string }) => unknown): Promise<unknown>
}

async function pay(world: World, ctx: Work): Promise<string> {
  await ctx.step('look up', () => {
    world.steps++
  })
  await ctx.effect('pay', ({ key }) => void world.paid.add(key))
  return 'paid'
}

function start(world: World, store: Store, options: Partial<ServerOptions> = {}): Server {
  const server = createServer({ name: 'shop', version: '1', keys, log: 'off', store, ...options })
  server.tool('pay', { task: 'auto' }, (_args, ctx) => pay(world, ctx))
  server.tool('ask', { task: 'auto' }, async (_args, ctx) => {
    if (!(await ctx.confirm('sure', 'Pay?'))) return 'kept'
    return pay(world, ctx)
  })
  server.tool('late', {}, async (_args, ctx) => {
    await ctx.confirm('sure', 'Pay?')
    await ctx.background()
    return pay(world, ctx)
  })
  closing.push(() => server.close())
  return server
}

interface Caller {
  /** Calls the tool, and returns the id of its task. */
  create(): Promise<string>
  /** Follows the task to its end. */
  finish(id: string): Promise<string>
}

const current: (server: Pick<Server, 'fetch'>) => Caller = (server) => ({
  create: async () => String((await send(server, 'tools/call', { name: 'pay' })).result?.taskId),
  finish: async (id) => JSON.stringify((await settled(server, id)).result),
})

async function older(server: Server, version: string): Promise<Caller> {
  const client = await connectOlder(
    'http://127.0.0.1/mcp',
    { version, capabilities: { elicitation: {} } },
    async (request) => server.fetch(request),
  )
  return {
    async create() {
      const { result } = await client.call('tools/call', { name: 'pay', task: { ttl: 60_000 } })
      return (result as { task: { taskId: string } }).task.taskId
    },
    finish: async (taskId) => JSON.stringify((await client.call('tasks/result', { taskId })).result),
  }
}

function mounted(world: World, store: Store): Caller {
  const rondo = createRondo({ audience: 'shop', keys, log: 'off', store })
  closing.push(() => rondo.close())
  const tool = rondo.tool(
    async (_args, ctx) => ({ content: [{ type: 'text' as const, text: await pay(world, ctx) }] }),
    { task: 'auto' },
  )
  const server = createMcpHandler(() => {
    const official = rondo.tasks(new McpServer({ name: 'shop', version: '1' }))
    official.registerTool('pay', {}, tool)
    return official
  })
  return current(server)
}

const dialects: readonly [string, (world: World, store: Store) => Caller | Promise<Caller>][] = [
  ['2026-07-28', (world, store) => current(start(world, store))],
  ['2025-11-25', (world, store) => older(start(world, store), '2025-11-25')],
  ['DRAFT-2026-v1', (world, store) => older(start(world, store), 'DRAFT-2026-v1')],
  ['an official server', mounted],
]

/** A store in which every task counts as known to its owner. */
function trusting(): Store {
  const store = createMemoryStore()
  const create: Store['tasks']['create'] = (task, ...rest) =>
    store.tasks.create({ ...task, known: true }, ...rest)
  return { ...store, tasks: { ...store.tasks, create } }
}

/** Calls, loses the reply, calls again and follows; returns the task that nobody knows. */
async function loseOne(caller: Caller, store: Store): Promise<string> {
  const lost = await caller.create()
  await until(
    'the lost task to rest',
    async () => (await store.tasks.list({ id: lost }))[0]?.worker === undefined,
  )
  expect(await caller.finish(await caller.create())).toContain('paid')
  return lost
}

describe.each(dialects)('a lost response to the request that creates a task: %s', (_name, connect) => {
  it('I5 R6 pays once: a task whose id nobody knows runs no effect', async () => {
    const world: World = { paid: new Set(), steps: 0 }
    const store = createMemoryStore()
    const caller = await connect(world, store)
    const lost = await loseOne(caller, store)
    expect(world.steps).toBe(2)
    expect(world.paid.size).toBe(1)
    expect(await store.tasks.list({ id: lost })).toMatchObject([{ status: 'working', dueAt: undefined }])
    // It is not lost: it continues when its owner names it.
    expect(await caller.finish(lost)).toContain('paid')
    expect(world.paid.size).toBe(2)
  })

  it('control: pays twice if tasks count as known', async () => {
    const world: World = { paid: new Set(), steps: 0 }
    const store = trusting()
    await loseOne(await connect(world, store), store)
    await until('the second payment', () => world.paid.size === 2)
  })
})

describe('a task', () => {
  const yes = { sure: { action: 'accept', content: { confirm: true } } }

  it('R6 asks before its owner has named it; the answer names it', async () => {
    const world: World = { paid: new Set(), steps: 0 }
    const store = createMemoryStore()
    const server = start(world, store)
    const create = async () => String((await send(server, 'tools/call', { name: 'ask' })).result?.taskId)
    const [lost, id] = [await create(), await create()]
    await until(
      'both questions',
      async () => (await store.tasks.list({ status: 'input_required' })).length === 2,
    )
    expect(await follow(server, id, { sure: { confirm: true } })).toMatchObject({ status: 'completed' })
    expect(world.paid.size).toBe(1)
    expect(await store.tasks.list({ id: lost })).toMatchObject([{ status: 'input_required' }])
  })

  const databases: readonly [string, () => Promise<Pick<Database, 'open' | 'close'>>][] = [
    ['memory', async () => ({ open: one(createMemoryStore()), close: async () => {} })],
    ['SQLite', createSqliteDatabase],
  ]

  it.each(databases)(
    'I5 of a call that arrived with a requestState is one, however often it is sent: %s',
    async (_name, create) => {
      const world: World = { paid: new Set(), steps: 0 }
      const database = await create()
      const [server, other] = [start(world, database.open()), start(world, database.open())]
      const { requestState } = (await send(server, 'tools/call', { name: 'late' })).result ?? {}
      const again = { name: 'late', requestState, inputResponses: yes }
      const first = await Promise.all([server, other].map((one) => send(one, 'tools/call', again)))
      const id = String(first[0]?.result?.taskId)
      await settled(server, id)
      const last = await send(other, 'tools/call', again)
      expect(new Set([...first, last].map(({ result }) => result?.taskId))).toEqual(new Set([id]))
      expect(last).toMatchObject({ result: { status: 'completed' } })
      expect(world).toMatchObject({ steps: 1, paid: { size: 1 } })
      await Promise.all(closing.splice(0).map((close) => close()))
      await database.close()
    },
  )

  it('I4 of another branch of the same state is another task', async () => {
    const world: World = { paid: new Set(), steps: 0 }
    const server = start(world, createMemoryStore())
    const { requestState } = (await send(server, 'tools/call', { name: 'late' })).result ?? {}
    const no = { sure: { action: 'decline' } }
    const ids: unknown[] = []
    for (const inputResponses of [yes, no, { sure: { action: 'accept', content: { confirm: false } } }]) {
      const { result } = await send(server, 'tools/call', { name: 'late', requestState, inputResponses })
      ids.push(result?.taskId)
      await settled(server, String(result?.taskId))
    }
    expect(new Set(ids).size).toBe(3)
    expect(world.paid.size).toBe(3)
  })

  describe('the effect key after two questions', () => {
    const word = z.object({ value: z.string() })
    const said = (value: string) => ({ action: 'accept', content: { value } })

    /** Each begins a task when `a` and `b` are answered. The step returns something else each time it runs. */
    const HANDLERS: Readonly<Record<string, (ctx: Context, looked: () => number) => Promise<unknown>>> = {
      async asked(ctx, looked) {
        const { value } = await ctx.ask('a', { message: 'A?', schema: word })
        await ctx.step('look', looked)
        await ctx.ask('b', { message: 'B?', schema: word })
        await ctx.background()
        return value
      },
      async manual(ctx) {
        const { inputResponses, requestState } = ctx
        if (requestState !== undefined) {
          await ctx.background()
          return requestState
        }
        const ask = (key: string, state?: string) => {
          const requestedSchema = { type: 'object', properties: { value: { type: 'string' } } } as const
          const params = { mode: 'form', message: `${key}?`, requestedSchema } as const
          return inputRequired({
            inputRequests: { [key]: { method: 'elicitation/create', params } },
            requestState: state,
          })
        }
        const first = inputResponses?.a as { content: { value: string } } | undefined
        return first === undefined ? ask('a') : ask('b', first.content.value)
      },
    }

    /** Returns a function that answers `a` and then `b`, and returns the id and the result of the task. */
    async function open(name: string) {
      let runs = 0
      const server = createServer({
        name: 'shop',
        version: '1',
        keys,
        log: 'off',
        store: createMemoryStore(),
      })
      closing.push(() => server.close())
      server.tool(name, {}, async (_args, ctx) => (await HANDLERS[name]?.(ctx, () => ++runs)) as string)
      const call = async (more: object) => (await send(server, 'tools/call', { name, ...more })).result
      const { requestState: asksA } = (await call({})) ?? {}
      return async (a: string): Promise<[id: string, text: string]> => {
        const { requestState } = (await call({ requestState: asksA, inputResponses: { a: said(a) } })) ?? {}
        const id = String((await call({ requestState, inputResponses: { b: said('same') } }))?.taskId)
        return [id, JSON.stringify((await settled(server, id)).result)]
      }
    }

    it.each(Object.keys(HANDLERS))('I4 differs if only the first answer differs: %s', async (name) => {
      const answer = await open(name)
      const [[one, first], [two, second]] = [await answer('first'), await answer('second')]
      expect(one).not.toBe(two)
      expect([first, second]).toEqual([expect.stringContaining('first'), expect.stringContaining('second')])
    })

    it.each(Object.keys(HANDLERS))('I5 R7 stays the same if only a step result differs: %s', async (name) => {
      const answer = await open(name)
      expect((await answer('same'))[0]).toBe((await answer('same'))[0])
    })

    it('I4 N4 differs by an answer that the rounds did not reach, and does not ask for it again', async () => {
      const store = createMemoryStore()
      let release = 1
      const server = createServer({ name: 'shop', version: '1', keys, log: 'off', store })
      closing.push(() => server.close())
      server.tool('pay', {}, async (_args, ctx) => {
        if (release === 2) {
          await ctx.ask('a', { message: 'A?', schema: word })
          await ctx.background()
        }
        return (await ctx.confirm('sure', 'Pay?')) ? 'paid' : 'kept'
      })
      const call = async (more: object) => (await send(server, 'tools/call', { name: 'pay', ...more })).result
      const { requestState: asksSure } = (await call({})) ?? {}
      release = 2
      const ends: string[] = []
      const ids = new Set<unknown>()
      for (const inputResponses of [yes, { sure: { action: 'decline' } }]) {
        const { requestState } = (await call({ requestState: asksSure, inputResponses })) ?? {}
        const { taskId } = (await call({ requestState, inputResponses: { a: said('same') } })) ?? {}
        ids.add(taskId)
        ends.push(JSON.stringify(await settled(server, String(taskId))))
      }
      expect(ends).toEqual([expect.stringContaining('paid'), expect.stringContaining('kept')])
      expect(ids.size).toBe(2)
    })
  })

  it('I5 that has expired is not begun again', async () => {
    const clock = { now: Date.now() }
    const world: World = { paid: new Set(), steps: 0 }
    const store = createMemoryStore({ now: () => clock.now })
    const server = start(world, store, { now: () => clock.now, tasks: { ttlMs: 60_000 } })
    const { requestState } = (await send(server, 'tools/call', { name: 'late' })).result ?? {}
    const again = { name: 'late', requestState, inputResponses: yes }
    await settled(server, String((await send(server, 'tools/call', again)).result?.taskId))
    clock.now += 60_000
    expect(await send(server, 'tools/call', again)).toMatchObject({ error: { message: 'Task not found' } })
    expect(world).toMatchObject({ steps: 1, paid: { size: 1 } })
  })
})
