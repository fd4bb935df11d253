/** A server of ours that accepts the tokens of an authorization server, and asks for more scope where `refund` is called. */

import { createServer as createHttpServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { createServer, generateKey, type LogEvent } from 'rondo'
import { oauthResource } from 'rondo/oauth'
import { z } from 'zod'
import type { AuthorizationServer } from './authorization-server.ts'

export interface ProtectedServer {
  readonly url: string
  /** The log of the server. */
  readonly log: readonly LogEvent[]
  close(): Promise<void>
}

export async function startProtected(as: Pick<AuthorizationServer, 'issuer'>): Promise<ProtectedServer> {
  const http = createHttpServer()
  await new Promise<void>((resolve) => http.listen(0, '127.0.0.1', resolve))
  const url = `http://127.0.0.1:${(http.address() as AddressInfo).port}/mcp`
  const log: LogEvent[] = []
  const server = createServer({
    name: 'protected',
    version: '1.0.0',
    keys: generateKey(),
    log: (event) => void log.push(event),
    sessions: {},
    authenticate: oauthResource({
      resource: url,
      issuers: [as.issuer],
      scopes: ['tickets:read'],
      dpop: true,
    }),
  })
  server.tool('greet', { description: 'Greets', input: z.object({}) }, async (_, ctx) => {
    const { name } = await ctx.ask('name', { message: 'Your name?', schema: z.object({ name: z.string() }) })
    return `Hello ${name}, ${ctx.principal?.subject} of ${ctx.principal?.client}`
  })
  server.tool('whoami', { description: 'Says who calls', input: z.object({}) }, async (_, ctx) =>
    String(ctx.principal?.subject),
  )
  server.tool('refund', { description: 'Refunds', scopes: ['tickets:write'] }, async () => 'refunded')
  http.on('request', server.nodeHandler())
  return {
    url,
    log,
    async close() {
      await server.close()
      http.closeAllConnections()
      await new Promise((resolve) => http.close(resolve))
    },
  }
}
