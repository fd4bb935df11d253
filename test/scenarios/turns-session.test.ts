/** Multi-turn SSE changes how questions travel and nothing else: a session in turns has every feature of a session (F5). */

import { createServer, type Server, type ServerOptions } from 'rondo'
import { describe, expect, it, onTestFinished } from 'vitest'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import { connectOlder, type Message, type OlderClient, type OpenStream } from '../support/older-client.ts'
import { accept, keys, URL, value } from '../support/turns-wire.ts'

const TURNS = { elicitation: {}, experimental: { 'multi-turn-sse': {}, 'request-state': {} } }

function make(options: Partial<ServerOptions> = {}): Server {
  const store = createMemoryStore()
  const server = createServer({
    name: 'session',
    version: '1',
    keys,
    log: 'off',
    sessions: {},
    store,
    ...options,
  })
  onTestFinished(() => server.close())
  server.resource('notes://today', { name: 'Today' }, () => 'Buy milk')
  server.tool('ask', {}, async (_args, ctx) => {
    ctx.log('debug', 'about to ask')
    const { value: name } = await ctx.ask('name', { message: 'Name?', schema: value })
    return `Hello ${name}`
  })
  server.tool('late', { task: 'auto' }, async (_args, ctx) => {
    const { value: name } = await ctx.ask('name', { message: 'Name?', schema: value })
    return `Late ${name}`
  })
  server.tool('only', { task: 'always' }, () => 'done')
  return server
}

const connect = (server: Server, capabilities: Message = TURNS): Promise<OlderClient> =>
  connectOlder(URL, { capabilities }, (request) => server.fetch(request))

const callOf = (name: string, more: Message = {}): Message => ({
  jsonrpc: '2.0',
  id: 'c',
  method: 'tools/call',
  params: { name, arguments: {}, ...more },
})

/** Reads to the end; returns the questions and the id of the last event. */
async function turnOf(stream: OpenStream): Promise<{ asked: Message[]; last: string }> {
  while (await stream.next()) expect(stream.messages.length).toBeLessThan(20)
  const asked = stream.messages.filter(({ id, method }) => id !== undefined && method !== undefined)
  return { asked, last: stream.ids.at(-1) ?? '' }
}

const answersTo = (asked: readonly Message[], content: Message): Message[] =>
  asked.map(({ id, state }) => ({ jsonrpc: '2.0', id, state, result: accept(content) }))

async function responseIn(stream: OpenStream, id: unknown): Promise<Message> {
  for (let message = await stream.next(); message; message = await stream.next()) {
    if (message.id === id && message.method === undefined) return message
  }
  throw new Error('no response')
}

describe('a session in turns', () => {
  it('F5 has every capability of other sessions', async () => {
    const server = make()
    const plain = await connect(server, { elicitation: {} })
    const turns = await connect(server)
    const offered = (client: OlderClient): Message =>
      (client.initialized.result as { capabilities: Message }).capabilities
    const { experimental, ...rest } = offered(turns)
    expect(experimental).toEqual({ 'multi-turn-sse': {}, 'request-state': {} })
    expect(rest).toEqual(offered(plain))
    expect(rest).toMatchObject({ logging: {}, tasks: {}, resources: { subscribe: true, listChanged: true } })
  })

  it('F5 receives log messages at the level that it sets', async () => {
    const client = await connect(make())
    const quiet = await client.post(callOf('ask'))
    await turnOf(quiet)
    expect(quiet.messages.map(({ method }) => method)).toEqual(['elicitation/create'])
    expect(await client.call('logging/setLevel', { level: 'debug' })).toMatchObject({ result: {} })
    const loud = await client.post(callOf('ask'))
    const { asked, last } = await turnOf(loud)
    expect(loud.messages.map(({ method }) => method)).toEqual(['notifications/message', 'elicitation/create'])
    const ended = await client.post(answersTo(asked, { value: 'Ada' }), { 'last-event-id': last })
    expect(await responseIn(ended, 'c')).toMatchObject({ result: { content: [{ text: 'Hello Ada' }] } })
  })

  it('F5 has its own stream, with resource updates and list changes', async () => {
    const server = make()
    const client = await connect(server)
    const stream = await client.get()
    expect(stream.status).toBe(200)
    expect(await client.call('resources/subscribe', { uri: 'notes://today' })).toMatchObject({ result: {} })
    server.updated('notes://today')
    expect(await stream.next()).toMatchObject({
      method: 'notifications/resources/updated',
      params: { uri: 'notes://today' },
    })
    server.tool('new', {}, () => 'new')
    expect(await stream.next()).toMatchObject({ method: 'notifications/tools/list_changed' })
    expect((await client.remove()).status).toBe(200)
    expect(await stream.next()).toBeUndefined()
  })

  it('F5 D1 supports tasks, and receives their questions', async () => {
    const client = await connect(make())
    const refused = await client.call('tools/call', { name: 'only', arguments: {} })
    expect(refused).toMatchObject({ error: { code: -32601 } })
    const created = await client.call('tools/call', { name: 'late', arguments: {}, task: { ttl: 60_000 } })
    const { taskId, ttl } = (created as { result: { task: { taskId: string; ttl: number } } }).result.task
    expect(ttl).toBe(60_000)
    const stream = await client.post({ jsonrpc: '2.0', id: 'r', method: 'tasks/result', params: { taskId } })
    let asked: Message | undefined
    while (asked?.method !== 'elicitation/create') asked = await stream.next()
    expect(await client.call('tasks/get', { taskId })).toMatchObject({ result: { status: 'input_required' } })
    const [response] = answersTo([asked], { value: 'Ada' })
    expect((await client.post(response)).status).toBe(202)
    expect(await responseIn(stream, 'r')).toMatchObject({ result: { content: [{ text: 'Late Ada' }] } })
    expect(await client.call('tasks/get', { taskId })).toMatchObject({ result: { status: 'completed' } })
  })

  it('F5 D1 receives the questions of a task in turns if sessions are off and states are echoed', async () => {
    const server = make({ sessions: undefined })
    for (const [experimental, can] of [
      [TURNS.experimental, true],
      [{ 'multi-turn-sse': {} }, false],
    ] as const) {
      const client = await connect(server, { elicitation: {}, experimental })
      const created = await client.call('tools/call', { name: 'late', arguments: {}, task: {} })
      const { taskId } = (created as { result: { task: { taskId: string } } }).result.task
      const stream = await client.post({
        jsonrpc: '2.0',
        id: 'r',
        method: 'tasks/result',
        params: { taskId },
      })
      const asked = await stream.next()
      if (!can) {
        expect(asked).toMatchObject({ id: 'r', error: { code: -32602 } })
        continue
      }
      expect((await client.post(answersTo([asked ?? {}], { value: 'Ada' })[0])).status).toBe(202)
      expect(await responseIn(stream, 'r')).toMatchObject({ result: { content: [{ text: 'Late Ada' }] } })
    }
  })

  it('F5 resumes a lost stream, even in the middle of a turn', async () => {
    const client = await connect(make())
    const first = await client.post(callOf('ask'))
    const { asked, last } = await turnOf(first)
    for (const from of first.ids.slice(0, -1)) {
      const again = await client.get({ 'last-event-id': from })
      expect(again.status).toBe(200)
      expect(await turnOf(again)).toMatchObject({ last })
      expect(again.ids).toEqual(first.ids.slice(first.ids.indexOf(from) + 1))
    }
    expect(asked).toHaveLength(1)
    expect((await client.get({ 'last-event-id': 'elsewhere_1' })).status).toBe(400)
  })

  it('F5 can cancel a call by its id, even after the first turn', async () => {
    const server = make()
    let aborted = false
    server.tool('wait', {}, async (_args, ctx) => {
      await ctx.ask('go', { message: 'Go?', schema: value })
      ctx.log('info', 'waiting')
      await new Promise<void>((resolve) => ctx.signal.addEventListener('abort', () => resolve()))
      aborted = true
      return 'too late'
    })
    const client = await connect(server)
    const { asked, last } = await turnOf(await client.post(callOf('wait')))
    const rest = await client.post(answersTo(asked, { value: 'x' }), { 'last-event-id': last })
    expect(await rest.next()).toMatchObject({ method: 'notifications/message' })
    await client.notify('notifications/cancelled', { requestId: 'c' })
    expect(await rest.next()).toBeUndefined()
    await expect.poll(() => aborted).toBe(true)
  })

  it('R9 occupies no memory while nothing is open', async () => {
    const server = make({ sessions: { maxSessions: 1 } })
    for (let i = 0; i < 3; i++) {
      const client = await connect(server)
      const { asked, last } = await turnOf(await client.post(callOf('ask')))
      const ended = await client.post(answersTo(asked, { value: 'Ada' }), { 'last-event-id': last })
      expect(await responseIn(ended, 'c')).toMatchObject({ result: { content: [{ text: 'Hello Ada' }] } })
    }
  })
})
