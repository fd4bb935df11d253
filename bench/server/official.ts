/**
 * The official server through its own entrance for Node, put together as its README shows: guards for host and origin,
 * a factory that registers the tools. Its codec signs the state and does nothing else; there is nothing to bind.
 */

import { createServer } from 'node:http'
import { localhostHostValidation, localhostOriginValidation, toNodeHandler } from '@modelcontextprotocol/node'
import {
  acceptedContent,
  createMcpHandler,
  createRequestStateCodec,
  inputRequired,
  McpServer,
  type ServerContext,
} from '@modelcontextprotocol/server'
import {
  Answer,
  DESCRIPTION,
  Input,
  QUESTION_KEY,
  questionFor,
  resultFor,
  SECRET,
  toolNames,
} from '../work.ts'
import { listenOnLoopback } from './listen-on-loopback.ts'
import type { StartServer } from './start.ts'

const codec = createRequestStateCodec<{ id: number }>({ key: SECRET })

const text = (value: string) => ({ content: [{ type: 'text' as const, text: value }] })

async function resolveBug({ id, resolution }: { id: number; resolution?: string }, ctx: ServerContext) {
  if (resolution !== undefined) return text(resultFor(id, resolution))
  const state = ctx.mcpReq.requestState<{ id: number }>()
  const answer = acceptedContent(ctx.mcpReq.inputResponses, QUESTION_KEY, Answer)
  if (state !== undefined && answer !== undefined) return text(resultFor(state.id, answer.resolution))
  const question = inputRequired.elicit({ message: questionFor(id), requestedSchema: Answer })
  return inputRequired({
    inputRequests: { [QUESTION_KEY]: question },
    requestState: await codec.mint({ id }, ctx),
  })
}

export const start: StartServer = async (tools) => {
  const names = toolNames(tools)
  const handler = createMcpHandler(() => {
    const server = new McpServer(
      { name: 'bench', version: '1.0.0' },
      { requestState: { verify: codec.verify } },
    )
    for (const name of names) {
      server.registerTool(name, { description: DESCRIPTION, inputSchema: Input }, resolveBug)
    }
    return server
  })
  const handle = toNodeHandler(handler)
  const [isHostAllowed, isOriginAllowed] = [localhostHostValidation(), localhostOriginValidation()]
  const server = createServer((req, res) => {
    if (isHostAllowed(req, res) && isOriginAllowed(req, res)) void handle(req, res)
  })
  return await listenOnLoopback(server)
}
