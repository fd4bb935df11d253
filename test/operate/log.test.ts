/** The log as an operator reads it: every line has its place, and each thing that an operator must know has a line. */

import { createServer as createHttpServer, request as httpRequest } from 'node:http'
import type { AddressInfo } from 'node:net'
import { createServer, generateKey, type LogEvent, type Server, type ServerOptions } from 'rondo'
import { afterEach, describe, expect, it, vi } from 'vitest'
import { z } from 'zod'
import { RondoError } from '../../packages/rondo/src/errors.ts'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import type { Lease } from '../../packages/rondo/src/store/task-store.ts'
import { connectOlder } from '../support/older-client.ts'
import { send, settled } from '../support/task-client.ts'
import { connectTurns } from '../support/turns-client.ts'

const keys = generateKey('k1')
const servers: { close(): Promise<void> }[] = []
afterEach(async () => {
  for (const server of servers.splice(0)) await server.close()
})

const FORM = z.object({ word: z.string() })

function start(options: Partial<ServerOptions> = {}) {
  const events: LogEvent[] = []
  const log = (event: LogEvent): void => void events.push(event)
  const server = createServer({ name: 'logged', version: '1', keys, log, instance: 'one', ...options })
  servers.push(server)
  server.tool('ask', {}, async (_args, ctx) => {
    const { word } = await ctx.ask('word', { message: 'Word?', schema: FORM })
    if (word === 'throw') throw new Error('no')
    return word
  })
  server.tool('sleep', {}, async (_args, ctx) => {
    await ctx.sleep('night', 3_600_000)
    return 'rested'
  })
  const of = <E extends LogEvent['event']>(name: E) =>
    events.filter(({ event }) => event === name) as Extract<LogEvent, { event: E }>[]
  return { server, events, of }
}

const only = { capabilities: { elicitation: { form: {} } } }
const accept = (word: string) => ({ word: { action: 'accept', content: { word } } })
const ask = (server: Server, params = {}) =>
  send(server, 'tools/call', { name: 'ask', arguments: {}, ...params }, only)
const PLACE = { flow: expect.any(String), round: expect.any(Number) }

describe('every line of a call names its flow and its round', () => {
  it('in rounds, faults and what development skips', async () => {
    const { server, events, of } = start({ skipSleep: true })
    const { result } = await ask(server)
    await ask(server, { requestState: result?.requestState, inputResponses: accept('throw') })
    await send(server, 'tools/call', { name: 'sleep', arguments: {} }, only)
    expect(events.map(({ event }) => event)).toEqual(['round', 'round', 'fault', 'warning', 'round'])
    for (const event of events) expect(event).toMatchObject({ instance: 'one', ...PLACE })
    const [first, second, third] = of('round')
    expect(second).toMatchObject({ flow: first?.flow, round: 2 })
    expect(of('fault')[0]).toMatchObject({ flow: first?.flow, round: 2, target: 'ask' })
    expect(of('warning')[0]).toMatchObject({ flow: third?.flow, round: 1 })
  })

  it('in a state that is refused, if it is one of this service', async () => {
    let now = 1_000_000
    const { server, of } = start({ now: () => now })
    const { result } = await ask(server)
    const requestState = String(result?.requestState)
    await send(server, 'tools/call', { name: 'sleep', arguments: {}, requestState }, only)
    now += 86_400_000 * 30
    await ask(server, { requestState })
    await ask(server, { requestState: requestState.slice(0, -1) })
    const { flow } = of('round')[0] ?? {}
    const [request, expired, damaged] = of('state_refused')
    expect(request).toMatchObject({ flow, round: 2, target: 'sleep', reason: 'request', keyId: 'k1' })
    expect(expired).toMatchObject({ flow, round: 2, target: 'ask', reason: 'flow-expired' })
    expect(damaged).not.toHaveProperty('flow')
  })

  it('for an observer too, which gets the same events as the log', async () => {
    const observed: object[] = []
    const { server, events } = start({ telemetry: { event: (event) => void observed.push(event) } })
    const { result } = await ask(server)
    await ask(server, { requestState: `${result?.requestState}x` })
    expect(observed).toMatchObject([{ event: 'round', ...PLACE }, { event: 'state_refused' }])
    expect(observed).toEqual(events)
  })

  it('in a store that fails during a round', async () => {
    const store = createMemoryStore()
    const failing = () => Promise.reject(new RondoError('STORE_UNAVAILABLE', 'The store is away'))
    const { server, of } = start({
      store: { ...store, once: { ...store.once, epoch: failing, claim: failing } },
    })
    server.tool('pay', { once: true }, async (_args, ctx) => {
      await ctx.ask('word', { message: 'Word?', schema: FORM })
      return 'paid'
    })
    await send(server, 'tools/call', { name: 'pay', arguments: {} }, only)
    const [line] = [...of('warning'), ...of('fault')]
    expect(line).toMatchObject({ ...PLACE, error: { message: '[STORE_UNAVAILABLE] The store is away' } })
  })

  it('names the template of a resource, because its URI contains what the caller chose', async () => {
    const { server, of } = start()
    server.template('note://{id}', { name: 'note' }, ({ id }) => `Note ${id}`)
    server.resource('note:///all', { name: 'all' }, () => 'All')
    await send(server, 'resources/read', { uri: 'note://private' }, only)
    await send(server, 'resources/read', { uri: 'note:///all' }, only)
    expect(of('round').map(({ target }) => target)).toEqual(['note://{id}', 'note:///all'])
  })
})

describe('a task', () => {
  const spoil =
    (change: (lease: Lease) => Partial<Lease>) =>
    (store: ReturnType<typeof createMemoryStore>): ServerOptions['store'] => ({
      ...store,
      tasks: {
        ...store.tasks,
        claim: async (...given) =>
          (await store.tasks.claim(...given)).map((lease) => ({ ...lease, ...change(lease) })),
      },
    })

  /** One instance takes the call and runs no tasks; the other runs it, as far as its store lets it. */
  async function run(spoiled: ReturnType<typeof spoil>) {
    const store = createMemoryStore()
    const front = start({ store, tasks: { concurrency: 0 } })
    const back = start({ store: spoiled(store), instance: 'two' })
    for (const { server } of [front, back]) server.tool('work', { task: 'always' }, () => 'done')
    const { result } = await send(front.server, 'tools/call', { name: 'work', arguments: {} })
    // The first request starts the worker.
    await send(back.server, 'tools/list', {})
    const [begun] = front.of('round')
    const lines = () => back.of('task')
    return { task: String(result?.taskId), flow: begun?.flow, lines, back, front }
  }

  it('has a line for each claim, with flow, round, task and turn', async () => {
    const { task, flow, lines, front, back } = await run(spoil(() => ({})))
    await settled(front.server, task)
    const place = { instance: 'two', flow, round: 1, task, turn: 1 }
    expect(lines()).toMatchObject([{ level: 'info', phase: 'claimed', ...place }])
    expect(back.of('round').at(-1)).toMatchObject({ outcome: 'complete', ...place })
  })

  it('has a line for a turn that threw', async () => {
    const { task, flow, lines } = await run(spoil(() => ({ journal: ['damaged'] })))
    await vi.waitFor(() => expect(lines()).toHaveLength(2), 120_000)
    const place = { flow, round: 1, task, turn: 1 }
    expect(lines()[1]).toMatchObject({ level: 'warn', phase: 'failed', failures: 1, ...place })
    expect(lines()[1]?.error).toMatchObject({ message: expect.stringContaining('does not open') })
  })

  it('has a line when it is given up', async () => {
    const failed = spoil(({ task }) => ({ task: { ...task, failures: 5 }, takenOver: true }))
    const { task, flow, lines } = await run(failed)
    await vi.waitFor(() => expect(lines()).toHaveLength(2), 120_000)
    const place = { flow, round: 1, task, turn: 1, failures: 5 }
    expect(lines()).toMatchObject([
      { level: 'warn', phase: 'taken_over', ...place },
      { level: 'error', phase: 'given_up', ...place },
    ])
  })

  it('has a line when its turn no longer counts', async () => {
    const { server, of } = start({ store: createMemoryStore() })
    let begun = (): void => {}
    const running = new Promise<void>((resolve) => {
      begun = resolve
    })
    server.tool('work', { task: 'always' }, async (_args, ctx) => {
      await ctx.step('wait', () => {
        begun()
        return new Promise((resolve) => ctx.signal.addEventListener('abort', resolve))
      })
      return 'done'
    })
    const { result } = await send(server, 'tools/call', { name: 'work', arguments: {} })
    await running
    await send(server, 'tasks/cancel', { taskId: result?.taskId })
    await vi.waitFor(() => expect(of('task')).toHaveLength(2), { timeout: 60_000 })
    const place = { flow: of('round')[0]?.flow, round: 1, task: result?.taskId, turn: 1 }
    const reason = 'cancelled or taken over'
    expect(of('task')[1]).toMatchObject({ level: 'warn', phase: 'lost', reason, ...place })
  })
})

describe('a request that is refused', () => {
  const post = (server: Server, more: Record<string, string>, url = 'http://127.0.0.1/mcp') => {
    const headers = { 'content-type': 'application/json', ...more }
    return server.fetch(new Request(url, { method: 'POST', headers, body: '{}' }))
  }

  it.each<[string, number, string, Partial<ServerOptions>, Record<string, string>, string?]>([
    ['host', 403, 'allowedHosts', {}, {}, 'http://mcp.example.com/mcp'],
    ['origin', 403, 'allowedOrigins', {}, { origin: 'https://evil.example' }],
    ['caller', 401, 'authenticate', { authenticate: () => ({ status: 401 }) }, {}],
    ['caller', 403, 'authenticate', { authenticate: () => ({ status: 403 }) }, {}],
  ])(
    'for its %s (%i) has a line that names the option %s',
    async (_, status, option, options, headers, url) => {
      const { server, of } = start(options)
      expect((await post(server, headers, url)).status).toBe(status)
      expect(of('refused')).toMatchObject([
        { level: 'warn', instance: 'one', status, count: 1, message: expect.stringContaining(option) },
      ])
    },
  )

  it('because of too many tasks (429) has a line that names the option tasks.maxOpen', async () => {
    const { server, of } = start({ store: createMemoryStore(), tasks: { maxOpen: 0 } })
    server.tool('work', { task: 'always' }, () => 'done')
    await send(server, 'tools/call', { name: 'work', arguments: {} })
    expect(of('refused')).toMatchObject([{ status: 429, message: expect.stringContaining('tasks.maxOpen') }])
  })

  it('T16 again and again has one line in ten seconds, with their number', async () => {
    let now = 0
    const { server, of } = start({ now: () => now })
    for (let i = 0; i < 5; i++) await post(server, {}, 'http://mcp.example.com/mcp')
    now += 10_000
    await post(server, {}, 'http://mcp.example.com/mcp')
    expect(of('refused').map(({ count }) => count)).toEqual([1, 5])
    expect(JSON.stringify(of('refused'))).not.toContain('example.com')
  })
})

describe('T20 log lines that anybody can cause', () => {
  const refusing: ServerOptions['authenticate'] = ({ headers }) => ({
    status: 401,
    reason: String(headers('why')),
  })
  const addressHeader = 'x-from'
  const refuse = (server: Server, why: string, from?: string) =>
    server.fetch(
      new Request('http://127.0.0.1/mcp', {
        method: 'POST',
        headers: { 'content-type': 'application/json', why, ...(from && { [addressHeader]: from }) },
        body: '{}',
      }),
    )

  it('refused callers have 5 lines a minute for each kind of reason, so that a flood of one kind hides no other', async () => {
    let now = 0
    const { server, of } = start({ now: () => now, authenticate: refusing })
    const reasons = () => of('caller_refused').map(({ reason }) => reason)
    for (let number = 0; number < 200; number++) {
      await refuse(server, `The issuer is "https://${number}.example", "b ${number}": ${number} s ago`)
    }
    expect(reasons()).toHaveLength(5)
    for (let number = 0; number < 7; number++) await refuse(server, 'The signature is wrong')
    await refuse(server, 'The token is encrypted')
    expect(reasons().slice(5)).toEqual([...Array(5).fill('The signature is wrong'), 'The token is encrypted'])
    expect(of('warning')).toEqual([])
    now += 60_000
    await refuse(server, 'The signature is wrong')
    expect(of('warning').map(({ message }) => message)).toEqual([
      '… and 197 more requests were refused within a minute: 195 × 401 The issuer is "…": # s ago; 2 × 401 The signature is wrong',
    ])
    // The new minute has shares of its own.
    expect(reasons()).toHaveLength(12)
    server.drain()
    expect(of('warning')).toHaveLength(1)
  })

  it('one caller has a share of each kind and of the kinds, over fetch and over HTTP', async () => {
    const { server, of } = start({ authenticate: refusing, addressHeader })
    const word = (number: number) => String.fromCharCode(97 + (number % 26), 97 + Math.floor(number / 26))
    for (let number = 0; number < 300; number++) await refuse(server, word(number), '192.0.2.1')
    for (let number = 0; number < 300; number++) await refuse(server, 'same', '192.0.2.1')
    // Ten kinds, and three lines for all others.
    expect(of('caller_refused')).toHaveLength(13)
    for (let number = 0; number < 5; number++) await refuse(server, 'The issuer is unknown', '192.0.2.2')
    expect(of('caller_refused').filter(({ reason }) => reason === 'The issuer is unknown')).toHaveLength(3)
    server.drain()
    expect(of('warning').map(({ message }) => message)).toEqual([
      '… and 589 more requests were refused within a minute: 587 × other reasons; 2 × 401 The issuer is unknown',
    ])
    const near = start({ authenticate: refusing })
    const { url } = await near.server.listen({ port: 0, signals: false, rejections: false })
    for (let number = 0; number < 5; number++) {
      const headers = { 'content-type': 'application/json', why: 'no' }
      expect((await fetch(url, { method: 'POST', headers, body: '{}' })).status).toBe(401)
    }
    expect(near.of('caller_refused')).toHaveLength(3)
  })

  it('a caller that leaves before it is refused has no more lines than others', async () => {
    let leave = () => {}
    const refused = async (why: string) => {
      await new Promise<void>((resolve) => {
        leave = resolve
      })
      return { status: 401 as const, reason: why }
    }
    const { server, of } = start({ authenticate: ({ headers }) => refused(String(headers('why'))) })
    const handler = server.nodeHandler()
    let seen = () => {}
    let gone = () => {}
    const http = createHttpServer((req, res) => {
      res.once('close', () => gone())
      handler(req, res)
      seen()
    })
    servers.push({ close: async () => void http.close() })
    await new Promise<void>((resolve) => http.listen(0, '127.0.0.1', resolve))
    const { port } = http.address() as AddressInfo
    for (let number = 0; number < 5; number++) {
      const arrives = new Promise<void>((resolve) => {
        seen = resolve
      })
      const closes = new Promise<void>((resolve) => {
        gone = resolve
      })
      const headers = { 'content-type': 'application/json', why: 'no' }
      const request = httpRequest({ port, host: '127.0.0.1', method: 'POST', headers }).on('error', () => {})
      request.end('{}')
      await arrives
      request.destroy()
      await closes
      leave()
      await new Promise((resolve) => setImmediate(resolve))
    }
    expect(of('caller_refused')).toHaveLength(3)
  })

  it('many callers with many reasons have a bound, and are counted', async () => {
    const { server, of, events } = start({ authenticate: refusing, addressHeader })
    const letters = (number: number): string =>
      String.fromCharCode(97 + (number % 26), 97 + (Math.floor(number / 26) % 26), 97)
    for (let number = 0; number < 600; number++) {
      await refuse(server, letters(number).repeat(100), `192.0.${number % 200}.1`)
    }
    // 40 kinds with a line each, and five of all others.
    expect(of('caller_refused')).toHaveLength(45)
    server.drain()
    expect(of('warning').map(({ message }) => message)).toEqual([
      '… and 555 more requests were refused within a minute: 555 × other reasons',
    ])
    expect(JSON.stringify(events)).not.toContain('192.0.')
  })

  it('an authenticate that throws has a share for each line that throws, and says what happened', async () => {
    const authenticate: ServerOptions['authenticate'] = ({ headers }) => {
      if (headers('why') === 'late') throw new RangeError('two')
      throw new Error('one')
    }
    const { server, of } = start({ authenticate })
    for (let number = 0; number < 50; number++) expect((await refuse(server, 'soon')).status).toBe(401)
    await refuse(server, 'late')
    expect(of('warning').map(({ message, error }) => [message, (error as Error).message])).toEqual(
      ['one', 'one', 'one', 'one', 'one', 'two'].map((message) => [
        'The option authenticate threw, did not settle in time or returned something invalid',
        message,
      ]),
    )
    server.drain()
    const [summary] = of('warning').slice(6)
    expect(summary?.message).toMatch(
      /^… and 45 more requests were refused within a minute: 45 × 401 The option authenticate threw, .* \(Error at /,
    )
  })

  it('a reason of any length has a bounded line', async () => {
    const reason = 'x'.repeat(1_000_000)
    const { server, of } = start({ authenticate: () => ({ status: 401, reason }) })
    await refuse(server, 'long')
    expect(of('caller_refused').map((event) => event.reason.length)).toEqual([2_001])
  })
})

describe('a store that fails between two questions', () => {
  const away = () => Promise.reject(new RondoError('STORE_UNAVAILABLE', 'The store is away'))
  const failing = (): ServerOptions['store'] => {
    const store = createMemoryStore()
    return { ...store, once: { ...store.once, epoch: away, claim: away } }
  }
  const error = { message: '[STORE_UNAVAILABLE] The store is away' }

  it('is logged with flow and round in a call that could be asked by push', async () => {
    const { server, of } = start({ sessions: {}, store: failing() })
    const capabilities = { elicitation: { form: {} } }
    const client = await connectOlder('http://127.0.0.1/mcp', { capabilities }, (request) =>
      server.fetch(request),
    )
    server.tool('pay', {}, (_args, ctx) => ctx.effect('pay', () => 'paid', { once: true }))
    await client.call('tools/call', { name: 'pay', arguments: {} })
    const refused = { ...PLACE, outcome: 'refused', code: 'STORE_UNAVAILABLE' }
    expect(of('round').at(-1)).toMatchObject(refused)
  })

  it('is logged with flow and round in multi-turn SSE', async () => {
    const { server, of } = start({ sessions: {}, store: failing() })
    const client = await connectTurns((request) => server.fetch(request), 'http://127.0.0.1/mcp')
    server.tool('pay', { once: true }, (_args, ctx) =>
      ctx.ask('word', { message: 'Word?', schema: FORM }).then(String),
    )
    await client.request('tools/call', { name: 'pay', arguments: {} })
    expect(of('warning')).toMatchObject([{ ...PLACE, round: 1, error }])
  })

  // The store is asked whether the request counts before the round itself begins.
  describe.each(['rounds', 'multi-turn SSE'])('before a round that counts once, in %s', (form) => {
    it.each([
      ['is logged with flow and round', away, [{ round: 2, error }]],
      [
        'is logged with flow and round if its own code threw',
        () => Promise.reject(new TypeError('The driver is broken')),
        [{ round: 2, error: { message: 'The driver is broken' } }],
      ],
      ['logs nothing if it answers', undefined, []],
    ])('%s', async (_, claim, expected) => {
      const store = createMemoryStore()
      const once = { ...store.once, ...(claim && { claim }) }
      const { server, of } = start({ sessions: {}, store: { ...store, once } })
      server.tool('pay', { once: true }, async (_args, ctx) => {
        await ctx.ask('word', { message: 'Word?', schema: FORM })
        return 'paid'
      })
      if (form === 'rounds') {
        const pay = (params = {}) =>
          send(server, 'tools/call', { name: 'pay', arguments: {}, ...params }, only)
        const { result } = await pay()
        await pay({ requestState: result?.requestState, inputResponses: accept('hi') })
      } else {
        const client = await connectTurns((request) => server.fetch(request), 'http://127.0.0.1/mcp')
        const turn = await client.request('tools/call', { name: 'pay', arguments: {} })
        await client.answer(turn, [accept('hi').word])
      }
      const [first, second] = of('round')
      expect(first).toMatchObject({ ...PLACE, round: 1, outcome: 'input_required' })
      expect(second?.outcome).toBe(claim ? undefined : 'complete')
      expect(of('warning')).toMatchObject(expected.map((line) => ({ ...line, flow: first?.flow })))
    })
  })
})

describe('a session of an earlier era', () => {
  it('has a line when it opens and when it closes, without its id', async () => {
    const { server, of, events } = start({ sessions: {} })
    const client = await connectOlder('http://127.0.0.1/mcp', {}, (request) => server.fetch(request))
    await client.remove()
    const protocolVersion = '2025-11-25'
    const [opened, closed] = of('session')
    expect(opened).toMatchObject({ level: 'info', instance: 'one', phase: 'opened', protocolVersion })
    expect(closed).toMatchObject({ phase: 'closed', session: opened?.session })
    expect(client.sessionId).toBeTruthy()
    expect(JSON.stringify(events)).not.toContain(client.sessionId)
  })
})
