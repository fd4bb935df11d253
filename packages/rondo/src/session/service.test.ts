/** What a server of ours answers to older clients, without a network. */

import { createServer, type LogEvent, type Server, type ServerOptions } from 'rondo'
import { describe, expect, it, onTestFinished } from 'vitest'
import { z } from 'zod'
import { connectOlder, type Message, type OlderClient } from '../../../../test/support/older-client.ts'
import { createMemoryStore } from '../store/memory/store.ts'

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
  if (options.store) server.tool('only', { task: 'always', taskPollMs: 50 }, () => 'done')
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
