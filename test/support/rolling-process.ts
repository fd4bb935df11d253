/** One instance of a protected fleet: listens on PORT, accepts one token, and asks before it saves. */

import { createServer } from 'rondo'
import { oauthResource } from 'rondo/oauth'

const ISSUER = 'https://id.example'
const { PORT, RESOURCE = '' } = process.env
const server = createServer({
  name: 'rolling',
  version: '1.0.0',
  log: 'off',
  addressHeader: 'x-forwarded-for',
  authenticate: oauthResource({
    resource: RESOURCE,
    issuers: [{ issuer: ISSUER, jwks: { keys: [] } }],
    tokens: (token) =>
      token === 'good' ? { iss: ISSUER, aud: RESOURCE, sub: 'ann', client_id: 'load', exp: 4e9 } : undefined,
  }),
})
server.tool('save', {}, async (_args, ctx) => {
  const sure = await ctx.confirm('sure', 'Save it?')
  return ctx.effect('save', async () => (sure ? 'saved' : 'kept'))
})
await server.listen({ port: Number(PORT), ready: '/readyz', drainDelayMs: 500 })
process.send?.('ready')
