/** Clients that abuse what the instances of a fleet share, and stores that fail them at the worst moment. */

import type { ServerOptions, Store } from 'rondo'
import type { Bus, RecordStore } from 'rondo/store'
import { expect, it } from 'vitest'
import { z } from 'zod'
import { RondoError } from '../../packages/rondo/src/errors.ts'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import type { Message, OlderClient, OpenStream } from '../support/older-client.ts'
import { startFleet } from '../support/older-fleet.ts'
import { until } from '../support/store/store-harness.ts'

const ask = { jsonrpc: '2.0', id: 5, method: 'tools/call', params: { name: 'ask' } }
const named = (name: string) => ({ action: 'accept', content: { name } })

/** A handle of the store whose writes, and whose messages, pass through the test. */
function meddled(
  store: Store,
  put: (
    record: Parameters<RecordStore['put']>[0],
    run: () => ReturnType<RecordStore['put']>,
  ) => ReturnType<RecordStore['put']>,
  receive: () => Promise<void> = async () => {},
): Store {
  const { records, bus } = store
  if (!records || !bus) throw new Error('the store has no records or no bus')
  const through: Bus = {
    publish: bus.publish,
    subscribe: (listener) =>
      bus.subscribe({
        lost: () => listener.lost(),
        async receive(messages) {
          await receive()
          await listener.receive(messages)
        },
      }),
  }
  return {
    ...store,
    records: { ...records, put: (record) => put(record, () => records.put(record)) },
    bus: through,
  }
}

async function questionOf(stream: OpenStream): Promise<unknown> {
  for (let message = await stream.next(); message; message = await stream.next())
    if (message.method === 'elicitation/create') return message.id
  throw new Error('no question')
}

async function responseOf(stream: OpenStream): Promise<Message> {
  for (let message = await stream.next(); message; message = await stream.next())
    if (message.id === 5 && message.method === undefined) return message
  throw new Error('no response')
}

/** Begins a call that runs, and returns the id of the first event of its stream. */
async function eventOf(client: OlderClient): Promise<string> {
  const stream = await client.post({ ...ask, params: { name: 'wait' } })
  await stream.next()
  return stream.ids.at(-1) ?? ''
}

const kinds = ({ messages }: OpenStream): string[] => messages.map(({ method }) => String(method))

function read(stream: OpenStream): void {
  void (async () => {
    while (await stream.next());
  })().catch(() => {})
}

it('J1 R2 of two answers that race on two instances, the call gets the one that is in the store', async () => {
  const store = createMemoryStore()
  let meanwhile: (() => Promise<unknown>) | undefined
  let listen = (): void => {}
  const deaf = new Promise<void>((resolve) => {
    listen = resolve
  })
  const holder = meddled(
    store,
    async (_record, run) => {
      const first = meanwhile
      meanwhile = undefined
      await first?.()
      return run()
    },
    () => deaf,
  )
  const { connect, route } = await startFleet(2, (index) => ({ store: index === 0 ? holder : store }))
  const client = await connect()
  route(0)
  const stream = await client.post(ask)
  const id = await questionOf(stream)
  let isLate = 0
  meanwhile = async () => {
    route(1)
    isLate = (await client.respond(id, named('Grace'))).status
  }
  route(0)
  expect((await client.respond(id, named('Ada'))).status).toBe(202)
  expect(isLate).toBe(202)
  listen()
  expect(await responseOf(stream)).toMatchObject({ result: { content: [{ text: 'Hello Grace' }] } })
})

it('J1 R2 a second answer does not replace the first one, while the instance that asked has heard of neither', async () => {
  const store = createMemoryStore()
  let listen = (): void => {}
  const deaf = new Promise<void>((resolve) => {
    listen = resolve
  })
  const holder = meddled(
    store,
    (_record, run) => run(),
    () => deaf,
  )
  const { connect, route } = await startFleet(3, (index) => ({ store: index === 0 ? holder : store }))
  const client = await connect()
  route(0)
  const stream = await client.post(ask)
  const id = await questionOf(stream)
  for (const [instance, name] of [
    [1, 'Ada'],
    [2, 'Grace'],
  ] as const) {
    route(instance)
    expect((await client.respond(id, named(name))).status).toBe(202)
  }
  listen()
  expect(await responseOf(stream)).toMatchObject({ result: { content: [{ text: 'Hello Ada' }] } })
})

it('J1 I3 an answer that the store has no room for is not acknowledged', async () => {
  const store = createMemoryStore()
  let isFull = false
  const full = meddled(store, async (_record, run) => (isFull ? 'limit' : run()))
  const { connect, route } = await startFleet(2, () => ({ store: full }))
  const client = await connect()
  route(0)
  const stream = await client.post(ask)
  const id = await questionOf(stream)
  isFull = true
  for (const instance of [0, 1]) {
    route(instance)
    expect((await client.respond(id, named('Eve'))).status).toBe(503)
  }
  isFull = false
  route(1)
  expect((await client.respond(id, named('Ada'))).status).toBe(202)
  expect(await responseOf(stream)).toMatchObject({ result: { content: [{ text: 'Hello Ada' }] } })
})

it('J1 I3 a question of a call that the store has no room for is not asked', async () => {
  const full = meddled(createMemoryStore(), async () => 'limit')
  const { connect, route } = await startFleet(1, () => ({ store: full }))
  const client = await connect()
  route(0)
  const stream = await client.post(ask)
  expect(JSON.stringify(await responseOf(stream))).toContain('There is no room for another call that waits')
  expect(kinds(stream)).not.toContain('elicitation/create')
})

it('I3 a call that has ended is kept without its arguments', async () => {
  const written: Parameters<RecordStore['put']>[0][] = []
  const seen = meddled(createMemoryStore(), async (record, run) => {
    written.push(record)
    return run()
  })
  const { connect } = await startFleet(1, () => ({ store: seen }))
  const client = await connect()
  const stream = await client.post({
    ...ask,
    params: { name: 'ask', arguments: { text: 'x'.repeat(50_000) } },
  })
  await client.respond(await questionOf(stream), named('Ada'))
  await responseOf(stream)
  const sizes = (isEnded: boolean) =>
    written.filter(({ owner }) => owner.startsWith('ended ') === isEnded).map(({ sealed }) => sealed.length)
  expect(Math.min(...sizes(false))).toBeGreaterThan(50_000)
  expect(sizes(true)).toHaveLength(1)
  expect(Math.max(...sizes(true))).toBeLessThan(10_000)
})

it('J1 a call whose record expires while its handler runs still ends with its result', async () => {
  let passed = 0
  const store = createMemoryStore({ now: () => Date.now() + passed })
  const { connect, instances } = await startFleet(1, () => ({ store }))
  let runs = 0
  let finish = (): void => {}
  const finished = new Promise<void>((resolve) => {
    finish = resolve
  })
  instances[0]?.server.tool('slow', {}, async (_args, ctx) => {
    await ctx.confirm('sure', 'Sure?')
    runs += 1
    await finished
    return 'done'
  })
  const client = await connect()
  const stream = await client.post({ ...ask, params: { name: 'slow' } })
  await client.respond(await questionOf(stream), { action: 'accept', content: { confirm: true } })
  await until('the handler', () => runs === 1)
  passed = 7 * 24 * 3_600_000
  finish()
  expect(await responseOf(stream)).toMatchObject({ result: { content: [{ text: 'done' }] } })
})

it('J1 I3 the end of a session that the store has no room for is not acknowledged', async () => {
  const store = createMemoryStore()
  let isFull = true
  const full = meddled(store, async (_record, run) => (isFull ? 'limit' : run()))
  const { connect, route } = await startFleet(2, () => ({ store: full }))
  const client = await connect()
  route(0)
  expect((await client.remove()).status).toBe(503)
  isFull = false
  route(0)
  expect((await client.remove()).status).toBe(200)
  for (let i = 0; i < 2; i++)
    expect((await client.post({ jsonrpc: '2.0', id: 9, method: 'ping' })).status).toBe(404)
})

it.each([
  ['an id of 20,000 characters', [{ requestId: 'x'.repeat(20_000) }]],
  ['no id', [{ requestId: { deep: ['x'.repeat(20_000)] } }, { requestId: null }, {}]],
  ['4,000 ids at once', Array.from({ length: 4_000 }, (_, i) => ({ requestId: `r${i}` }))],
])(
  'J2 I3 a client that cancels calls with %s does not make all others read everything again',
  async (_, all) => {
    const store = createMemoryStore()
    const published: string[] = []
    const bus = store.bus as Bus
    const publish = (message: string): Promise<void> => {
      published.push(message)
      return bus.publish(message)
    }
    const watched = {
      ...store,
      bus: { ...bus, publish },
    }
    const { connect, route, instances } = await startFleet(2, () => ({ store: watched }))
    const client = await connect()
    route(1)
    const stream = await client.get()
    read(stream)
    const eve = await connect({ version: '2025-03-26' })
    const cancels = all.map((params) => ({ jsonrpc: '2.0', method: 'notifications/cancelled', params }))
    const posts = Array.from({ length: Math.ceil(cancels.length / 64) }, (__, i) =>
      cancels.slice(64 * i, 64 * i + 64),
    )
    for (const batch of posts) {
      route(0)
      await eve.post(batch)
    }
    instances[0]?.server.prompt('last', {}, () => 'last')
    await until('the change', () => kinds(stream).includes('notifications/prompts/list_changed'))
    expect(kinds(stream)).toEqual(['notifications/prompts/list_changed'])
    expect(published).not.toContain('')
    expect(published.length).toBeLessThan(2_000)
  },
)

it('J2 changes that are lost twice within a second are caught up twice', async () => {
  const store = createMemoryStore()
  const { connect } = await startFleet(1, () => ({ store }))
  const stream = await (await connect()).get()
  read(stream)
  const changes = () => kinds(stream).filter((kind) => kind === 'notifications/tools/list_changed').length
  await store.bus?.publish('')
  await until('the first', () => changes() === 1)
  await store.bus?.publish('')
  await until('the second', () => changes() === 2)
})

it('J2 bus 1: messages whose listener fails are delivered again', async () => {
  const bus = createMemoryStore().bus as Bus
  const received: string[] = []
  let failures = 0
  let isAway = true
  const { started, stop } = bus.subscribe({
    lost: () => {},
    receive(messages) {
      if (isAway) {
        failures += 1
        throw new Error('the keys are not there yet')
      }
      received.push(...messages)
    },
  })
  await started
  await bus.publish('one')
  await until('a failure', () => failures > 0)
  isAway = false
  await bus.publish('two')
  await until('both', () => received.includes('two'))
  stop()
  expect(received).toEqual(['one', 'two'])
})

it('I3 the subscriptions of a session are limited in bytes, because each of its requests reads the record', async () => {
  const store = createMemoryStore()
  const { connect } = await startFleet(2, () => ({ store }))
  const client = await connect()
  const subscribe = (i: number) =>
    client.call('resources/subscribe', { uri: `test://${i}/${'x'.repeat(8_000)}` })
  let accepted = 0
  for (let i = 0; i < 40; i++) if ('result' in (await subscribe(i))) accepted += 1
  expect(accepted).toBeGreaterThan(8)
  expect(accepted).toBeLessThan(40)
})

it('J1 I3 a caller that looks for many streams that nobody has is refused beyond a limit, and others are not', async () => {
  const store = createMemoryStore()
  const authenticate: ServerOptions['authenticate'] = ({ headers }) => ({
    subject: headers('authorization') ?? 'nobody',
  })
  const { connect, route, vanish } = await startFleet(2, () => ({ store, authenticate }))
  const eve = await connect({ headers: { authorization: 'eve' } })
  const bob = await connect({ headers: { authorization: 'bob' } })
  const ids = new Map<OlderClient, string>()
  for (const client of [eve, bob]) {
    route(0)
    ids.set(client, await eventOf(client))
  }
  vanish(0)
  const look = async (client: OlderClient): Promise<number> => {
    route(1)
    return (await client.get({ 'last-event-id': ids.get(client) ?? '' })).status
  }
  const all = await Promise.all([...Array.from({ length: 80 }, () => look(eve)), look(bob)])
  expect(all.filter((status) => status === 503)).toHaveLength(16)
  expect(all.at(-1)).not.toBe(503)
})

it.each([
  ['a session', {}],
  ['a session of the drafts', { experimental: { 'request-state': {} } }],
])('J1 I3 the id of an event that nobody sent costs no read of the store, in %s', async (_kind, drafts) => {
  const store = createMemoryStore()
  const { records, bus } = store
  if (!records || !bus) throw new Error('the store has no records or no bus')
  let reads = 0
  let told = 0
  const get: RecordStore['get'] = (id) => {
    reads += 1
    return records.get(id)
  }
  const publish: Bus['publish'] = (message) => {
    told += 1
    return bus.publish(message)
  }
  const counted: Store = { ...store, records: { ...records, get }, bus: { ...bus, publish } }
  const { connect, route } = await startFleet(2, (index) => ({ store: index === 1 ? counted : store }))
  const capabilities = { elicitation: {}, ...drafts }
  const [client, other] = [await connect({ capabilities }), await connect({ capabilities })]
  route(0)
  const own = await eventOf(client)
  route(0)
  const foreign = await eventOf(other)
  const altered = own.replace(/.(?=-\d+$)/, (last) => (last === 'A' ? 'B' : 'A'))
  reads = 0
  told = 0
  for (const id of ['c_made-up-1', 'g_made-up-1', foreign, altered, own.replace(/^c/, 'g')]) {
    route(1)
    expect((await client.get({ 'last-event-id': id })).status).toBe(400)
  }
  expect({ reads, told }).toEqual({ reads: 0, told: 0 })
  route(1)
  const resumed = await client.get({ 'last-event-id': own })
  expect(resumed.status).toBe(200)
  expect(reads).toBeGreaterThan(1)
  expect(told).toBeGreaterThan(0)
  await resumed.drop()
})

it('J1 I3 an answer to a question that nobody asked reads no call from the store', async () => {
  const store = createMemoryStore()
  const { records } = store
  if (!records) throw new Error('the store has no records')
  const calls: string[] = []
  const get: RecordStore['get'] = (id) => {
    if (id.includes(' call ')) calls.push(id)
    return records.get(id)
  }
  const { connect } = await startFleet(1, () => ({ store: { ...store, records: { ...records, get } } }))
  const client = await connect()
  for (const id of ['c_made-up.1', `c_${'x'.repeat(60)}.1`])
    expect((await client.respond(id, named('Eve'))).status).toBe(202)
  expect(calls).toEqual([])
  const stream = await client.post(ask)
  await client.respond(await questionOf(stream), named('Ada'))
  expect(await responseOf(stream)).toMatchObject({ result: { content: [{ text: 'Hello Ada' }] } })
  expect(calls.length).toBeGreaterThan(0)
})

it('I7 T27 an attacker who can write to the store cannot give a session the record of another', async () => {
  const store = createMemoryStore()
  const written: Parameters<RecordStore['put']>[0][] = []
  const seen = meddled(store, async (record, run) => {
    written.push(record)
    return run()
  })
  const { connect } = await startFleet(1, () => ({ store: seen }))
  const [bob, eve] = [await connect(), await connect()]
  await bob.call('logging/setLevel', { level: 'error' })
  const [of] = written
  expect((await eve.remove()).status).toBe(200)
  const ended = written.at(-1)
  if (!of || !ended || of.id === ended.id) throw new Error('no record was written')
  const moved = { ...ended, id: of.id, version: 1 }
  expect(await store.records?.put(moved)).toBe('stored')
  expect((await bob.post({ jsonrpc: '2.0', id: 9, method: 'ping' })).status).toBe(200)
  expect(await store.records?.put({ ...moved, id: ended.id })).toBe('stored')
  expect((await eve.post({ jsonrpc: '2.0', id: 9, method: 'ping' })).status).toBe(404)
})

it('T33 H2 a token with less scope than a call needs neither answers nor resumes it at another instance', async () => {
  const store = createMemoryStore()
  const authenticate: ServerOptions['authenticate'] = ({ headers }) => ({
    subject: 'alice',
    scopes: (headers('authorization') ?? '').split(' ').filter((scope) => scope !== ''),
  })
  const { connect, route, instances } = await startFleet(2, () => ({ store, authenticate }))
  for (const { server } of instances) {
    server.tool('pay', { scopes: ['pay'] }, async (_args, ctx) => {
      ctx.log('warning', 'begun')
      await ctx.confirm('sure', 'Pay?')
      return 'paid'
    })
    server.tool('run', { scopes: ['pay'] }, async (_args, ctx) => {
      ctx.log('warning', 'begun')
      await new Promise((resolve) => ctx.signal.addEventListener('abort', resolve))
      return ''
    })
  }
  const client = await connect({ headers: { authorization: 'pay' } })
  const less = { authorization: 'read' }
  const yes = { action: 'accept', content: { confirm: true } }
  const begin = async (name: string, requestId: number) => {
    route(0)
    const stream = await client.post({ ...ask, id: requestId, params: { name } })
    await stream.next()
    return stream
  }
  const resumes = async (event: string | undefined, headers: Record<string, string>) => {
    route(1)
    return client.get({ 'last-event-id': event ?? '', ...headers })
  }
  const running = await begin('run', 6)
  expect((await resumes(running.ids[0], less)).status).toBe(403)

  const stream = await begin('pay', 5)
  const id = await questionOf(stream)
  const answer = { jsonrpc: '2.0', id, result: yes }
  route(1)
  expect((await client.post(answer, less)).status).toBe(403)
  expect((await resumes(stream.ids[0], less)).status).toBe(403)
  route(1)
  expect((await client.post(answer)).status).toBe(202)
  const rest = await resumes(stream.ids[0], {})
  expect(await responseOf(rest)).toMatchObject({ result: { content: [{ text: 'paid' }] } })
  expect((await resumes(stream.ids[0], less)).status).toBe(403)
})

it.each([
  ['asked', false],
  ['took the call over', true],
])('J1 R11 a result that cannot be stored is sent by the instance that %s', async (_who, isTaken) => {
  const store = createMemoryStore()
  const failing = meddled(store, async (record, run) => {
    if (record.owner.startsWith('ended ')) throw new RondoError('STORE_UNAVAILABLE')
    return run()
  })
  const { connect, route, vanish } = await startFleet(2, () => ({ store: failing }))
  const client = await connect()
  route(0)
  const first = await client.post(ask)
  const id = await questionOf(first)
  let stream = first
  if (isTaken) {
    await first.drop()
    vanish(0)
    route(1)
    stream = await client.get({ 'last-event-id': first.ids.at(-1) ?? '' })
  }
  route(isTaken ? 1 : 0)
  expect((await client.respond(id, named('Ada'))).status).toBe(202)
  expect(await responseOf(stream)).toMatchObject({ result: { content: [{ text: 'Hello Ada' }] } })
})

it('R11 a store that is away is a 503 in sessions, and two lines in the log, whatever fails meanwhile', async () => {
  const store = createMemoryStore()
  const { records } = store
  if (!records) throw new Error('the store has no records')
  let isAway = false
  let touched = 0
  const check = (): void => {
    if (isAway) throw new RondoError('STORE_UNAVAILABLE')
  }
  const absent: RecordStore = {
    async get(id) {
      check()
      return records.get(id)
    },
    async put(record) {
      check()
      return records.put(record)
    },
    async touch(ids) {
      touched += 1
      check()
      await records.touch(ids)
    },
    async remove(id) {
      check()
      await records.remove(id)
    },
  }
  const options = { store: { ...store, records: absent }, tasks: { leaseMs: 150 } }
  const { connect, instances } = await startFleet(1, () => options)
  const client = await connect()
  const stream = await client.post(ask)
  const id = await questionOf(stream)
  isAway = true
  const statuses = [
    (await client.post({ jsonrpc: '2.0', id: 9, method: 'ping' })).status,
    (await client.post({ ...ask, id: 6 })).status,
    (await client.get()).status,
    (await client.respond(id, named('Ada'))).status,
    (await client.remove()).status,
  ]
  expect(statuses).toEqual([503, 503, 503, 503, 503])
  const beats = async (): Promise<void> => {
    const before = touched
    await until('two more signs of life', () => touched >= before + 2)
  }
  await beats()
  isAway = false
  await beats()
  expect((await client.respond(id, named('Ada'))).status).toBe(202)
  expect(await responseOf(stream)).toMatchObject({ result: { content: [{ text: 'Hello Ada' }] } })
  const warnings = instances[0]?.events.filter(({ event }) => event === 'warning')
  expect(warnings).toHaveLength(2)
  expect(warnings?.[0]).toMatchObject({ error: { code: 'STORE_UNAVAILABLE' } })
  expect(warnings?.[1]).toMatchObject({
    message: expect.stringMatching(/^The store works again after [\d.]+ s; 5 requests failed meanwhile$/),
  })
})

it('J1 N2 a heavy call that another instance takes over leaves nothing counted there', async () => {
  const store = createMemoryStore()
  // Enough for one such call at a time.
  const room = 300_000
  const limits = { maxWeightInFlight: room, maxWeightInFlightPerCaller: room, maxMessageWeight: room }
  const fleet = await startFleet(2, () => ({ store, ...limits }))
  const { connect, route, instances } = fleet
  for (const { server } of instances)
    server.tool('keep', { input: z.object({ text: z.string() }) }, async ({ text }, ctx) => {
      const { name } = await ctx.ask('name', { message: 'Name?', schema: z.object({ name: z.string() }) })
      return `${name} has ${text.length}`
    })
  const client = await connect()
  const heavy = (id: number): Message => ({
    ...{ jsonrpc: '2.0', id, method: 'tools/call' },
    params: { name: 'keep', arguments: { text: 'x'.repeat(100_000) } },
  })
  route(0)
  const stream = await client.post(heavy(5))
  const id = await questionOf(stream)
  fleet.vanish(0)
  await stream.drop()
  route(1)
  const resumed = await client.get({ 'last-event-id': stream.ids.at(-1) ?? '' })
  route(1)
  await client.respond(id, named('Ada'))
  expect(await responseOf(resumed)).toMatchObject({ result: { content: [{ text: 'Ada has 100000' }] } })
  route(1)
  expect(await questionOf(await client.post(heavy(6)))).toBeDefined()
})
