/** Events from outside and time on an official server: `ctx.hook`, `rondo.deliver`, sleeps after a restart (G1, G3). */

import { inspect } from 'node:util'
import { createMcpHandler, McpServer } from '@modelcontextprotocol/server'
import { createRondo, EventExpired, EventRejected, type Rondo, type RondoOptions } from 'rondo/sdk'
import { afterEach, expect, it } from 'vitest'
import { z } from 'zod'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import type { Store } from '../../packages/rondo/src/store/store.ts'
import { until } from '../support/store/store-harness.ts'
import { send, settled } from '../support/task-client.ts'

const KEYS = 'k:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE='
const open: Rondo[] = []
afterEach(async () => {
  await Promise.all(open.splice(0).map((rondo) => rondo.close()))
})

const text = (value: string) => ({ content: [{ type: 'text' as const, text: value }] })

/** An official server whose orders wait for a payment; `ids` are the hooks that it handed out. */
function shop(store: Store | undefined, ids: string[], options: Partial<RondoOptions> = {}) {
  const rondo = createRondo({ audience: 'shop', keys: KEYS, log: 'off', store, ...options })
  open.push(rondo)
  const terms = store ? { task: 'auto' as const } : {}
  const order = rondo.tool(async (_args, ctx) => {
    const schema = z.object({ cents: z.int().refine((cents) => cents % 10 === 0, 'must be whole tens') })
    const payment = await ctx.hook('payment', { schema, within: '1 hour' })
    await ctx.step('hand out', () => void ids.push(payment.id))
    return payment.received().then(
      ({ cents }) => text(`paid ${cents}`),
      (error: unknown) => {
        if (error instanceof EventExpired) return text('nobody paid')
        if (error instanceof EventRejected) return text(`refused: ${error.problem}`)
        throw error
      },
    )
  }, terms)
  const rest = rondo.tool(async (_args, ctx) => {
    await ctx.sleep('pause', 30)
    return text('awake')
  }, terms)
  const build = () => {
    const server = new McpServer({ name: 'shop', version: '1.0.0' })
    if (store) rondo.tasks(server)
    else rondo.mount(server)
    server.registerTool('order', {}, order)
    server.registerTool('rest', {}, rest)
    return server
  }
  return { rondo, build, ...createMcpHandler(build) }
}

const begin = async (server: ReturnType<typeof shop>, name: string) => {
  const { result } = await send(server, 'tools/call', { name, arguments: {} })
  expect(result).toMatchObject({ resultType: 'task' })
  return String(result?.taskId)
}

it('G3 the mount gives a task its event, once, by way of another instance', async () => {
  const store = createMemoryStore()
  const ids: string[] = []
  const server = shop(store, ids)
  const taskId = await begin(server, 'order')
  const id = await until('the hook', () => ids[0])
  const { rondo: other } = shop(store, [])
  expect(await other.deliver(id, { cents: 'many' })).toMatchObject({ kind: 'rejected' })
  expect(await other.deliver(id, { cents: 50 })).toEqual({ kind: 'accepted' })
  expect(await other.deliver(id, { cents: 60 })).toEqual({ kind: 'duplicate' })
  expect(await settled(server, taskId)).toMatchObject({ status: 'completed', result: text('paid 50') })
  expect(await other.deliver(id, { cents: 70 })).toEqual({ kind: 'closed' })
})

it('G3 the handler learns what only its own schema finds wrong', async () => {
  const ids: string[] = []
  const server = shop(createMemoryStore(), ids)
  const taskId = await begin(server, 'order')
  const id = await until('the hook', () => ids[0])
  expect(await server.rondo.deliver(id, { cents: 55 })).toEqual({ kind: 'accepted' })
  expect(await settled(server, taskId)).toMatchObject({
    result: text('refused: cents: must be whole tens'),
  })
})

it.each([
  ['another service', { audience: 'other' }],
  ['other keys', { keys: 'k:YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXoxMjM0NTY=' }],
])('G3 T17 the mount knows no hook of %s', async (_, options) => {
  const store = createMemoryStore()
  const ids: string[] = []
  const taskId = await begin(shop(store, ids), 'order')
  const id = await until('the hook', () => ids[0])
  const { rondo: other } = shop(store, [], options)
  for (const given of [id, taskId, '', 'h.made-up']) {
    expect(await other.deliver(given, { cents: 50 })).toEqual({ kind: 'unknown' })
  }
})

it('G3 an error says what is missing: a store for deliver, and a task for ctx.hook', async () => {
  const events: unknown[] = []
  const server = shop(undefined, [], { log: (event) => void events.push(event) })
  await expect(server.rondo.deliver('h.x', {})).rejects.toThrow(/needs a store/)
  const reply = await send(server, 'tools/call', { name: 'order', arguments: {} })
  expect(reply.error).toMatchObject({ message: expect.stringContaining('needs a task') })
  expect(inspect(events, { depth: 5 })).toMatch(/Only a task can wait for the hook "payment"/)
})

it('G1 the mount wakes a task after a restart as soon as the program is ready, although no request came', async () => {
  const store = createMemoryStore()
  const before = shop(store, [], { tasks: { concurrency: 0 } })
  const taskId = await begin(before, 'rest')
  const after = shop(store, [])
  after.build()
  await after.rondo.ready()
  // Asks the instance that runs no tasks, so that the request does not start the other one.
  expect(await settled(before, taskId)).toMatchObject({ status: 'completed', result: text('awake') })
})

it('G3 the mount refuses an event and keeps the hook open, and shows a page what the hook is about', async () => {
  const store = createMemoryStore()
  const ids: string[] = []
  const mounted = () => {
    const rondo = createRondo({ audience: 'shop', keys: KEYS, log: 'off', store })
    open.push(rondo)
    const visit = rondo.tool(
      async (_args, ctx) => {
        const hook = await ctx.hook('visit', { about: { who: 'ann' } })
        await ctx.step('hand out', () => void ids.push(hook.id))
        return text(String(await hook.received()))
      },
      {
        task: 'auto',
        accept: { visit: (who, { about }) => who === (about as { who: string }).who || 'not you' },
      },
    )
    const build = () => {
      const server = rondo.tasks(new McpServer({ name: 'shop', version: '1.0.0' }))
      server.registerTool('visit', {}, visit)
      return server
    }
    return { rondo, build, ...createMcpHandler(build) }
  }
  const [server, other] = [mounted(), mounted()]
  const taskId = await begin(server, 'visit')
  const id = await until('the hook', () => ids[0])
  expect(await other.rondo.hook(id)).toEqual({ kind: 'open', about: { who: 'ann' } })
  // Not registered there yet, so nobody can check the event.
  await expect(other.rondo.deliver(id, 'ann')).rejects.toMatchObject({ code: 'SERVER_INTERNAL' })
  other.build()
  expect(await other.rondo.deliver(id, 'eve')).toEqual({ kind: 'rejected', problem: 'not you' })
  expect(await other.rondo.deliver(id, 'ann')).toEqual({ kind: 'accepted' })
  expect(await settled(server, taskId)).toMatchObject({ result: text('ann') })
})
