/**
 * A server made with the official package of the first generation, for our client to talk to. It has the tools of
 * `official-server.ts`, and pushes its questions while the call is open.
 */

import { randomUUID } from 'node:crypto'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js'
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js'
import { SubscribeRequestSchema, UnsubscribeRequestSchema } from '@modelcontextprotocol/sdk/types.js'
import { z } from 'zod'

const text = (value: string) => ({ content: [{ type: 'text' as const, text: value }] })

const form = (message: string, ...fields: string[]) => ({
  mode: 'form' as const,
  message,
  requestedSchema: {
    type: 'object' as const,
    properties: Object.fromEntries(fields.map((field) => [field, { type: 'string' as const }])),
    required: fields,
  },
})

export function createV1Server(): McpServer {
  const server = new McpServer(
    { name: 'v1', version: '1.32.0' },
    { capabilities: { logging: {}, resources: { subscribe: true, listChanged: true } } },
  )
  registerPlainTools(server)
  registerAskingTools(server)
  registerOthers(server)
  return server
}

function registerPlainTools(server: McpServer): void {
  server.registerTool('add', { inputSchema: { a: z.number(), b: z.number() } }, async ({ a, b }) =>
    text(String(a + b)),
  )
  server.registerTool('progress', {}, async ({ _meta, sendNotification }) => {
    for (const progress of [1, 2, 3]) {
      if (_meta?.progressToken === undefined) break
      const params = { progressToken: _meta.progressToken, progress, total: 3 }
      await sendNotification({ method: 'notifications/progress', params })
    }
    return text('done')
  })
  server.registerTool('talk', {}, async ({ sendNotification }) => {
    for (const level of ['debug', 'warning'] as const) {
      await sendNotification({ method: 'notifications/message', params: { level, data: `a ${level}` } })
    }
    return text('said')
  })
  server.registerTool('hang', {}, async ({ signal }) => {
    await new Promise((resolve) => signal.addEventListener('abort', resolve))
    cancelled.count += 1
    return text('too late')
  })
  server.registerTool('cancelled', {}, async () => text(String(cancelled.count)))
}

/** The number of calls of `hang` that were aborted. */
const cancelled = { count: 0 }

function registerAskingTools(server: McpServer): void {
  const ask = async (message: string, field: string, id: string | number): Promise<string> => {
    const { content } = await server.server.elicitInput(form(message, field), { relatedRequestId: id })
    return String(content?.[field])
  }
  server.registerTool('greet', {}, async ({ requestId }) => {
    const how = { relatedRequestId: requestId }
    const answer = await server.server.elicitInput(form('Who are you?', 'name'), how)
    return text(answer.action === 'accept' ? `Hello, ${answer.content?.name}!` : `nobody (${answer.action})`)
  })
  server.registerTool('greet_elsewhere', {}, async () => {
    const answer = await server.server.elicitInput(form('Who are you?', 'name'))
    return text(`Hello, ${answer.content?.name}!`)
  })
  server.registerTool('parallel', {}, async ({ requestId }) => {
    const sides = ['Left?', 'Right?'].map((side) => ask(side, 'value', requestId))
    return text((await Promise.all(sides)).join(' and '))
  })
  server.registerTool('three_rounds', { inputSchema: { id: z.number() } }, async ({ id }, { requestId }) => {
    const given: string[] = []
    for (const key of ['first', 'second', 'third']) given.push(await ask(`The ${key}?`, 'value', requestId))
    return text(`${id}: ${given.join(' ')}`)
  })
  server.registerTool('connect_account', {}, async ({ requestId }) => {
    const url = 'https://example.com/connect?x=1'
    const params = { mode: 'url' as const, message: 'Connect your account', url, elicitationId: randomUUID() }
    const answer = await server.server.elicitInput(params, { relatedRequestId: requestId })
    return text(`visit: ${answer.action}`)
  })
  server.registerTool('ask_model', {}, async ({ requestId }) => {
    const how = { relatedRequestId: requestId }
    const content = { type: 'text' as const, text: 'An idea?' }
    const idea = await server.server.createMessage(
      { messages: [{ role: 'user', content }], maxTokens: 10 },
      how,
    )
    const where = await server.server.listRoots({}, how)
    return text(JSON.stringify({ idea, where }))
  })
}

function registerOthers(server: McpServer): void {
  server.registerPrompt('brief', { argsSchema: { topic: z.string() } }, async ({ topic }, { requestId }) => {
    const how = { relatedRequestId: requestId }
    const { content } = await server.server.elicitInput(form('Which tone?', 'tone'), how)
    return { messages: [{ role: 'user', content: { type: 'text', text: `${topic}, ${content?.tone}` } }] }
  })
  server.registerResource('report', 'test://report', {}, async (uri, { requestId }) => {
    const how = { relatedRequestId: requestId }
    const { content } = await server.server.elicitInput(form('Which period?', 'period'), how)
    return { contents: [{ uri: uri.href, text: `report for ${content?.period}` }] }
  })
  const watched = new Set<string>()
  server.server.setRequestHandler(SubscribeRequestSchema, ({ params }) => {
    watched.add(params.uri)
    return {}
  })
  server.server.setRequestHandler(UnsubscribeRequestSchema, ({ params }) => {
    watched.delete(params.uri)
    return {}
  })
  server.registerTool('touch', { inputSchema: { uri: z.string() } }, async ({ uri }) => {
    if (watched.has(uri)) await server.server.sendResourceUpdated({ uri })
    server.sendToolListChanged()
    return text('touched')
  })
  server.registerTool('watched', {}, async () => text(JSON.stringify([...watched])))
}

export interface V1Http {
  readonly url: string
  /** Every message received, as `POST initialize`, `GET`, `DELETE`. */
  readonly seen: string[]
  readonly sessions: ReadonlyMap<string, StreamableHTTPServerTransport>
  /** Forgets every session, as a restart does. */
  forget(): void
  close(): Promise<void>
}

/** One server object for each session, as the package requires. */
export async function serveV1(create: () => McpServer = createV1Server): Promise<V1Http> {
  const sessions = new Map<string, StreamableHTTPServerTransport>()
  const seen: string[] = []
  const http = createServer((request, response) => {
    take(create, sessions, seen, request, response).catch(() => response.writeHead(500).end())
  })
  await new Promise<void>((resolve) => http.listen(0, '127.0.0.1', resolve))
  return {
    url: `http://127.0.0.1:${(http.address() as AddressInfo).port}/mcp`,
    seen,
    sessions,
    forget: () => sessions.clear(),
    close: () => closeHttp(http),
  }
}

async function take(
  create: () => McpServer,
  sessions: Map<string, StreamableHTTPServerTransport>,
  seen: string[],
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const body = await readBody(request)
  seen.push(`${request.method} ${body?.method ?? ''}`.trim())
  const id = request.headers['mcp-session-id']
  const known = typeof id === 'string' ? sessions.get(id) : undefined
  if (known) return known.handleRequest(request, response, body)
  if (id !== undefined) {
    const error = { code: -32001, message: 'Session not found' }
    response.writeHead(404, { 'Content-Type': 'application/json' })
    response.end(JSON.stringify({ jsonrpc: '2.0', id: null, error }))
    return
  }
  const transport: StreamableHTTPServerTransport = new StreamableHTTPServerTransport({
    sessionIdGenerator: randomUUID,
    onsessioninitialized: (session) => void sessions.set(session, transport),
  })
  await create().connect(transport as never)
  await transport.handleRequest(request, response, body)
}

async function readBody(request: IncomingMessage): Promise<{ method?: string } | undefined> {
  const chunks: Buffer[] = []
  for await (const chunk of request) chunks.push(chunk as Buffer)
  return chunks.length === 0 ? undefined : JSON.parse(Buffer.concat(chunks).toString())
}

async function closeHttp(http: Server): Promise<void> {
  const closed = new Promise((resolve) => http.close(resolve))
  http.closeAllConnections()
  await closed
}
