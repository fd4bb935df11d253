import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { Hono } from 'hono'
import { generateKey } from 'rondo'
import { createBench } from 'rondo/testing'
import { describe, expect, it } from 'vitest'
import { connectOlder } from '../test/support/older-client.ts'
import { provider } from './13-or-argument.ts'
import { createApp as createExpressApp } from './serve-express.ts'

const options = { keys: generateKey(), log: 'off' } as const
const bucket = { name: 'create_bucket', arguments: { name: 'photos' } }
const eu = { action: 'accept', content: { region: 'eu' } }

describe('13 or argument', () => {
  it('asks a client of 2026-07-28 in a round, unless the argument is there', async () => {
    const bench = createBench((given) => provider(given))
    const asked = await bench.tool('create_bucket', { name: 'photos' }).run({ region: { region: 'eu' } })
    expect(asked).toMatchObject({ text: 'Created photos in eu' })
    const told = await bench.tool('create_bucket', { name: 'photos', region: 'us' }).next()
    expect(told).toMatchObject({ text: 'Created photos in us' })
  })

  it('B10 returns -32021 to a client of 2026-07-28 that cannot be asked', async () => {
    const bench = createBench((given) => provider(given))
    const round = await bench.tool('create_bucket', { name: 'photos' }, { capabilities: {} }).next()
    expect(round).toMatchObject({ code: -32021, data: { requiredCapabilities: { elicitation: {} } } })
  })

  it('F1 pushes the question to an older client, and tells one that cannot be asked what to send', async () => {
    const server = provider(options)
    const { url } = await server.listen({ port: 0, signals: false })
    const asked = await connectOlder(url, { capabilities: { elicitation: {} }, answer: () => eu })
    expect((await asked.call('tools/call', bucket)).result).toMatchObject({
      content: [{ text: 'Created photos in eu' }],
    })
    const silent = await connectOlder(url)
    expect((await silent.call('tools/call', bucket)).result).toMatchObject({
      isError: true,
      content: [{ text: expect.stringContaining('call again with the argument "region"') }],
    })
    await server.close()
  })
})

describe('older clients of a server inside a framework', () => {
  it('F1 have no session with `server.fetch`, and cannot be asked', async () => {
    const server = provider(options)
    const client = await connectOlder(
      'http://127.0.0.1/mcp',
      { capabilities: { elicitation: {} } },
      server.fetch,
    )
    expect(client.sessionId).toBeUndefined()
    expect((await client.call('tools/list')).result).toMatchObject({ tools: [{ name: 'create_bucket' }] })
    const refused = await client.call('tools/call', bucket)
    expect(JSON.stringify(refused.result)).toMatch(/isError/)
    expect(JSON.stringify(refused.result)).toMatch(/keeps no session/)
  })

  it('F1 have a session inside Hono if `sessions` is set', async () => {
    const server = provider({ ...options, sessions: {} })
    const app = new Hono()
    app.all('/mcp', (c) => server.fetch(c.req.raw))
    const send = async (request: Request): Promise<Response> => app.fetch(request)
    const client = await connectOlder(
      'http://127.0.0.1/mcp',
      { capabilities: { elicitation: {} }, answer: () => eu },
      send,
    )
    expect((await client.call('tools/call', bucket)).result).toMatchObject({
      content: [{ text: 'Created photos in eu' }],
    })
    const stream = await client.get()
    server.tool('new', {}, () => '')
    expect(await stream.next()).toMatchObject({ method: 'notifications/tools/list_changed' })
    await stream.drop()
    expect((await client.remove()).status).toBe(200)
    await server.close()
  })

  it('F1 have a session inside Express', async () => {
    const http = createExpressApp(options).listen(0, '127.0.0.1')
    await once(http, 'listening')
    const client = await connectOlder(`http://127.0.0.1:${(http.address() as AddressInfo).port}/mcp`)
    expect(client.sessionId).toBeDefined()
    expect((await client.call('tools/call', { name: 'hello' })).result).toMatchObject({
      content: [{ text: 'Hello from Express' }],
    })
    expect((await client.remove()).status).toBe(200)
    http.close()
  })
})
