/** mcp-handler, whose questions are those of the official server that it is built on, with its codec that signs states. */

import { acceptedContent, createRequestStateCodec, inputRequired } from '@modelcontextprotocol/server'
import { createMcpHandler } from 'mcp-handler'
import { listen } from './listen.js'
import { Answer, DESCRIPTION, Input, NAME, questionFor, resultFor } from './work.js'

const codec = createRequestStateCodec({ key: 'S0mCq3yZ1xgQ0f5l7Rk2vWn8bT4uJ6hEaP9dKcMiXoU=' })

const text = (value) => ({ content: [{ type: 'text', text: value }] })

async function resolveBug({ id, resolution }, ctx) {
  if (resolution !== undefined) return text(resultFor(id, resolution))
  const state = ctx.mcpReq.requestState()
  const answer = acceptedContent(ctx.mcpReq.inputResponses, 'resolution', Answer)
  if (state !== undefined && answer !== undefined) return text(resultFor(state.id, answer.resolution))
  return inputRequired({
    inputRequests: {
      resolution: inputRequired.elicit({ message: questionFor(id), requestedSchema: Answer }),
    },
    requestState: await codec.mint({ id }, ctx),
  })
}

export function start() {
  const respond = createMcpHandler(
    (server) => server.registerTool(NAME, { description: DESCRIPTION, inputSchema: Input }, resolveBug),
    { serverInfo: { name: 'bench', version: '1.0.0' }, requestState: { verify: codec.verify } },
  )
  return listen(respond)
}
