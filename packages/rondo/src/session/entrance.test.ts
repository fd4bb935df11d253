import { describe, expect, it } from 'vitest'
import type { Message, OlderClient, OpenStream } from '../../../../test/support/older-client.ts'
import { startOlder } from '../../../../test/support/older-server.ts'
import { generateKey } from '../seal/key-ring.ts'
import { createServer } from '../serve/server.ts'

const ASK = { jsonrpc: '2.0', id: 7, method: 'tools/call', params: { name: 'ask' } }
const ADA = { action: 'accept', content: { name: 'Ada' } }

/** Reads on until the question comes. */
async function question(stream: OpenStream): Promise<Message> {
  for (let message = await stream.next(); message; message = await stream.next()) {
    if (message.method === 'elicitation/create') return message
  }
  throw new Error('nothing was asked')
}

const resume = (client: OlderClient, stream: OpenStream, from = stream.ids.at(-1)): Promise<OpenStream> =>
  client.get({ 'last-event-id': from ?? '' })

describe('the stream of a call', () => {
  it('F1 resumes where it was lost, and sends the rest to a client that reconnects', async () => {
    const { connect, runs } = await startOlder()
    const client = await connect()
    const stream = await client.post(ASK)
    const { id } = await question(stream)
    await stream.drop()
    await client.respond(id, ADA)
    const rest = await resume(client, stream)
    expect(await rest.next()).toMatchObject({ id: 7, result: { content: [{ text: 'Hello Ada' }] } })
    expect(await rest.next()).toBeUndefined()
    expect(runs()).toBe(2)
  })

  it('F1 sends a question again that was not received, when the client resumes', async () => {
    const { connect } = await startOlder()
    const client = await connect()
    const stream = await client.post(ASK)
    await question(stream)
    await stream.drop()
    const [first] = stream.ids
    const rest = await resume(client, stream, first)
    const { id } = await question(rest)
    await client.respond(id, ADA)
    expect(await rest.next()).toMatchObject({ id: 7, result: {} })
  })

  it('begins with an event id and a retry time, and can be resumed after its end', async () => {
    const { connect } = await startOlder()
    const client = await connect()
    const stream = await client.post(ASK)
    const { id } = await question(stream)
    await client.respond(id, ADA)
    while (await stream.next()) expect(stream.ids.length).toBeLessThan(10)
    expect(stream.ids[0]).toMatch(/^[\w-]+-0$/)
    const again = await resume(client, stream, stream.ids[0])
    expect(await question(again)).toMatchObject({ id })
    expect(await again.next()).toMatchObject({ id: 7 })
  })

  it('begins without a priming event for a client whose version does not know it', async () => {
    const { connect } = await startOlder()
    const client = await connect({ version: '2025-06-18' })
    const stream = await client.post(ASK)
    await question(stream)
    expect(stream.ids[0]).toMatch(/^[\w-]+-1$/)
    expect(stream.ids).toHaveLength(stream.messages.length)
  })

  it.each(['', 'x', '1-99', '99-1', '1-1-1', '-1-1'])(
    'T15 cannot be resumed after the event id %j',
    async (last) => {
      const { connect } = await startOlder()
      const client = await connect()
      const stream = await client.post(ASK)
      await question(stream)
      const refused = await client.get({ 'last-event-id': last })
      expect(refused.status).toBe(400)
      expect(await refused.next()).toMatchObject({ error: { code: -32000 } })
    },
  )

  it('R9 is abandoned when nobody resumes it in time, and its call is cancelled', async () => {
    const { connect, aborted } = await startOlder({ sessions: { resumeMs: 60 } })
    const client = await connect()
    const stream = await client.post({ ...ASK, params: { name: 'wait' } })
    await stream.next()
    await stream.drop()
    await aborted
    expect((await resume(client, stream)).status).toBe(400)
    expect((await client.call('ping')).result).toEqual({})
  })

  it('F1 ends early if the operator set streamMs, and the client resumes it for the rest', async () => {
    // Long enough for the question, on a busy machine too.
    const { connect } = await startOlder({ sessions: { streamMs: 1_000 } })
    const client = await connect()
    const stream = await client.post(ASK)
    const { id } = await question(stream)
    expect(await stream.next()).toBeUndefined()
    await client.respond(id, ADA)
    const rest = await resume(client, stream)
    expect(await rest.next()).toMatchObject({ id: 7, result: {} })
  })
})

describe("the session's own stream", () => {
  it.each(['2024-11-05', '2025-03-26', '2025-06-18', '2025-11-25'])(
    'sends its headers at once, even at %s, where no event opens it',
    async (version) => {
      const { connect } = await startOlder({ keepAliveMs: 3_600_000 })
      const client = await connect({ version })
      const stream = await client.get()
      expect(stream.response.headers.get('content-type')).toBe('text/event-stream')
      await stream.drop()
    },
  )

  it('reports changed lists and subscribed resources, and nothing else', async () => {
    const { connect, server } = await startOlder()
    const client = await connect()
    const stream = await client.get()
    await client.call('resources/subscribe', { uri: 'notes://today' })
    await client.call('resources/subscribe', { uri: 'notes://later' })
    await client.call('resources/unsubscribe', { uri: 'notes://later' })
    server.updated('notes://later')
    server.updated('notes://today')
    expect(await stream.next()).toEqual({
      jsonrpc: '2.0',
      method: 'notifications/resources/updated',
      params: { uri: 'notes://today' },
    })
    server.tool('new', {}, () => '')
    expect(await stream.next()).toMatchObject({ method: 'notifications/tools/list_changed' })
    expect(JSON.stringify(await client.call('tools/list'))).toContain('"new"')
    server.remove('prompts', 'brief')
    expect(await stream.next()).toMatchObject({ method: 'notifications/prompts/list_changed' })
  })

  it('resumes where it was lost', async () => {
    const { connect, server } = await startOlder()
    const client = await connect()
    const stream = await client.get()
    server.tool('one', {}, () => '')
    await stream.next()
    await stream.drop()
    server.prompt('two', {}, () => '')
    const rest = await resume(client, stream)
    expect(await rest.next()).toMatchObject({ method: 'notifications/prompts/list_changed' })
  })

  it('exists once: a second one replaces the first', async () => {
    const { connect, server } = await startOlder()
    const client = await connect()
    const first = await client.get()
    const second = await client.get()
    expect(await first.next()).toBeUndefined()
    server.tool('one', {}, () => '')
    expect(await second.next()).toMatchObject({ method: 'notifications/tools/list_changed' })
  })

  it('ends with the session', async () => {
    const { connect } = await startOlder()
    const client = await connect()
    const stream = await client.get()
    const call = await client.post(ASK)
    await question(call)
    expect((await client.remove()).status).toBe(200)
    expect(await stream.next()).toBeUndefined()
    while (await call.next())
      expect(call.messages.at(-1)).toMatchObject({ method: 'notifications/cancelled' })
    expect((await client.get()).status).toBe(404)
  })
})

describe('the entrance of older clients over HTTP', () => {
  it('refuses GET and DELETE without a session, and all other methods', async () => {
    const { url } = await startOlder()
    for (const method of ['GET', 'DELETE', 'PUT']) {
      const response = await fetch(url, { method })
      expect(response.status).toBe(405)
      expect(response.headers.get('allow')).toBe('POST')
    }
  })

  it('T12 refuses a foreign origin before it looks for a session', async () => {
    const { connect } = await startOlder()
    const client = await connect()
    expect((await client.get({ origin: 'https://evil.example.com' })).status).toBe(403)
  })

  it('releases what it has of an idle session, which continues when its client comes back', async () => {
    let now = Date.now()
    const authenticate = () => ({ subject: 'alice' })
    const sessions = { resumeMs: 200, maxSessionsPerCaller: 1 }
    const { connect } = await startOlder({ now: () => now, authenticate, sessions })
    const client = await connect()
    expect((await client.call('ping')).result).toEqual({})
    expect((await connect()).initialized.error).toBeDefined()
    now += 30 * 60_000
    let left = 200
    while ((await connect()).initialized.error) if (--left === 0) throw new Error('the session stays')
    expect((await client.call('ping')).result).toEqual({})
  })

  it('J1 ends a session at the end of its lifetime, with 404', async () => {
    let now = Date.now()
    const { connect } = await startOlder({ now: () => now, sessions: { lifetimeMs: 60_000 } })
    const client = await connect()
    now += 59_999
    expect((await client.call('ping')).result).toEqual({})
    now += 1
    expect((await client.get()).status).toBe(404)
    expect((await client.post({ jsonrpc: '2.0', id: 1, method: 'ping' })).status).toBe(404)
  })
})

it('begins no session while the server drains, whatever id the request names', async () => {
  const server = createServer({ name: 's', version: '1', keys: generateKey(), log: 'off', sessions: {} })
  const initialize = (id: string) =>
    server.fetch(
      new Request('http://127.0.0.1/mcp', {
        method: 'POST',
        headers: { 'content-type': 'application/json', 'mcp-session-id': id },
        body: JSON.stringify({
          jsonrpc: '2.0',
          id: 1,
          method: 'initialize',
          params: {
            protocolVersion: '2025-11-25',
            capabilities: {},
            clientInfo: { name: 'c', version: '1' },
          },
        }),
      }),
    )
  expect((await initialize('stale')).status).toBe(200)
  server.drain()
  const response = await initialize('stale')
  expect([response.status, response.headers.get('retry-after')]).toEqual([503, '1'])
  await server.close()
})
