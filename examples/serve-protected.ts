import { createServer, type ServerOptions } from 'rondo'
import { oauthResource } from 'rondo/oauth'
import { z } from 'zod'

export function createProtected(issuer: string, options?: Partial<ServerOptions>) {
  const authenticate = oauthResource({
    resource: 'https://mcp.example.com/mcp',
    issuers: [issuer],
    scopes: ['tickets:read'],
  })
  const server = createServer({ name: 'desk', version: '1.0.0', authenticate, ...options })

  server.tool('tickets', {}, (_args, { principal }) => `The tickets of ${principal?.subject}`)

  server.tool(
    'refund',
    { input: z.object({ amount: z.number() }), scopes: ['tickets:write'] },
    async ({ amount }, ctx) => ((await ctx.confirm('sure', `Refund ${amount}?`)) ? 'Refunded' : 'Kept'),
  )

  server.tool(
    'archive',
    {
      input: z.object({ team: z.string() }),
      scopes: ({ team }) => ['tickets:write', `team:${team}`],
    },
    ({ team }) => `Archived the tickets of ${team}`,
  )
  return server
}
