/** tmcp with its HTTP transport. Its state is JSON that the client can read and change: it has no codec of its own. */

import { ZodJsonSchemaAdapter } from '@tmcp/adapter-zod'
import { HttpTransport } from '@tmcp/transport-http'
import { McpServer } from 'tmcp'
import { tool } from 'tmcp/utils'
import { listen } from './listen.js'
import { Answer, DESCRIPTION, Input, NAME, questionFor, resultFor } from './work.js'

export function start() {
  const server = new McpServer(
    { name: 'bench', version: '1.0.0', description: 'bench' },
    { adapter: new ZodJsonSchemaAdapter(), capabilities: { tools: {} } },
  )
  server.tool(
    { name: NAME, description: DESCRIPTION, schema: Input, replayable: true },
    async ({ id, resolution }) => {
      if (resolution !== undefined) return tool.text(resultFor(id, resolution))
      const answer = await server.elicitation(questionFor(id), Answer, { key: 'resolution' })
      return tool.text(resultFor(id, answer.content.resolution))
    },
  )
  const transport = new HttpTransport(server)
  return listen(async (request) => (await transport.respond(request)) ?? new Response(null, { status: 404 }))
}
