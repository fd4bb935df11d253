/** The effects of the mount that official clients notice besides the answers: progress, logs, cancelling, and not being askable. */

import { randomUUID } from 'node:crypto'
import { Client, type ClientOptions, StreamableHTTPClientTransport } from '@modelcontextprotocol/client'
import {
  type CallToolResult,
  createMcpHandler,
  InMemoryTransport,
  McpServer,
  WebStandardStreamableHTTPServerTransport,
} from '@modelcontextprotocol/server'
import { serveStdio } from '@modelcontextprotocol/server/stdio'
import { createRondo, generateKey } from 'rondo/sdk'
import { describe, expect, it } from 'vitest'
import { connectOfficial, MODERN, type OfficialClient, OLDER } from '../support/official-client.ts'

const text = (value: string): CallToolResult => ({ content: [{ type: 'text', text: value }] })

function createServers() {
  const rondo = createRondo({ audience: 'clients', keys: generateKey(), log: 'off' })
  let started: (signal: AbortSignal) => void = () => {}
  const hanging = new Promise<AbortSignal>((resolve) => {
    started = resolve
  })
  const factory = () => {
    const server = rondo.mount(
      new McpServer({ name: 'clients', version: '1.0.0' }, { capabilities: { logging: {} } }),
    )
    server.registerTool(
      'work',
      {},
      rondo.tool(async (_args, ctx) => {
        for (const done of [1, 2, 3]) ctx.progress(done, 3)
        ctx.log('debug', 'too fine')
        ctx.log('warning', 'worked')
        return text(String(await ctx.confirm('sure', 'Sure?')))
      }),
    )
    server.registerTool(
      'hang',
      {},
      rondo.tool(async (_args, ctx) => {
        started(ctx.signal)
        await new Promise((resolve) => ctx.signal.addEventListener('abort', resolve))
        return text('too late')
      }),
    )
    server.registerPrompt(
      'ask',
      {},
      rondo.prompt(async (_args, ctx) => {
        await ctx.confirm('sure', 'Sure?')
        return { messages: [] }
      }),
    )
    return server
  }
  return { factory, hanging }
}

function inMemory(factory: () => McpServer, options?: ClientOptions): Promise<OfficialClient> {
  const [near, far] = InMemoryTransport.createLinkedPair()
  serveStdio(factory, { transport: far })
  return connectOfficial(near as never, options)
}

function byFetch(
  fetch: (request: Request) => Promise<Response>,
  options?: ClientOptions,
): Promise<OfficialClient> {
  const transport = new StreamableHTTPClientTransport(new URL('http://127.0.0.1/mcp'), {
    fetch: (url, init) => fetch(new Request(url, init)),
  })
  return connectOfficial(transport, options)
}

const ways: [string, (factory: () => McpServer) => Promise<OfficialClient>][] = [
  ['HTTP', (factory) => byFetch(createMcpHandler(factory).fetch, MODERN)],
  ['memory', (factory) => inMemory(factory, MODERN)],
  ['memory, older', (factory) => inMemory(factory, OLDER)],
]

describe.each(ways)('a client over %s', (_name, connect) => {
  it('receives progress, in every round only what is new', async () => {
    const { client, asked, answer } = await connect(createServers().factory)
    answer({ sure: { confirm: true } })
    const seen: number[] = []
    const result = await client.callTool(
      { name: 'work', arguments: {} },
      { onprogress: ({ progress }) => void seen.push(progress) },
    )
    expect(result.content).toMatchObject([{ text: 'true' }])
    expect(asked).toEqual(['Sure?'])
    expect(seen.slice(0, 3)).toEqual([1, 2, 3])
  })

  it('can cancel a call, and the signal of the handler fires', async () => {
    const { factory, hanging } = createServers()
    const { client } = await connect(factory)
    const controller = new AbortController()
    const call = client.callTool({ name: 'hang', arguments: {} }, { signal: controller.signal })
    const signal = await hanging
    expect(signal.aborted).toBe(false)
    const fired = new Promise((resolve) => signal.addEventListener('abort', resolve))
    controller.abort('enough')
    await expect(call).rejects.toThrow('enough')
    await fired
  })
})

describe('an older client', () => {
  it('gets log messages from the level that it set', async () => {
    const official = await inMemory(createServers().factory, OLDER)
    const logged: unknown[] = []
    official.client.setNotificationHandler('notifications/message', ({ params }) => {
      logged.push(params.data)
    })
    await official.client.setLoggingLevel('info')
    await official.run({ method: 'tools/call', target: 'work' }, { sure: { confirm: true } })
    expect(new Set(logged)).toEqual(new Set(['worked']))
  })

  it('that cannot be asked gets the reason, as an isError result for a tool', async () => {
    const told = expect.stringMatching(/cannot be asked: .*"Sure\?".* Nothing was done/)
    const [near, far] = InMemoryTransport.createLinkedPair()
    serveStdio(createServers().factory, { transport: far })
    const client = new Client({ name: 'mute', version: '1.0.0' })
    await client.connect(near as never)
    const result = await client.callTool({ name: 'work', arguments: {} })
    expect(result).toMatchObject({ isError: true, content: [{ text: told }] })
    await expect(client.getPrompt({ name: 'ask' })).rejects.toMatchObject({
      code: -32603,
      message: told,
    })
  })

  it('gets the reason on an endpoint without streams', async () => {
    const official = await byFetch(createMcpHandler(createServers().factory).fetch, OLDER)
    const ended = await official.run({ method: 'tools/call', target: 'work' })
    expect(ended).toMatchObject({ isError: true, text: expect.stringContaining('stays open') })
  })

  it('is asked over a session of the official server', async () => {
    const server = createServers().factory()
    const transport = new WebStandardStreamableHTTPServerTransport({ sessionIdGenerator: randomUUID })
    await server.connect(transport)
    const official = await byFetch((request) => transport.handleRequest(request), OLDER)
    const ended = await official.run({ method: 'tools/call', target: 'work' }, { sure: { confirm: true } })
    expect(ended).toEqual({ text: 'true', isError: false })
    expect(official.asked).toEqual(['Sure?'])
    await official.close()
  })
})
