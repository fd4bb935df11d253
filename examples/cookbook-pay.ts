import { createServer, type ServerOptions } from 'rondo'
import { z } from 'zod'

export interface Shop {
  price(item: string): Promise<number>
  charge(order: { item: string; cents: number; idempotencyKey: string }): Promise<string>
}

/** Charges a customer once for what they agreed to, at the price that they saw. */
export function checkout(shop: Shop, options?: Partial<ServerOptions>) {
  const server = createServer({ name: 'checkout', version: '1.0.0', ...options })
  server.tool('buy', { input: z.object({ item: z.string() }) }, async ({ item }, ctx) => {
    const cents = await ctx.step('price', () => shop.price(item))
    if (!(await ctx.confirm('buy', `Buy ${item} for ${cents / 100} €?`))) return 'Nothing was bought.'
    const receipt = await ctx.effect(
      'charge',
      ({ key }) => shop.charge({ item, cents, idempotencyKey: key }),
      { retry: { times: 3, delay: '1 s' } },
    )
    return `Bought ${item} for ${cents / 100} €: ${receipt}.`
  })
  return server
}
