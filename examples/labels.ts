import { createServer, type ServerOptions } from 'rondo'
import { createSqliteStore } from 'rondo/sqlite'
import { z } from 'zod'

/** A task that an operator finds by the number of its order. */
export function shipping(options: Partial<ServerOptions>) {
  const server = createServer({ name: 'shipping', version: '1.0.0', ...options })
  server.tool('ship', { input: z.object({ order: z.string() }), task: 'auto' }, async ({ order }, ctx) => {
    ctx.label({ order })
    const carrier = await ctx.step('carrier', () => 'Hermes')
    ctx.label({ carrier })
    if (!(await ctx.confirm('sure', `Ship ${order} with ${carrier}?`))) return 'Nothing was shipped.'
    await ctx.effect('ship', async ({ key }) => `shipped under ${key}`)
    return `Shipped ${order}.`
  })
  return server
}

/** For `RONDO_KEYS="$(cat keys)" npx rondo console examples/labels.ts`, where `npx rondo keys new > keys` has made the file. */
export default (options?: Partial<ServerOptions>) =>
  shipping({ store: createSqliteStore({ file: 'shipping.db' }), ...options })
