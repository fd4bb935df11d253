/** W7, W5: subscriptions to resources pass between the eras, belong to one caller each, and end with it. */

import { createServer as createHttp } from 'node:http'
import type { AddressInfo } from 'node:net'
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client'
import { toNodeHandler } from '@modelcontextprotocol/node'
import { Client as V1Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StreamableHTTPClientTransport as V1Transport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import { McpServer as V1Server } from '@modelcontextprotocol/sdk/server/mcp.js'
import {
  ResourceUpdatedNotificationSchema,
  SubscribeRequestSchema,
  UnsubscribeRequestSchema,
} from '@modelcontextprotocol/sdk/types.js'
import { createMcpHandler, McpServer } from '@modelcontextprotocol/server'
import type { GatewayOptions } from '@rondo/gateway'
import { createServer, generateKey } from 'rondo'
import { connect } from 'rondo/client'
import { describe, expect, it, onTestFinished } from 'vitest'
import { MODERN } from '../support/official-client.ts'
import { serveV1 } from '../support/v1-server.ts'
import { serveGateway } from './peers.ts'

const URI = 'notes://today'
const OTHER = 'notes://tomorrow'
const NOTES = [URI, OTHER]

interface Behind {
  readonly url: string
  update(uri: string): void
  /** URIs that somebody watches there now. */
  watched(): readonly string[]
}

const upstreams: Readonly<Record<string, () => Promise<Behind>>> = {
  async 'official 2.4'() {
    const open = new Map<object, readonly string[]>()
    const handler = createMcpHandler(() => {
      const server = new McpServer(
        { name: 'notes', version: '1.0.0' },
        { capabilities: { resources: { subscribe: true } }, instructions: 'Read before you write.' },
      )
      for (const uri of NOTES)
        server.registerResource(uri, uri, {}, async () => ({ contents: [{ uri, text: 'Buy milk' }] }))
      return server
    })
    const serve = toNodeHandler(handler as never) as (...args: unknown[]) => void
    const http = createHttp((request, response) => {
      const chunks: Buffer[] = []
      const listening = request.headers['mcp-method'] === 'subscriptions/listen'
      request.on('data', (chunk: Buffer) => {
        chunks.push(chunk)
        if (!listening) return
        const { params } = JSON.parse(Buffer.concat(chunks).toString())
        open.set(response, params.notifications.resourceSubscriptions ?? [])
      })
      response.on('close', () => open.delete(response))
      serve(request, response)
    })
    await new Promise<void>((resolve) => http.listen(0, '127.0.0.1', resolve))
    onTestFinished(() => {
      http.closeAllConnections()
      http.close()
    })
    return {
      url: `http://127.0.0.1:${(http.address() as AddressInfo).port}/mcp`,
      update: (uri) => handler.notify.resourceUpdated(uri),
      watched: () => [...open.values()].flat(),
    }
  },
  async 'official 1.32'() {
    const sessions = new Map<V1Server, Set<string>>()
    const v1 = await serveV1(() => {
      const server = new V1Server(
        { name: 'notes', version: '1.0.0' },
        { capabilities: { resources: { subscribe: true } }, instructions: 'Read before you write.' },
      )
      for (const uri of NOTES)
        server.registerResource(uri, uri, {}, async () => ({ contents: [{ uri, text: 'Buy milk' }] }))
      const watched = new Set<string>()
      sessions.set(server, watched)
      server.server.setRequestHandler(SubscribeRequestSchema, ({ params }) => {
        watched.add(params.uri)
        return {}
      })
      server.server.setRequestHandler(UnsubscribeRequestSchema, ({ params }) => {
        watched.delete(params.uri)
        return {}
      })
      return server
    })
    onTestFinished(() => v1.close())
    return {
      url: v1.url,
      update(uri) {
        for (const [server, watched] of sessions)
          if (watched.has(uri)) void server.server.sendResourceUpdated({ uri })
      },
      watched: () => [...sessions.values()].flatMap((one) => [...one]),
    }
  },
}

interface Watching {
  readonly instructions: string | undefined
  readonly updates: string[]
  watch(uri: string): Promise<void>
  unwatch(): Promise<void>
  close(): Promise<void>
}

const clients: Readonly<Record<string, (url: string) => Promise<Watching>>> = {
  async 'official 2.4'(url) {
    const client = new Client({ name: 'watching', version: '1.0.0' }, MODERN)
    const updates: string[] = []
    client.setNotificationHandler('notifications/resources/updated', ({ params }) => {
      updates.push(params.uri)
    })
    await client.connect(new StreamableHTTPClientTransport(new URL(url)))
    onTestFinished(() => client.close())
    const open: { close(): Promise<void> }[] = []
    return {
      instructions: client.getInstructions(),
      updates,
      watch: async (uri) => void open.push(await client.listen({ resourceSubscriptions: [uri] })),
      unwatch: async () => open.shift()?.close(),
      close: () => client.close(),
    }
  },
  async 'official 1.32'(url) {
    const client = new V1Client({ name: 'watching', version: '1.0.0' })
    const updates: string[] = []
    client.setNotificationHandler(ResourceUpdatedNotificationSchema, ({ params }) => {
      updates.push(params.uri)
    })
    const transport = new V1Transport(new URL(url))
    await client.connect(transport as never)
    onTestFinished(() => client.close())
    return {
      instructions: client.getInstructions(),
      updates,
      watch: async (uri) => void (await client.subscribeResource({ uri })),
      unwatch: async () => void (await client.unsubscribeResource({ uri: URI })),
      async close() {
        await transport.terminateSession()
        await client.close()
      },
    }
  },
}

const cells = Object.keys(clients).flatMap((client) =>
  Object.keys(upstreams).map((upstream) => ({ client, upstream })),
)

describe.each(cells)('W7 a subscription of a client of $client at a server of $upstream', (cell) => {
  const through = async () => {
    const behind = await (upstreams[cell.upstream] as () => Promise<Behind>)()
    const { url } = await serveGateway({ notes: { url: behind.url } })
    const client = await (clients[cell.client] as (url: string) => Promise<Watching>)(url)
    return { behind, client }
  }

  it('reports updates of the watched resources, and ends upstream with the caller', async () => {
    const { behind, client } = await through()
    expect(client.instructions).toBe('Read before you write.')
    await client.watch(URI)
    await expect.poll(behind.watched).toEqual([URI])
    behind.update(OTHER)
    behind.update(URI)
    await expect.poll(() => client.updates).toEqual([URI])
    await client.watch(OTHER)
    await expect.poll(() => [...new Set(behind.watched())].sort()).toEqual(NOTES)
    behind.update(OTHER)
    await expect.poll(() => client.updates).toContain(OTHER)
    await client.unwatch()
    await expect.poll(behind.watched).toEqual([OTHER])
    await client.close()
    await expect.poll(behind.watched).toEqual([])
  })
})

/** A gateway whose callers are named by a header, in front of a server that records who listens. */
async function forCallers(options: Partial<GatewayOptions> = {}) {
  const server = createServer({ name: 'notes', version: '1.0.0', keys: generateKey(), log: () => {} })
  for (const uri of NOTES) server.resource(uri, { name: uri }, () => 'Buy milk')
  const { url } = await server.listen({ port: 0, signals: false, graceMs: 100 })
  onTestFinished(() => server.close())
  const headers: string[] = []
  const credentials = (caller?: { readonly subject?: string }) => {
    headers.push(caller?.subject ?? '')
    return { 'X-User': caller?.subject ?? '' }
  }
  const authenticate: GatewayOptions['authenticate'] = ({ headers: read }) => ({
    subject: read('x-caller') ?? 'nobody',
  })
  const served = await serveGateway({ notes: { url, credentials } }, { authenticate, ...options })
  const as = async (subject: string) => {
    const client = await connect(served.url, { headers: { 'X-Caller': subject } })
    onTestFinished(() => client.close())
    return client
  }
  return { ...served, server, headers, as }
}

describe('W5 subscriptions of several callers', () => {
  it('use the credentials of their own caller', async () => {
    const { as, headers } = await forCallers()
    const ann = await as('ann')
    const before = headers.length
    await ann.subscribe({ resourceSubscriptions: [URI] }).filter
    await expect.poll(() => headers.slice(before)).toContain('ann')
  })

  it('R9 are bounded per caller by hold.maxWatched', async () => {
    const { as } = await forCallers({ hold: { maxWatched: 1 } })
    const [ann, ben] = [await as('ann'), await as('ben')]
    await ann.subscribe({ resourceSubscriptions: [URI] }).filter
    const more = ann.subscribe({ resourceSubscriptions: [OTHER] }, { retries: 0 })
    await expect(more.filter).rejects.toThrow()
    expect(await ben.subscribe({ resourceSubscriptions: [OTHER] }).filter).toEqual({
      resourceSubscriptions: [OTHER],
    })
  })

  it.each<ReturnType<NonNullable<GatewayOptions['decide']>>>([
    'deny',
    { deny: 'secret' },
    'confirm',
    'approve',
  ])('W9 never reach a resource of which decide says %o to the caller', async (verdict) => {
    const asked: string[] = []
    const { as, server } = await forCallers({
      decide: ({ tool }) => {
        asked.push(tool)
        return tool === URI ? verdict : 'allow'
      },
    })
    const ann = await as('ann')
    const subscription = ann.subscribe({ resourceSubscriptions: NOTES })
    const changes = subscription[Symbol.asyncIterator]()
    await subscription.filter
    await expect.poll(() => asked).toEqual(NOTES)
    const next = changes.next()
    let isDone = false
    void next.then(() => {
      isDone = true
    })
    await expect
      .poll(() => {
        server.updated(URI)
        server.updated(OTHER)
        return isDone
      })
      .toBe(true)
    expect((await next).value).toEqual({ kind: 'resource', uri: OTHER })
    subscription.close()
  })
})

it('W7 joins the instructions of several servers behind their names, after those of the gateway', async () => {
  const serve = async (instructions: string): Promise<{ url: string }> => {
    const server = createServer({ name: 'x', version: '1.0.0', keys: generateKey(), instructions, log() {} })
    server.tool('run', {}, () => 'done')
    onTestFinished(() => server.close())
    return { url: (await server.listen({ port: 0, signals: false, graceMs: 100 })).url }
  }
  const upstreams = { crm: await serve('Be brief.'), files: await serve('Ask first.') }
  const { url } = await serveGateway(upstreams, { instructions: 'Two servers.' })
  for (const mode of ['2026-07-28', '2025-11-25'] as const) {
    const client = await connect(url, { mode })
    onTestFinished(() => client.close())
    expect(client.server.instructions).toBe('Two servers.\n\ncrm: Be brief.\n\nfiles: Ask first.')
  }
})
