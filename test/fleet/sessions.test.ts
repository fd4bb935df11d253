/** Sessions of older clients on several instances that share a store: what changes is known to all of them. */

import { describe, expect, it } from 'vitest'
import { type OpenHandle, shareMemory, shareSqlite } from '../support/fleet-stores.ts'
import type { Message, OlderClient, OpenStream } from '../support/older-client.ts'
import { startFleet } from '../support/older-fleet.ts'
import { until } from '../support/store/store-harness.ts'

const STORES: readonly (readonly [string, () => Promise<OpenHandle>])[] = [
  ['memory', shareMemory],
  ['SQLite', shareSqlite],
]

async function next(stream: OpenStream, method: string): Promise<Message> {
  for (let message = await stream.next(); message; message = await stream.next()) {
    if (message.method === method) return message
  }
  throw new Error(`The stream ended before ${method}`)
}

const ping = (client: OlderClient) => client.post({ jsonrpc: '2.0', id: 99, method: 'ping' })

describe.each(STORES)('a fleet that shares a store: %s', (_name, share) => {
  it('J1 a session that was ended on one instance is unknown to all of them, and its streams end', async () => {
    const open = await share()
    const { connect, route, instances } = await startFleet(3, () => ({ store: open() }))
    const client = await connect()
    route(2)
    const stream = await client.get()
    expect(stream.status).toBe(200)
    route(1)
    expect((await client.remove()).status).toBe(200)
    for (let i = 0; i < 3; i++) expect((await ping(client)).status).toBe(404)
    expect((await client.remove()).status).toBe(404)
    expect(await stream.next()).toBeUndefined()
    expect(instances).toHaveLength(3)
  })

  it('J1 a log level that was set on one instance counts on all of them', async () => {
    const open = await share()
    const { connect, instances } = await startFleet(2, () => ({ store: open() }))
    for (const { server } of instances)
      server.tool('log', {}, (_args, ctx) => {
        ctx.log('info', 'a line')
        return ''
      })
    const client = await connect()
    const logs = () => client.received.filter(({ method }) => method === 'notifications/message').length
    for (let i = 0; i < 2; i++) {
      await client.call('logging/setLevel', { level: 'error' })
      const before = logs()
      for (let call = 0; call < 2; call++) await client.call('tools/call', { name: 'log', arguments: {} })
      expect(logs()).toBe(before)
    }
    await client.call('logging/setLevel', { level: 'info' })
    for (let call = 0; call < 2; call++) await client.call('tools/call', { name: 'log', arguments: {} })
    expect(logs()).toBe(2)
  })

  it('J2 a resource that was subscribed to on one instance and updated on another is announced on the stream of a third', async () => {
    const open = await share()
    const { connect, route, instances } = await startFleet(3, () => ({ store: open() }))
    const client = await connect()
    route(2)
    const stream = await client.get()
    route(0)
    await client.call('resources/subscribe', { uri: 'test://watched' })
    instances[1]?.server.updated('test://other')
    instances[1]?.server.updated('test://watched')
    expect(await next(stream, 'notifications/resources/updated')).toMatchObject({
      params: { uri: 'test://watched' },
    })
    route(1)
    await client.call('resources/unsubscribe', { uri: 'test://watched' })
    instances[0]?.server.updated('test://watched')
    instances[0]?.server.tool('new', {}, () => '')
    expect(await next(stream, 'notifications/tools/list_changed')).toBeDefined()
    expect(stream.messages.filter(({ method }) => method === 'notifications/resources/updated')).toHaveLength(
      1,
    )
  })

  it('J2 a subscription of 2026-07-28 learns of changes on every instance', async () => {
    const open = await share()
    const { instances } = await startFleet(2, () => ({ store: open() }))
    const [first, second] = instances
    const meta = {
      'io.modelcontextprotocol/protocolVersion': '2026-07-28',
      'io.modelcontextprotocol/clientCapabilities': {},
    }
    const notifications = {
      toolsListChanged: true,
      promptsListChanged: true,
      resourceSubscriptions: ['test://watched'],
    }
    const response = await fetch(first?.url ?? '', {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        accept: 'application/json, text/event-stream',
        'mcp-protocol-version': '2026-07-28',
        'mcp-method': 'subscriptions/listen',
      },
      body: JSON.stringify({
        jsonrpc: '2.0',
        id: 1,
        method: 'subscriptions/listen',
        params: { notifications, _meta: meta },
      }),
    })
    let text = ''
    const reading = (async () => {
      for await (const chunk of response.body?.pipeThrough(new TextDecoderStream()) ?? []) text += chunk
    })()
    await until('the acknowledgement', () => text.includes('acknowledged'))
    second?.server.tool('new', {}, () => '')
    second?.server.prompt('new', {}, () => 'text')
    second?.server.updated('test://watched')
    await until('all three', () =>
      ['tools/list_changed', 'prompts/list_changed', 'test://watched"}'].every((part) =>
        text.slice(text.indexOf('\n\n')).includes(part.replace('"}', '')),
      ),
    )
    await first?.server.close()
    await reading
  })

  it('J1 a cancellation reaches the call on another instance', async () => {
    const open = await share()
    const { connect, route, instances } = await startFleet(2, () => ({ store: open() }))
    const client = await connect()
    route(0)
    const stream = await client.post({
      jsonrpc: '2.0',
      id: 5,
      method: 'tools/call',
      params: { name: 'wait' },
    })
    await next(stream, 'notifications/message')
    route(1)
    await client.notify('notifications/cancelled', { requestId: 5 })
    await instances[0]?.aborted
  })
})

it('J1 without a store, an ended session is unknown only where it ended', async () => {
  const { connect, route } = await startFleet(2)
  const client = await connect()
  route(0)
  await client.remove()
  expect((await ping(client)).status).toBe(200)
  expect((await ping(client)).status).toBe(404)
})
