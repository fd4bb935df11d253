/** Events from outside: hooks of tasks, and what `server.deliver` says to whoever reports an event (G3). */

import {
  createServer,
  EventRejected,
  generateKey,
  type LogEvent,
  type Server,
  type ServerOptions,
  type ToolDefinition,
} from 'rondo'
import { afterEach, describe, expect, it, vi } from 'vitest'
import { z } from 'zod'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import type { Store } from '../../packages/rondo/src/store/store.ts'
import { createSqliteDatabase } from '../support/store/sqlite-database.ts'
import { until } from '../support/store/store-harness.ts'
import { follow, send, settled } from '../support/task-client.ts'

const keys = 'k:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE='
const Payment = z.object({ amount: z.int().min(1), currency: z.string().default('EUR') })
const servers: Server[] = []
let log: LogEvent[] = []
afterEach(async () => {
  await Promise.all(servers.splice(0).map((server) => server.close()))
  log = []
})

interface Shop {
  /** The ids that the handlers handed out, in order. */
  readonly ids: string[]
  readonly runs: string[]
}

function start(shop: Shop, options: Partial<ServerOptions> = {}): Server {
  const server = createServer({
    name: 'shop',
    version: '1',
    keys,
    dev: true,
    log: (event) => void log.push(event),
    store: createMemoryStore(),
    ...options,
  })
  server.tool('buy', { task: 'auto' }, async (_args, ctx) => {
    const payment = await ctx.hook('payment', { schema: Payment })
    await ctx.step('hand out', () => void shop.ids.push(payment.id))
    const { amount, currency } = await payment.received()
    await ctx.step('ship', () => void shop.runs.push(`ship ${amount} ${currency}`))
    return `${amount} ${currency} ${payment.id === shop.ids[0]}`
  })
  server.tool('any', { task: 'auto' }, async (_args, ctx) => {
    const hook = await ctx.hook('any')
    await ctx.step('hand out', () => void shop.ids.push(hook.id))
    return JSON.stringify(await hook.received())
  })
  server.tool('strict', { task: 'auto' }, async (_args, ctx) => {
    const schema = z.object({ code: z.string() }).refine(({ code }) => code === 'right', 'wrong code')
    const hook = await ctx.hook('code', { schema })
    await ctx.step('hand out', () => void shop.ids.push(hook.id))
    try {
      return (await hook.received()).code
    } catch (error) {
      return error instanceof EventRejected ? `refused: ${error.problem}` : 'another error'
    }
  })
  server.tool('both', { task: 'auto' }, async (_args, ctx) => {
    const hook = await ctx.hook('event')
    await ctx.step('hand out', () => void shop.ids.push(hook.id))
    const schema = { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] } as const
    const [answer, event] = await Promise.all([
      ctx.ask('name', { message: 'Who?', schema }),
      hook.received().then((value) => {
        shop.runs.push('event')
        return value
      }),
    ])
    return JSON.stringify([answer, event])
  })
  server.tool('slow', { task: 'auto' }, async (_args, ctx) => {
    const hook = await ctx.hook('early')
    await ctx.step('hand out', () => void shop.ids.push(hook.id))
    await ctx.step('long', () => until('the release', () => shop.runs.includes('release')).then(() => 'done'))
    return JSON.stringify(await hook.received())
  })
  servers.push(server)
  return server
}

const newShop = (): Shop => ({ ids: [], runs: [] })

async function begin(server: Server, name: string): Promise<string> {
  const { result } = await send(server, 'tools/call', { name, arguments: {} })
  expect(result).toMatchObject({ resultType: 'task' })
  return String(result?.taskId)
}

const handedOut = (shop: Shop): Promise<string> => until('the id of the hook', () => shop.ids[0])
const textOf = (ended: Record<string, unknown>): unknown =>
  (ended.result as { content: { text: string }[] }).content[0]?.text

/** Waits until no turn of the task runs. */
async function parked(store: Store): Promise<void> {
  await until('a parked task', async () => (await store.tasks.stats()).parked === 1)
}

describe('an event from outside', () => {
  it('G3 continues the waiting task once; a second delivery is reported as a duplicate', async () => {
    const store = createMemoryStore()
    const shop = newShop()
    const server = start(shop, { store })
    const id = await begin(server, 'buy')
    const hook = await handedOut(shop)
    await parked(store)
    expect(await server.deliver(hook, { amount: 5 })).toEqual({ kind: 'accepted' })
    const second = await server.deliver(hook, { amount: 9 })
    expect(['duplicate', 'closed']).toContain(second.kind)
    expect(textOf(await settled(server, id))).toBe('5 EUR true')
    expect(shop.runs).toEqual(['ship 5 EUR'])
    expect(await server.deliver(hook, { amount: 9 })).toEqual({ kind: 'closed' })
  })

  it('G3 is taken by a turn that runs, and by the turn that comes after it', async () => {
    const shop = newShop()
    const server = start(shop)
    const id = await begin(server, 'slow')
    const hook = await handedOut(shop)
    // The step still runs: the handler does not wait for the event yet.
    expect(await server.deliver(hook, 1)).toEqual({ kind: 'accepted' })
    expect(await server.deliver(hook, 2)).toEqual({ kind: 'duplicate' })
    shop.runs.push('release')
    expect(textOf(await settled(server, id))).toBe('1')
  })

  it('G3 is accepted on any instance that shares the store and the keys, and after a restart', async () => {
    const database = await createSqliteDatabase()
    const shop = newShop()
    const first = start(shop, { store: database.open() })
    const id = await begin(first, 'buy')
    const hook = await handedOut(shop)
    await first.close()
    const front = start(shop, { store: database.open(), tasks: { concurrency: 0 } })
    expect(await front.deliver(hook, { amount: 7, currency: 'USD' })).toEqual({ kind: 'accepted' })
    expect(shop.runs).toEqual([])
    const third = start(shop, { store: database.open() })
    expect(textOf(await settled(third, id))).toBe('7 USD true')
    await Promise.all(servers.splice(0).map((server) => server.close()))
    await database.close()
  })

  it('G3 reaches a hook whose handler also asks, in either order, and the question stays open', async () => {
    const store = createMemoryStore()
    const shop = newShop()
    const server = start(shop, { store })
    const id = await begin(server, 'both')
    const hook = await handedOut(shop)
    const asked = await settled(server, id)
    expect(Object.keys(asked.inputRequests as object)).toEqual(['name'])
    expect(await server.deliver(hook, 'event')).toEqual({ kind: 'accepted' })
    await until('the event', () => shop.runs.includes('event'))
    await parked(store)
    const still = await settled(server, id)
    expect(still.inputRequests).toEqual(asked.inputRequests)
    expect(textOf(await follow(server, id, { name: { name: 'Ann' } }))).toBe('[{"name":"Ann"},"event"]')
  })

  it('G3 never comes from a client: a hook is in no reply, and no message of a client answers it', async () => {
    const store = createMemoryStore()
    const shop = newShop()
    const server = start(shop, { store })
    const id = await begin(server, 'any')
    await handedOut(shop)
    await parked(store)
    const { result } = await send(server, 'tasks/get', { taskId: id })
    expect(result).toMatchObject({ status: 'working' })
    expect(result).not.toHaveProperty('inputRequests')
    expect(JSON.stringify(result)).not.toContain(shop.ids[0])
    for (const key of ['any', 'any.received', 'hook any', 'event any']) {
      const inputResponses = { [key]: { action: 'accept', content: { forged: true } } }
      await send(server, 'tasks/update', { taskId: id, inputResponses })
    }
    expect((await send(server, 'tasks/get', { taskId: id })).result).toMatchObject({ status: 'working' })
    expect(await server.deliver(shop.ids[0] ?? '', 'real')).toEqual({ kind: 'accepted' })
    expect(textOf(await settled(server, id))).toBe('"real"')
  })

  it('G3 that does not fit is refused on delivery, and the hook stays open', async () => {
    const shop = newShop()
    const server = start(shop)
    const id = await begin(server, 'buy')
    const hook = await handedOut(shop)
    const wrong = await server.deliver(hook, { amount: 0 })
    expect(wrong).toMatchObject({ kind: 'rejected', problem: expect.stringContaining('amount') })
    for (const event of [undefined, Number.NaN, new Date(), () => 1, { at: new Map() }])
      expect(await server.deliver(hook, event)).toMatchObject({ kind: 'rejected', problem: /plain JSON/ })
    const long = { amount: 1, currency: 'x'.repeat(2_000_000) }
    expect(await server.deliver(hook, long)).toMatchObject({ kind: 'rejected' })
    expect(await server.deliver(hook, { amount: 3 })).toEqual({ kind: 'accepted' })
    expect(textOf(await settled(server, id))).toBe('3 EUR true')
  })

  it('G3 that only the schema itself refuses reaches the handler as EventRejected', async () => {
    const shop = newShop()
    const server = start(shop)
    const id = await begin(server, 'strict')
    expect(await server.deliver(await handedOut(shop), { code: 'left' })).toEqual({ kind: 'accepted' })
    expect(textOf(await settled(server, id))).toBe('refused: wrong code')
  })

  it('G3 is limited by tasks.maxPieceBytes', async () => {
    const shop = newShop()
    const server = start(shop, { tasks: { maxPieceBytes: 4_000 } })
    await begin(server, 'any')
    const event = Array.from({ length: 1000 }, () => 'text')
    expect(await server.deliver(await handedOut(shop), event)).toMatchObject({
      kind: 'rejected',
      problem: 'The event is too large',
    })
  })
})

it('G1 G3 a hook is limited in time by a race with a sleep', async () => {
  const shop = newShop()
  const server = start(shop, { dev: false })
  server.tool('limited', { task: 'auto' }, async (_args, ctx) => {
    const hook = await ctx.hook('paid')
    await ctx.step('hand out', () => void shop.ids.push(hook.id))
    const event = await Promise.race([hook.received(), ctx.sleep('limit', 300)])
    return event === undefined ? 'too late' : JSON.stringify(event)
  })
  const late = await begin(server, 'limited')
  expect(textOf(await settled(server, late))).toBe('too late')
  expect(await server.deliver(shop.ids[0] ?? '', 1)).toEqual({ kind: 'closed' })
})

describe('the id of a hook', () => {
  it('G3 T17 looks the same to the sender if it is malformed, altered, foreign, of other keys or expired', async () => {
    let now = Date.now()
    const shop = newShop()
    const store = createMemoryStore({ now: () => now })
    const server = start(shop, { store, now: () => now, tasks: { ttlMs: 60_000, maxTtlMs: 60_000 } })
    await begin(server, 'any')
    const hook = await handedOut(shop)
    const at = hook.length - 20
    const altered = `${hook.slice(0, at)}${hook[at] === 'A' ? 'B' : 'A'}${hook.slice(at + 1)}`
    const tenant = start(newShop(), { store, now: () => now, audience: 'another' })
    const otherKeys = start(newShop(), { store, now: () => now, keys: generateKey('other') })
    const unknown = { kind: 'unknown' }
    const odd = ['', 'h.', 'h.r1.', hook.slice(2), `x${hook}`, `${hook} `, altered, 'h.'.padEnd(100_000, 'A')]
    for (const id of odd) expect(await server.deliver(id, 1), id.slice(0, 40)).toEqual(unknown)
    for (const id of [undefined, null, 7, {}]) expect(await server.deliver(id as never, 1)).toEqual(unknown)
    expect(await tenant.deliver(hook, 1)).toEqual(unknown)
    expect(await otherKeys.deliver(hook, 1)).toEqual(unknown)
    // The id itself has an end, whatever the clock of the store says.
    const ahead = start(newShop(), { store, now: () => now + 60_000 })
    expect(await ahead.deliver(hook, 1)).toEqual(unknown)
    now += 60_000
    expect(await server.deliver(hook, 1)).toEqual(unknown)
    const reasons = log.flatMap((event) => (event.event === 'warning' ? [event.message] : []))
    expect(reasons.some((message) => message.includes('expired'))).toBe(true)
    expect(reasons.some((message) => message.includes('encoding'))).toBe(true)
    expect(JSON.stringify(log)).not.toContain(hook)
  })

  it('T18 that is made up fills the log with ten lines a minute, and the next line says how many there were', async () => {
    let now = Date.now()
    const server = start(newShop(), { now: () => now })
    for (let i = 0; i < 500; i++) await server.deliver(`h.made-up-${i}`, 1)
    expect(log.filter(({ event }) => event === 'warning')).toHaveLength(10)
    now += 60_000
    log = []
    for (let i = 0; i < 2; i++) await server.deliver('h.made-up', 1)
    const [first, second] = log.flatMap((event) => (event.event === 'warning' ? [event.message] : []))
    expect(first).toMatch(/; 490 others like it were not logged$/)
    expect(second).not.toContain('others')
  })

  it('G3 delivers to a task whose tool a deploy removed; the task continues where the tool is', async () => {
    const store = createMemoryStore()
    const shop = newShop()
    const server = start(shop, { store })
    const id = await begin(server, 'any')
    const hook = await handedOut(shop)
    await parked(store)
    await server.close()
    const without = createServer({
      name: 'shop',
      version: '2',
      keys,
      log: 'off',
      store,
      tasks: { concurrency: 0 },
    })
    servers.push(without)
    expect(await without.deliver(hook, 'meanwhile')).toEqual({ kind: 'accepted' })
    expect(await without.deliver(hook, 'again')).toEqual({ kind: 'duplicate' })
    expect((await send(without, 'tasks/get', { taskId: id })).result).toMatchObject({ status: 'working' })
    expect(textOf(await settled(start(shop, { store }), id))).toBe('"meanwhile"')
  })

  it('G3 of an empty store, or of a cancelled task, delivers nothing', async () => {
    const shop = newShop()
    const server = start(shop)
    const id = await begin(server, 'any')
    const hook = await handedOut(shop)
    expect(await start(newShop()).deliver(hook, 1)).toEqual({ kind: 'unknown' })
    await send(server, 'tasks/cancel', { taskId: id })
    expect(await server.deliver(hook, 1)).toEqual({ kind: 'closed' })
  })

  it('G3 differs from every other hook, and cannot be read', async () => {
    const shop = newShop()
    const server = start(shop)
    const [one] = [await begin(server, 'any'), await begin(server, 'any')]
    await until('two ids', () => shop.ids.length === 2)
    expect(new Set(shop.ids).size).toBe(2)
    expect(Buffer.from(shop.ids[0] ?? '', 'base64url').toString()).not.toContain(one)
    expect(shop.ids[0]).toMatch(/^h\.r1\.[A-Za-z0-9_-]{100,900}$/)
  })
})

describe('a hook without a task', () => {
  it('G3 E1 ends the call of a client that cannot follow one, before anything later runs', async () => {
    const shop = newShop()
    const server = start(shop)
    const call = { name: 'any', arguments: {} }
    const { error } = await send(server, 'tools/call', call, { capabilities: { elicitation: {} } })
    expect(error).toMatchObject({
      code: -32021,
      data: { requiredCapabilities: { extensions: { 'io.modelcontextprotocol/tasks': {} } } },
    })
    expect(error?.message).toContain('the hook "any"')
    expect(shop.ids).toEqual([])
  })

  it('G3 tells the author what is missing', async () => {
    const shop = newShop()
    const server = createServer({ name: 'shop', version: '1', keys, dev: true, log: () => {} })
    server.tool('late', {}, async (_args, ctx) => {
      await ctx.hook('h')
      shop.runs.push('later')
      return 'no'
    })
    servers.push(server)
    const { result } = await send(server, 'tools/call', { name: 'late', arguments: {} })
    expect(result).toMatchObject({ isError: true })
    expect(JSON.stringify(result)).toContain('createServer({ store })')
    expect(shop.runs).toEqual([])
    await expect(server.deliver('h.x', 1)).rejects.toThrow(/needs a store/)
  })

  it('G3 D9 moves a call that began in rounds into a task', async () => {
    const shop = newShop()
    const server = start(shop)
    server.tool('late', {}, async (_args, ctx) => {
      await ctx.step('before', () => void shop.runs.push('before'))
      const hook = await ctx.hook('h')
      await ctx.step('hand out', () => void shop.ids.push(hook.id))
      return JSON.stringify(await hook.received())
    })
    const id = await begin(server, 'late')
    expect(await server.deliver(await handedOut(shop), 'x')).toEqual({ kind: 'accepted' })
    expect(textOf(await settled(server, id))).toBe('"x"')
    expect(shop.runs).toEqual(['before'])
  })
})

describe('a tool that checks the events of its hooks', () => {
  const Visit = z.object({ subject: z.string() })
  type Accept = NonNullable<ToolDefinition['accept']>[string]
  const sameUser: Accept = ({ subject }: { subject: string }, { about }) =>
    subject === (about as { subject: string }).subject || `not ${subject}`

  /** An instance whose tool has the check, or none. */
  function instance(store: Store, ids: string[], accept: Accept | undefined, key = 'visit'): Server {
    const server = createServer({ name: 'shop', version: '1', keys, log: 'off', store })
    const checks = accept && { visit: accept }
    server.tool('connect', { task: 'auto', accept: checks }, async (_args, ctx) => {
      const hook = await ctx.hook(key, { schema: Visit, about: { subject: 'ann' }, within: '1 hour' })
      await ctx.step('hand out', () => void ids.push(hook.id))
      return (await hook.received()).subject
    })
    servers.push(server)
    return server
  }

  async function connect(accept: Accept | undefined, key?: string) {
    const store = createMemoryStore()
    const ids: string[] = []
    const server = instance(store, ids, accept, key)
    const task = await begin(server, 'connect')
    return { store, server, task, id: await until('the hook', () => ids[0]) }
  }

  it.each(['visit', 'visit:7'])('G3 refuses an event, says why, and waits for another: %s', async (key) => {
    const { store, server, task, id } = await connect(sameUser, key)
    const other = instance(store, [], sameUser, key)
    expect(await other.deliver(id, { subject: 'eve' })).toEqual({ kind: 'rejected', problem: 'not eve' })
    expect(await server.hook(id)).toMatchObject({ kind: 'open' })
    expect(await other.deliver(id, { subject: 'ann' })).toEqual({ kind: 'accepted' })
    expect(await other.deliver(id, { subject: 'ann' })).toEqual({ kind: 'duplicate' })
    expect(textOf(await settled(server, task))).toBe('ann')
  })

  it.each([false, '', undefined, null, 1, 'no', Promise.resolve(false), {}])(
    'G3 accepts nothing but true: %s',
    async (verdict) => {
      const { server, id } = await connect(() => verdict as boolean)
      expect(await server.deliver(id, { subject: 'ann' })).toMatchObject({ kind: 'rejected' })
      expect(await server.hook(id)).toMatchObject({ kind: 'open' })
    },
  )

  it('G3 takes no event from an instance that cannot check it, and none if the check fails', async () => {
    const { store, server, id } = await connect(sameUser)
    const without = [
      instance(store, [], undefined),
      createServer({ name: 'shop', version: '1', keys, store }),
    ]
    servers.push(...without.slice(1))
    const failing = instance(store, [], () => {
      throw new Error('no directory')
    })
    for (const one of [...without, failing])
      await expect(one.deliver(id, { subject: 'ann' })).rejects.toThrow()
    expect(await server.deliver(id, { subject: 'ann' })).toEqual({ kind: 'accepted' })
  })

  it('G3 R11 does not wait for ever for a check, and stays open', async () => {
    let settle: (error: Error) => void = () => {}
    const never = new Promise<boolean>((_resolve, reject) => {
      settle = reject
    })
    const { server, id } = await connect(() => never)
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
    try {
      const delivering = expect(server.deliver(id, { subject: 'ann' })).rejects.toThrow('accept of the hook')
      await vi.advanceTimersByTimeAsync(30_000)
      await delivering
    } finally {
      vi.useRealTimers()
    }
    settle(new Error('late'))
    expect(await server.hook(id)).toMatchObject({ kind: 'open' })
  })

  it('G3 takes the event that was checked, whatever its sender or the check does with theirs', async () => {
    const event = { subject: 'ann' }
    const { server, task, id } = await connect(async (given: { subject: string }, facts) => {
      const verdict = await sameUser(given, facts)
      event.subject = 'eve'
      given.subject = 'eve'
      return verdict
    })
    expect(await server.deliver(id, event)).toEqual({ kind: 'accepted' })
    expect(textOf(await settled(server, task))).toBe('ann')
  })

  it('G3 may check more than the release that opened the hook', async () => {
    const { store, id } = await connect(undefined)
    const newer = instance(store, [], () => false)
    expect(await newer.deliver(id, { subject: 'ann' })).toMatchObject({ kind: 'rejected' })
  })

  it('refuses checks that are no functions, and an about that is not JSON', async () => {
    const server = start(newShop())
    const declare = (accept: unknown) => () =>
      server.tool('odd', { task: 'auto', accept: accept as never }, () => 'never')
    for (const accept of [{ visit: true }, 'visit']) expect(declare(accept)).toThrow('accept of')
    server.tool('about', { task: 'auto' }, async (_args, ctx) => {
      await ctx.hook('visit', { about: { at: new Date(), fn: () => 1 } })
    })
    expect(JSON.stringify(await settled(server, await begin(server, 'about')))).toContain('isError')
  })
})

describe('the view of a hook', () => {
  it('G3 is what the handler stored, the schema and the end of its time, and afterwards only its state', async () => {
    let now = Date.now()
    const store = createMemoryStore({ now: () => now })
    const ids: string[] = []
    const options = { name: 'shop', version: '1', keys, log: 'off', store, now: () => now } as const
    const server = createServer(options)
    servers.push(server)
    server.tool('wait', { task: 'auto' }, async (_args, ctx) => {
      const hooks = [
        await ctx.hook('a', { schema: { type: 'string' }, about: { who: ['ann'] }, within: '1 hour' }),
        await ctx.hook('b'),
      ]
      await ctx.step('hand out', () => void ids.push(...hooks.map(({ id }) => id)))
      return Promise.all(hooks.map((hook) => hook.received()))
    })
    await begin(server, 'wait')
    const [a = '', b = ''] = await until('the hooks', () => (ids.length === 2 ? ids : undefined))
    const other = createServer(options)
    servers.push(other)
    expect(await other.hook(a)).toEqual({
      kind: 'open',
      about: { who: ['ann'] },
      schema: { type: 'string' },
      until: now + 3_600_000,
    })
    expect(await other.hook(b)).toEqual({ kind: 'open' })
    await other.deliver(b, 1)
    expect(await other.hook(b)).toEqual({ kind: 'received' })
    now += 3_600_000
    expect(await other.hook(a)).toEqual({ kind: 'closed' })
  })

  it('G3 T17 is empty if the id is made up, foreign, of other keys or expired', async () => {
    let now = Date.now()
    const store = createMemoryStore({ now: () => now })
    const shop = newShop()
    const server = start(shop, { store, now: () => now })
    await begin(server, 'any')
    const hook = await handedOut(shop)
    const tenant = start(newShop(), { store, now: () => now, audience: 'another' })
    const otherKeys = start(newShop(), { store, now: () => now, keys: generateKey('other') })
    const views = [
      await server.hook('h.made-up'),
      await server.hook(undefined as never),
      await server.hook(`${hook}A`),
      await tenant.hook(hook),
      await otherKeys.hook(hook),
    ]
    now += 86_400_000
    views.push(await server.hook(hook))
    for (const view of views) expect(view).toEqual({ kind: 'unknown' })
    expect(JSON.stringify(log)).not.toContain(hook)
  })
})
