/**
 * A mount in the programs people have: Express behind bearer tokens, Express with a session for each client, and Hono with
 * tools by hand beside ours. Driven by the official clients of both generations and by ours.
 */

import { randomUUID } from 'node:crypto'
import type { Server as HttpServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { serve as serveHono } from '@hono/node-server'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/client'
import {
  createMcpExpressApp,
  type OAuthTokenVerifier,
  requireBearerAuth,
} from '@modelcontextprotocol/express'
import { createMcpHonoApp } from '@modelcontextprotocol/hono'
import { NodeStreamableHTTPServerTransport, toNodeHandler } from '@modelcontextprotocol/node'
import { StreamableHTTPClientTransport as V1Transport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import {
  acceptedContent,
  type CallToolResult,
  createMcpHandler,
  createRequestStateCodec,
  inputRequired,
  McpServer,
  OAuthError,
  OAuthErrorCode,
} from '@modelcontextprotocol/server'
import { generateKey } from 'rondo'
import { connect } from 'rondo/client'
import { createRondo } from 'rondo/sdk'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import { type Scenario, scenarios } from '../scenarios/scenario.ts'
import { connectOfficial, OLDER } from '../support/official-client.ts'
import { onOurServer } from '../support/our-server.ts'
import { serveScenarios } from '../support/sdk-server.ts'
import { connectV1 } from '../support/v1-client.ts'

const text = (value: string): CallToolResult => ({ content: [{ type: 'text', text: value }] })
const confirmed = z.object({ confirm: z.boolean() })
const accept = (content: object) =>
  ({ action: 'accept', content: content as Record<string, string> }) as const
const yes = { elicitation: { form: () => accept({ confirm: true }) } }
const textOf = ({ content }: { content: readonly unknown[] }) => (content[0] as { text: string }).text

async function listening(listen: (ready: () => void) => HttpServer) {
  const server = await new Promise<HttpServer>((resolve) => {
    const http = listen(() => resolve(http))
  })
  return {
    url: new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`),
    close() {
      server.closeAllConnections()
      return new Promise((resolve) => server.close(resolve))
    },
  }
}
type Listening = Awaited<ReturnType<typeof listening>>

describe('Express behind bearer tokens', () => {
  const rondo = createRondo({
    audience: 'bank',
    keys: generateKey(),
    log: 'off',
    store: createMemoryStore(),
  })
  const report = rondo.tool(
    async (_args, ctx) => {
      const sure = await ctx.confirm('sure', 'Make it?')
      await ctx.background()
      return text(`${ctx.principal?.subject}: ${sure}`)
    },
    { task: 'auto' },
  )
  const build = () => {
    const server = rondo.tasks(new McpServer({ name: 'bank', version: '1.0.0' }))
    server.registerTool(
      'transfer',
      { inputSchema: z.object({ to: z.string() }) },
      rondo.tool(async ({ to }, ctx) =>
        text(`${ctx.principal?.subject} to ${to}: ${await ctx.confirm('sure', `Send to ${to}?`)}`),
      ),
    )
    server.registerTool('report', {}, report)
    return server
  }
  /** `alice@app` is Alice behind the client `app`; a token without a name has no user. */
  const verifier: OAuthTokenVerifier = {
    async verifyAccessToken(token) {
      const [sub, clientId = ''] = token.split('@')
      if (clientId === '') throw new OAuthError(OAuthErrorCode.InvalidToken, 'unknown token')
      const expiresAt = Math.floor(Date.now() / 1000) + 3600
      const extra = sub === '' ? {} : { sub, iss: 'https://id.example' }
      return { token, clientId, scopes: [], expiresAt, extra }
    },
  }
  let bank: Listening

  beforeAll(async () => {
    const handle = toNodeHandler(createMcpHandler(build))
    const app = createMcpExpressApp({ jsonLimit: '1mb' })
    app.all('/mcp', requireBearerAuth({ verifier }), (req, res) => void handle(req, res, req.body))
    bank = await listening((ready) => app.listen(0, '127.0.0.1', ready))
  })
  afterAll(async () => {
    await bank.close()
    await rondo.close()
  })

  const bearer = (token: string) => ({ Authorization: `Bearer ${token}` })
  const asOurs = (token: string) => connect(bank.url.href, { headers: bearer(token), answers: yes })
  const transfer = { method: 'tools/call', target: 'transfer', args: { to: 'bob' } } as const

  it('serves rounds to the official client and to ours', async () => {
    const transport = new StreamableHTTPClientTransport(bank.url, {
      requestInit: { headers: bearer('alice@app') },
    })
    const official = await connectOfficial(transport)
    expect((await official.run(transfer, { sure: { confirm: true } })).text).toBe('alice to bob: true')
    await official.close()
    await using ours = await asOurs('alice@app')
    expect(textOf(await ours.callTool('transfer', { to: 'bob' }))).toBe('alice to bob: true')
  })

  it('lets our client follow a task', async () => {
    await using ours = await asOurs('alice@app')
    expect(textOf(await ours.callTool('report'))).toBe('alice: true')
  })

  it.each([
    ['another user', 'eve@app', -32602],
    ['the same user behind another client', 'alice@other', -32602],
    ['a token of no user', '@app', -32603],
    ['a token that is none', 'alice', undefined],
    ['the same user: the control', 'alice@app', 'alice to bob: true'],
  ])('T1 treats a state sent by %s correctly', async (_name, token, outcome) => {
    const send = async (as: string, params: object) => {
      const _meta = {
        'io.modelcontextprotocol/protocolVersion': '2026-07-28',
        'io.modelcontextprotocol/clientCapabilities': { elicitation: { form: {} } },
      }
      const call = { name: 'transfer', arguments: { to: 'bob' }, _meta, ...params }
      const response = await fetch(bank.url, {
        method: 'POST',
        headers: {
          ...bearer(as),
          'content-type': 'application/json',
          accept: 'application/json, text/event-stream',
          'mcp-protocol-version': '2026-07-28',
          'mcp-method': 'tools/call',
          'mcp-name': 'transfer',
        },
        body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: call }),
      })
      return {
        status: response.status,
        body: (await response.json()) as { result?: CallToolResult; error?: { code?: number } },
      }
    }
    const { body: asked } = await send('alice@app', {})
    const requestState = asked.result?.requestState
    expect(requestState).toMatch(/^r1\./)
    const inputResponses = { sure: { action: 'accept', content: { confirm: true } } }
    const { status, body } = await send(token, { requestState, inputResponses })
    const { result, error } = body
    if (outcome === undefined) expect(status).toBe(401)
    else expect(result ? textOf(result) : error?.code).toBe(outcome)
  })
})

describe('Express with a session for each client', () => {
  const { factory, rondo, world } = serveScenarios(scenarios, { keys: generateKey(), dev: false })
  const sessions = new Map<string, NodeStreamableHTTPServerTransport>()
  let served: Listening

  beforeAll(async () => {
    const app = createMcpExpressApp({ jsonLimit: '1mb' })
    app.all('/mcp', async (req, res) => {
      const id = req.headers['mcp-session-id']
      const known = typeof id === 'string' ? sessions.get(id) : undefined
      if (known) return known.handleRequest(req, res, req.body)
      if (req.method !== 'POST') return void res.status(404).end()
      const transport = new NodeStreamableHTTPServerTransport({
        sessionIdGenerator: () => randomUUID(),
        onsessioninitialized: (session) => void sessions.set(session, transport),
      })
      await factory().connect(transport)
      await transport.handleRequest(req, res, req.body)
    })
    served = await listening((ready) => app.listen(0, '127.0.0.1', ready))
  })
  afterAll(async () => {
    for (const transport of sessions.values()) await transport.close()
    await served.close()
    await rondo.close()
  })

  type Run = (scenario: Scenario) => Promise<{ text: string; isError: boolean }>
  const clients: [string, (url: URL) => Promise<{ run: Run; close(): Promise<void> }>][] = [
    [
      'the official client of the first generation',
      async (url) => {
        const client = await connectV1(new V1Transport(url) as never)
        return { run: (scenario) => client.run(scenario, scenario.script), close: client.close }
      },
    ],
    [
      'the official client of the second generation',
      async (url) => {
        const client = await connectOfficial(new StreamableHTTPClientTransport(url), OLDER)
        return { run: (scenario) => client.run(scenario, scenario.script), close: client.close }
      },
    ],
  ]
  const mounted = scenarios.filter(({ manual }) => !manual)

  describe.each(clients)('with %s', (_name, open) => {
    it('R10 F1 gets the result that every carrier returns', async () => {
      const client = await open(served.url)
      for (const scenario of mounted) {
        world.effects.length = 0
        const ended = await client.run(scenario)
        const ours = await onOurServer(scenario)
        expect(ended, scenario.name).toEqual({ text: ours.text, isError: ours.isError })
        expect(world.effects, scenario.name).toEqual(ours.world.effects)
      }
      await client.close()
    })
  })

  it('F1 asks our client over its session', async () => {
    const asking = scenarios.find(({ name }) => name === 'one question') as Scenario
    await using client = await connect(served.url.href, {
      mode: '2025-11-25',
      answers: {
        elicitation: {
          form: () => accept(Object.values(asking.script)[0] ?? {}),
        },
      },
    })
    expect(textOf(await client.callTool(asking.target, asking.args as never))).toBe(asking.text)
  })
})

describe('Hono with tools by hand beside ours', () => {
  const codec = createRequestStateCodec<{ asked: true }>({ key: new Uint8Array(32).fill(3) })
  const rondo = createRondo({ audience: 'mixed', keys: generateKey(), log: 'off' })
  const build = () => {
    const server = rondo.mount(
      new McpServer(
        { name: 'mixed', version: '1.0.0' },
        { requestState: { verify: rondo.verify(codec.verify) } },
      ),
    )
    server.registerTool('add', { inputSchema: z.object({ a: z.number(), b: z.number() }) }, ({ a, b }) =>
      text(String(a + b)),
    )
    server.registerTool('by_hand', {}, async (ctx) => {
      const state = ctx.mcpReq.requestState<{ asked: true }>()
      const answer = acceptedContent(ctx.mcpReq.inputResponses, 'sure', confirmed)
      if (state && answer) return text(`by hand: ${answer.confirm}`)
      const sure = inputRequired.elicit({ message: 'Sure?', requestedSchema: confirmed })
      return inputRequired({
        inputRequests: { sure },
        requestState: await codec.mint({ asked: true }, ctx),
      })
    })
    server.registerTool(
      'ours',
      {},
      rondo.tool(async (_args, ctx) => text(`ours: ${await ctx.confirm('sure', 'Sure?')}`)),
    )
    return server
  }
  let served: Listening

  beforeAll(async () => {
    const handler = createMcpHandler(build)
    const app = createMcpHonoApp()
    app.all('/mcp', (c) => handler.fetch(c.req.raw))
    served = await listening(
      (ready) => serveHono({ fetch: app.fetch, port: 0, hostname: '127.0.0.1' }, ready) as HttpServer,
    )
  })
  afterAll(async () => {
    await served.close()
    await rondo.close()
  })

  const tools = [
    ['by_hand', 'by hand: true'],
    ['ours', 'ours: true'],
  ] as const

  it.each(tools)('asks the official client and ours for "%s"', async (target, outcome) => {
    const official = await connectOfficial(new StreamableHTTPClientTransport(served.url))
    const ended = await official.run({ method: 'tools/call', target }, { sure: { confirm: true } })
    expect(ended).toEqual({ text: outcome, isError: false })
    await official.close()
    await using ours = await connect(served.url.href, { answers: yes })
    expect(ours.protocolVersion).toBe('2026-07-28')
    expect(textOf(await ours.callTool(target))).toBe(outcome)
  })

  it('F1 tells an older client that it cannot be asked, and serves everything else', async () => {
    const client = await connectV1(new V1Transport(served.url) as never)
    const add = { method: 'tools/call', target: 'add', args: { a: 1, b: 2 } } as const
    expect(await client.run(add)).toEqual({ text: '3', isError: false })
    const ended = await client.run({ method: 'tools/call', target: 'ours' }, { sure: { confirm: true } })
    expect(ended).toMatchObject({ isError: true, text: expect.stringContaining('cannot be asked') })
    expect(client.asked).toEqual([])
    await client.close()
  })
})
