/**
 * The official server with sessions, as its examples put it together for clients of 2025-11-25: a transport and a server
 * for each session, questions pushed while the handler waits.
 */

import { randomUUID } from 'node:crypto'
import { createServer, type IncomingMessage } from 'node:http'
import { NodeStreamableHTTPServerTransport } from '@modelcontextprotocol/node'
import { McpServer } from '@modelcontextprotocol/server'
import { DESCRIPTION, Input, questionFor, resultFor, toolNames } from '../work.ts'
import { listenOnLoopback } from './listen-on-loopback.ts'
import type { StartServer } from './start.ts'

const SCHEMA = {
  type: 'object',
  properties: { resolution: { type: 'string', enum: ['Fixed', 'Duplicate', 'By Design'] } },
  required: ['resolution'],
} as const

function createSession(names: readonly string[]): McpServer {
  const server = new McpServer({ name: 'bench', version: '1.0.0' })
  for (const name of names) {
    server.registerTool(name, { description: DESCRIPTION, inputSchema: Input }, async ({ id }, ctx) => {
      const params = { mode: 'form', message: questionFor(id), requestedSchema: SCHEMA } as const
      // On the stream of the call itself; without the id it would need a second one.
      const options = { timeout: 3_600_000, relatedRequestId: ctx.mcpReq.id }
      const { content } = await ctx.mcpReq.elicitInput(params as never, options)
      return { content: [{ type: 'text', text: resultFor(id, String(content?.resolution)) }] }
    })
  }
  return server
}

async function openSession(
  names: readonly string[],
  sessions: Map<string, NodeStreamableHTTPServerTransport>,
): Promise<NodeStreamableHTTPServerTransport> {
  const transport = new NodeStreamableHTTPServerTransport({
    sessionIdGenerator: randomUUID,
    onsessioninitialized: (id) => void sessions.set(id, transport),
  })
  await createSession(names).connect(transport)
  return transport
}

export const start: StartServer = async (tools) => {
  const names = toolNames(tools)
  const sessions = new Map<string, NodeStreamableHTTPServerTransport>()
  const find = (req: IncomingMessage): NodeStreamableHTTPServerTransport | undefined =>
    sessions.get(String(req.headers['mcp-session-id']))
  return await listenOnLoopback(
    createServer(async (req, res) => {
      const transport = find(req) ?? (await openSession(names, sessions))
      await transport.handleRequest(req, res)
    }),
  )
}
