/** A server with defaults, or with the options in `OPTIONS`, in a separate process whose heap a test limits. */

import { createServer, generateKey } from 'rondo'

/** JSON has no infinity; a test that removes a limit writes it as a string. */
const options = JSON.parse(process.env.OPTIONS ?? '{}', (_key, value) =>
  value === 'Infinity' ? Number.POSITIVE_INFINITY : value,
)
const server = createServer({ name: 'heap', version: '1.0.0', keys: generateKey(), log: 'off', ...options })
server.tool('echo', {}, () => 'still here')
server.tool('wait', {}, () => new Promise<string>(() => {}))
server.tool('ask', {}, async ({ list }, ctx) => {
  await ctx.confirm('sure', 'Sure?')
  return `asked ${(list as unknown[]).length}`
})
server.resource('notes://today', { name: 'Today' }, () => 'Buy milk')
const { port } = await server.listen({ port: 0, signals: false })
process.send?.({ port })
