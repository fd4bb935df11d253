import { createServer, type ServerOptions } from 'rondo'
import { z } from 'zod'

/** A payment provider that honours idempotency keys: one key, one charge. */
export function createProvider() {
  const charges = new Map<string, number>()
  return {
    charges,
    price: async (item: string) => item.length * 10,
    charge: async (cents: number, { idempotencyKey }: { idempotencyKey: string }) => {
      charges.set(idempotencyKey, cents)
      return { receipt: `r-${charges.size}` }
    },
  }
}

/** The result of a step is recorded. So is that of an effect, which also has the same key in every attempt. */
export function shop(provider = createProvider(), options?: Partial<ServerOptions>) {
  const server = createServer({ name: 'shop', version: '1.0.0', ...options })
  server.tool(
    'buy',
    { description: 'Buy an item', input: z.object({ item: z.string() }) },
    async ({ item }, ctx) => {
      const cents = await ctx.step('price', () => provider.price(item))
      if (!(await ctx.confirm('pay', `Pay ${cents} cents for ${item}?`))) return 'Nothing was charged.'
      const { receipt } = await ctx.effect('charge', ({ key }) =>
        provider.charge(cents, { idempotencyKey: key }),
      )
      return `Bought ${item} for ${cents} cents, receipt ${receipt}.`
    },
  )
  return server
}

/** For `npx rondo console examples/03-steps-and-effects.ts`. */
export default (options?: Partial<ServerOptions>) => shop(createProvider(), options)

if (process.argv[1] === import.meta.filename) {
  const { url } = await shop().listen()
  console.log(`Serving ${url}\nCall it: npx rondo call ${url} buy item=tea`)
}
