import { createServer, EventExpired, type ServerOptions } from 'rondo'
import { z } from 'zod'

/** Messages that leave the shop: a request to pay, with the address of its hook, and a reminder. */
export type Send = (letter: { text: string; reference: string; idempotencyKey: string }) => Promise<void>

/** Orders that wait three days for the payment, and remind the customer after the first. */
export function patientShop(send: Send, options?: Partial<ServerOptions>) {
  const server = createServer({ name: 'shop', version: '1.0.0', ...options })
  server.tool('order', { input: z.object({ item: z.string() }), task: 'always' }, async ({ item }, ctx) => {
    // #region limit
    const payment = await ctx.hook('payment', { schema: z.object({ cents: z.int() }), within: '3 days' })
    const letter = (text: string) => (effect: { key: string }) =>
      send({ text, reference: payment.id, idempotencyKey: effect.key })
    await ctx.effect('bill', letter(`Please pay for ${item}.`))
    try {
      const paid = await Promise.race([payment.received(), ctx.sleep('a day', '1 day')])
      if (!paid) await ctx.effect('reminder', letter(`${item} is not paid yet.`))
      const { cents } = await payment.received()
      return `${item} is paid: ${cents / 100} EUR.`
    } catch (error) {
      if (error instanceof EventExpired) return `${item} was not paid within three days.`
      throw error
    }
    // #endregion
  })
  return server
}
