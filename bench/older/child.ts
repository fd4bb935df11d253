/**
 * A server for older clients in a process of its own: `child.js SERVER TRANSPORT ADDRESS`, with no store without an address. Reports its
 * address over HTTP, and its CPU time when asked.
 */

import { randomUUID } from 'node:crypto'
import { createServer as createHttpServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js'
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js'
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js'
import { createServer, type Server } from 'rondo'
import { openBuiltStore } from '../task/built-store.ts'
import type { StoreAddress } from '../task/subject.ts'
import { Answer, DESCRIPTION, Input, questionFor, resultFor, SECRET } from '../work.ts'

export type OlderMessage =
  | { readonly kind: 'listening'; readonly url?: string }
  | { readonly kind: 'used'; readonly micros: number }

const SCHEMA = {
  type: 'object',
  properties: { resolution: { type: 'string', enum: ['Fixed', 'Duplicate', 'By Design'] } },
  required: ['resolution'],
} as const

function createRondo(address: StoreAddress | null): Server {
  const store = address && openBuiltStore(address)
  const named = {
    name: 'older',
    version: '1.0.0',
    keys: `bench:${SECRET}`,
    log: 'off',
    sessions: {},
  } as const
  const server = createServer({ ...named, ...(store && { store }) })
  const described = { description: DESCRIPTION, input: Input, task: 'never' } as const
  server.tool('plain', described, ({ id }) => resultFor(id, 'Fixed'))
  server.tool('ask', described, async ({ id }, ctx) => {
    const { resolution } = await ctx.ask('resolution', { message: questionFor(id), schema: Answer })
    return resultFor(id, resolution)
  })
  return server
}

/** The official server of the SDK's first version, as its examples put it together. */
function createOfficial(): McpServer {
  const server = new McpServer({ name: 'older', version: '1.0.0' })
  const described = { description: DESCRIPTION, inputSchema: Input.shape }
  const text = (id: number, resolution: string) => ({
    content: [{ type: 'text' as const, text: resultFor(id, resolution) }],
  })
  server.registerTool('plain', described, ({ id }) => text(id, 'Fixed'))
  server.registerTool('ask', described, async ({ id }, { requestId }) => {
    const params = { mode: 'form' as const, message: questionFor(id), requestedSchema: SCHEMA }
    // On the stream of the call itself.
    const { content } = await server.server.elicitInput(params as never, { relatedRequestId: requestId })
    return text(id, String(content?.resolution))
  })
  return server
}

async function listenOfficial(): Promise<string> {
  const sessions = new Map<string, StreamableHTTPServerTransport>()
  const open = async (): Promise<StreamableHTTPServerTransport> => {
    const transport: StreamableHTTPServerTransport = new StreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      onsessioninitialized: (id) => void sessions.set(id, transport),
    })
    await createOfficial().connect(transport)
    return transport
  }
  const http = createHttpServer(async (req, res) => {
    const transport = sessions.get(String(req.headers['mcp-session-id'])) ?? (await open())
    await transport.handleRequest(req, res)
  })
  await new Promise<void>((resolve) => http.listen(0, '127.0.0.1', resolve))
  return `http://127.0.0.1:${(http.address() as AddressInfo).port}/mcp`
}

async function start(
  name: string,
  transport: string,
  address: StoreAddress | null,
): Promise<string | undefined> {
  if (name === 'official') {
    if (transport === 'http') return listenOfficial()
    await createOfficial().connect(new StdioServerTransport())
    return undefined
  }
  const server = createRondo(address)
  if (transport === 'http') return (await server.listen({ port: 0, signals: false })).url
  void server.stdio({ signals: false })
  return undefined
}

const tell = (message: OlderMessage): void => void process.send?.(message)
const [name = '', transport = '', address = 'null'] = process.argv.slice(2)
process.on('message', () => {
  const { user, system } = process.cpuUsage()
  tell({ kind: 'used', micros: user + system })
})
process.on('disconnect', () => process.exit())
const url = await start(name, transport, JSON.parse(address))
tell({ kind: 'listening', url })
