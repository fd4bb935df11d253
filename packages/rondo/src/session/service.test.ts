/** What a server of ours answers to older clients, without a network. */

import { createServer, type LogEvent, type Server, type ServerOptions } from 'rondo'
import { forwarding } from 'rondo/forward'
import { describe, expect, it, onTestFinished } from 'vitest'
import { z } from 'zod'
import { connectOlder, type Message, type OlderClient } from '../../../../test/support/older-client.ts'
import { settle } from '../../../../test/support/session-instances.ts'
import { RondoError } from '../errors.ts'
import { createMemoryStore } from '../store/memory/store.ts'
import type { RecordStore } from '../store/store.ts'

const KEYS = 'k:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE='

const topic = (text: string) => {
  if (text === 'x') throw new Error('broken')
  return ['music']
}

function start(options: Partial<ServerOptions> = {}) {
  const events: LogEvent[] = []
  const server: Server = createServer({
    name: 'older',
    version: '1.0.0',
    keys: KEYS,
    log: (event) => void events.push(event),
    authenticate: () => ({ subject: 'ada' }),
    sessions: {},
    ...options,
  })
  onTestFinished(() => server.close())
  server.tool('plain', { output: z.object({ n: z.number() }) }, () => ({ n: 1 }))
  server.tool('list', { output: z.array(z.string()) }, () => ['a'])
  server.tool('late', { task: 'auto', taskPollMs: 50 }, async (_args, ctx) => {
    const { name } = await ctx.ask('name', { message: 'Name?', schema: z.object({ name: z.string() }) })
    return `Late ${name}`
  })
  server.tool('twice', {}, async (_args, ctx) => {
    await Promise.all([ctx.step('same', () => 1), ctx.step('same', () => 2)])
  })
  server.tool('pay', {}, (_args, ctx) => ctx.effect('pay', () => 'paid'))
  if (options.store) server.tool('only', { task: 'always', taskPollMs: 50 }, () => 'done')
  server.prompt('late', {}, () => 'Be late')
  server.prompt('brief', { input: z.object({ topic: z.string() }), complete: { topic } }, () => 'Be brief')
  server.resource('notes://today', { name: 'Today' }, () => 'Buy milk')
  return { server, events }
}

const connect = (server: Server, version?: string): Promise<OlderClient> =>
  connectOlder('http://127.0.0.1/mcp', { version, capabilities: { elicitation: {} } }, (request) =>
    server.fetch(request),
  )
const rowsOf = async (client: OlderClient, list = 'tools') =>
  ((await client.call(`${list}/list`)).result as Record<string, Message[]>)[list] ?? []
const codeOf = ({ error }: Message) => (error as { code: number } | undefined)?.code

describe('the lists of an older client', () => {
  it('F1 describe outputs that are objects, and how tools run as tasks', async () => {
    const { server } = start({ store: createMemoryStore() })
    const client = await connect(server)
    const rows = await rowsOf(client)
    expect(
      rows.map(({ name, outputSchema, execution }) => [name, outputSchema !== undefined, execution]),
    ).toEqual([
      ['plain', true, { taskSupport: 'forbidden' }],
      ['list', false, { taskSupport: 'forbidden' }],
      ['late', false, { taskSupport: 'optional' }],
      ['twice', false, { taskSupport: 'forbidden' }],
      ['pay', false, { taskSupport: 'forbidden' }],
      ['only', false, { taskSupport: 'required' }],
    ])
    expect(rows[0]?.outputSchema).toMatchObject({ type: 'object' })
    for (const list of ['prompts', 'resources'])
      for (const row of await rowsOf(client, list)) expect(row).not.toHaveProperty('execution')
  })

  it('F1 do not require a task of a client that has tools for tasks', async () => {
    const { server } = start({ store: createMemoryStore(), tasks: { tools: true } })
    const rows = await rowsOf(await connect(server))
    expect(rows.find(({ name }) => name === 'only')?.execution).toEqual({ taskSupport: 'optional' })
  })

  it('F1 contain what the server lists for their caller, in the form of their era', async () => {
    const { server } = start({ store: createMemoryStore() })
    const found = { name: 'found', inputSchema: { type: 'object' }, outputSchema: { type: 'array' } }
    const asked: unknown[] = []
    forwarding(server).lists(async (listing, principal, declared) => {
      asked.push([listing, principal])
      if (listing === 'prompts') throw new Error('broken')
      return [...declared.filter(({ name }) => name === 'only'), found]
    })
    const client = await connect(server)
    expect(await rowsOf(client)).toEqual([
      expect.objectContaining({ name: 'only', execution: { taskSupport: 'required' } }),
      { name: 'found', inputSchema: { type: 'object' } },
    ])
    expect(asked).toMatchObject([['tools', { subject: 'ada' }]])
    expect(codeOf(await client.call('prompts/list'))).toBe(-32603)
  })

  it('contain what was declared since', async () => {
    const { server } = start()
    const client = await connect(server)
    const before = (await rowsOf(client)).length
    server.tool('more', {}, () => 'more')
    expect(await rowsOf(client)).toHaveLength(before + 1)
  })
})

describe('the requests of an older client', () => {
  it('F1 get errors that say what was wrong, as in other eras', async () => {
    const { server } = start()
    const client = await connect(server)
    expect(codeOf(await client.call('prompts/get', { name: 'unknown' }))).toBe(-32602)
    expect(codeOf(await client.call('tools/call', { name: 'unknown' }))).toBe(-32602)
    expect(codeOf(await client.call('resources/read', { uri: 'notes://unknown' }))).toBe(-32002)
    for (const method of ['tasks/get', 'tasks/result', 'tasks/cancel', 'tasks/list'])
      expect(codeOf(await client.call(method, { taskId: 'x' }))).toBe(-32601)
    expect(codeOf(await client.call('resources/subscribe', { uri: 'notes://today' }))).toBeUndefined()
  })

  it('D8 name tasks that exist', async () => {
    const { server } = start({ store: createMemoryStore() })
    const client = await connect(server)
    for (const method of ['tasks/get', 'tasks/result', 'tasks/cancel'])
      expect(codeOf(await client.call(method, { taskId: 'x' }))).toBe(-32602)
  })

  it('F1 are completed where there is something to complete', async () => {
    const { server } = start()
    const client = await connect(server)
    const ref = { type: 'ref/prompt', name: 'brief' }
    const complete = (value: string) =>
      client.call('completion/complete', { ref, argument: { name: 'topic', value } })
    expect((await complete('m')).result).toMatchObject({ completion: { values: ['music'] } })
    expect(codeOf(await complete('x'))).toBe(-32603)
  })

  it('R11 get an error, which the operator learns of, if an extension fails', async () => {
    const { server, events } = start()
    const broken = () => {
      throw new Error('broken')
    }
    server.use({
      name: 'vendor',
      methods: { 'vendor/breaks': broken },
      around: (call, next) => (call.method === 'prompts/list' ? broken() : next()),
    })
    const client = await connect(server)
    for (const method of ['vendor/breaks', 'prompts/list'])
      expect(codeOf(await client.call(method))).toBe(-32603)
    const warnings = events.filter(({ event }) => event === 'warning')
    expect(warnings).toMatchObject([{ error: { message: 'broken' } }, { error: { message: 'broken' } }])
  })

  it('R11 get an error of the call, not a result of its tool, if the tool misuses its context', async () => {
    const { server } = start()
    const reply = await (await connect(server)).call('tools/call', { name: 'twice' })
    expect([codeOf(reply), reply.result]).toEqual([-32603, undefined])
  })

  it.each([
    ['put', 'tools/call', { name: 'pay' }],
    ['get', 'ping', {}],
  ])(
    'R11 get an error, which the operator learns of, if the store fails to %s',
    async (broken, method, params) => {
      const store = createMemoryStore()
      const away = () => Promise.reject(new RondoError('STORE_UNAVAILABLE'))
      const { server, events } = start({
        store: { ...store, records: { ...(store.records as RecordStore), [broken]: away } },
      })
      const client = await connect(server)
      expect(codeOf(await client.call(method, params))).toBe(-32000)
      expect(events).toContainEqual(
        expect.objectContaining({
          event: 'warning',
          error: expect.objectContaining({ code: 'STORE_UNAVAILABLE' }),
        }),
      )
    },
  )

  it('F1 are served if the server has no draft', async () => {
    const { server } = start({ store: createMemoryStore(), turns: false })
    const client = await connect(server)
    expect((await client.call('tools/call', { name: 'plain' })).result).toMatchObject({
      structuredContent: { n: 1 },
    })
    const { result } = await client.call('tools/call', { name: 'only', task: {} })
    const { taskId } = (result as { task: { taskId: string } }).task
    expect((await client.call('tasks/result', { taskId })).result).toMatchObject({
      content: [{ text: 'done' }],
    })
  })
})

describe('a call that waits for a task', () => {
  const DAY_MS = 24 * 60 * 60_000

  it.each<[string, (client: OlderClient, server: Server) => Promise<unknown>]>([
    ['its client cancels it', (client) => client.notify('notifications/cancelled', { requestId: 'r' })],
    ['its server stops', (_, server) => server.close()],
  ])('J1 asks for at most a day, and ends as cancelled when %s', async (_, end) => {
    const store = createMemoryStore()
    const records = store.records as RecordStore
    const kept: number[] = []
    const put: RecordStore['put'] = (record) => {
      kept.push(record.ttlMs)
      return records.put(record)
    }
    const { server } = start({
      store: { ...store, records: { ...records, put } },
      now: () => 1_800_000_000_000,
      sessions: { resumeMs: 1_000 },
    })
    const replies: unknown[] = []
    server.use({
      name: 'seen',
      async around({ method }, next) {
        const reply = await next()
        if (method === 'tasks/result') replies.push(reply)
        return reply
      },
    })
    const client = await connect(server)
    const { result } = await client.call('tools/call', { name: 'late', task: { ttl: 60_000 } })
    const { taskId } = (result as { task: { taskId: string } }).task
    const params = { taskId }
    const stream = await client.post({ jsonrpc: '2.0', id: 'r', method: 'tasks/result', params })
    expect(await stream.next()).toMatchObject({ method: 'elicitation/create' })
    expect(kept).toEqual([DAY_MS + 1_000])
    await end(client, server)
    await expect.poll(() => replies).toMatchObject([{ kind: 'error', error: { code: 'PEER_REQUEST' } }])
  })
})

describe('the tasks that a session is notified of', () => {
  /** A server whose workers do nothing, with a store that shows who listens to it. */
  function startObserved() {
    const store = createMemoryStore()
    const listeners = new Set<Parameters<typeof store.tasks.onHint>[0]>()
    const state = { isGone: false, isBroken: false }
    const tasks: typeof store.tasks = {
      ...store.tasks,
      get: async (...given) => (state.isGone ? undefined : store.tasks.get(...given)),
      revisions: async (...given) => (state.isGone ? new Map() : store.tasks.revisions(...given)),
      onHint(listener) {
        if (state.isBroken) throw new Error('broken')
        listeners.add(listener)
        const stop = store.tasks.onHint(listener)
        return () => {
          listeners.delete(listener)
          stop()
        }
      },
    }
    const { server, events } = start({ store: { ...store, tasks }, tasks: { concurrency: 0 } })
    const warnings = () => events.filter(({ event }) => event === 'warning')
    const create = async (client: OlderClient) => {
      const { result } = await client.call('tools/call', { name: 'late', task: {} })
      return (result as { task: { taskId: string } }).task
    }
    return { server, listeners, state, warnings, create }
  }

  it('G7 are observed until they have ended, and not again', async () => {
    const { server, listeners, create } = startObserved()
    const client = await connect(server)
    const task = await create(client)
    await expect.poll(() => listeners.size).toBe(1)
    await client.call('tasks/cancel', task)
    await expect.poll(() => listeners.size).toBe(0)
    expect((await client.call('tasks/get', task)).result).toMatchObject({ status: 'cancelled' })
    await settle()
    expect(listeners.size).toBe(0)
  })

  it('G7 are observed until they have expired', async () => {
    const { server, listeners, state, warnings, create } = startObserved()
    const client = await connect(server)
    await create(client)
    await expect.poll(() => listeners.size).toBe(1)
    state.isGone = true
    for (const listener of [...listeners]) listener({ kind: 'changed' })
    await expect.poll(() => listeners.size).toBe(0)
    await settle()
    expect(warnings()).toEqual([])
  })

  it('cannot be observed if the store fails, which the operator learns of', async () => {
    const { server, state, warnings, create } = startObserved()
    const client = await connect(server)
    state.isBroken = true
    await create(client)
    await expect.poll(warnings).toMatchObject([{ error: { message: 'broken' } }])
  })
})

describe('the log of sessions', () => {
  it('has their beginning and their end, without an id that could be used', async () => {
    const { server, events } = start()
    const client = await connect(server, '2025-06-18')
    await client.remove()
    const sessions = events.filter(({ event }) => event === 'session')
    expect(sessions).toMatchObject([
      { phase: 'opened', protocolVersion: '2025-06-18', session: expect.stringMatching(/^[\w-]{16}$/) },
      { phase: 'closed', protocolVersion: '2025-06-18' },
    ])
    expect(JSON.stringify(sessions)).not.toContain(client.sessionId)
  })
})

describe('a session on two instances', () => {
  it('G7 J2 is notified of its tasks on its stream, wherever that is', async () => {
    const store = createMemoryStore()
    const [{ server: first }, { server: second }] = [start({ store }), start({ store })]
    let chosen = first
    const client = await connectOlder(
      'http://127.0.0.1/mcp',
      { capabilities: { elicitation: {} } },
      (request) => chosen.fetch(request),
    )
    chosen = second
    const own = await client.get()
    chosen = first
    const created = (await client.call('tools/call', { name: 'late', task: { ttl: 60_000 } })).result
    const { taskId } = (created as { task: { taskId: string } }).task
    const statuses: unknown[] = []
    for (let message = await own.next(); message; message = await own.next()) {
      const params = message.params as { taskId?: string; status?: string } | undefined
      if (message.method !== 'notifications/tasks/status' || params?.taskId !== taskId) continue
      statuses.push(params?.status)
      if (params?.status === 'input_required') await client.call('tasks/cancel', { taskId })
      if (params?.status === 'cancelled') break
    }
    expect(statuses.at(-1)).toBe('cancelled')
    await own.drop()
  })
})
