/** A server as the guide shows it for Bun and Deno. Prints its port. */

import { createServer } from 'rondo'
import { z } from 'zod'

const hostname = '127.0.0.1'
const server = createServer({ name: 'runtime', version: '1.0.0', log: 'off' })

server.tool('resolve_bug', { input: z.object({ id: z.int() }) }, async ({ id }, ctx) => {
  const found = await ctx.step('find', () => `Bug #${id}`)
  const { resolution } = await ctx.ask('resolution', {
    message: `How was ${found} resolved?`,
    schema: z.object({ resolution: z.enum(['Fixed', 'Duplicate']) }),
  })
  return `${found} resolved as ${resolution}.`
})

if (globalThis.Deno !== undefined) {
  Deno.serve({ hostname, port: 0, onListen: ({ port }) => console.log(port) }, server.fetch)
} else {
  console.log(Bun.serve({ hostname, port: 0, fetch: server.fetch }).port)
}
