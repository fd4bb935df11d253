import { createServer, type ServerOptions } from 'rondo'
import { createSqliteStore } from 'rondo/sqlite'
import { z } from 'zod'

/** An airline that honours idempotency keys. */
export interface Airline {
  hold(flight: string, options: { idempotencyKey: string }): Promise<{ hold: string; price: number }>
  release(hold: { id?: string; heldWith: string }, options: { idempotencyKey: string }): Promise<void>
  pay(hold: string, options: { idempotencyKey: string }): Promise<void>
}

/** Seats are held while the user decides, and released unless they are paid for. */
export function flights(airline: Airline, options?: Partial<ServerOptions>) {
  const server = createServer({ name: 'flights', version: '1.0.0', ...options })
  server.tool('book', { input: z.object({ there: z.string(), back: z.string() }) }, async (args, ctx) => {
    const hold = (key: 'there' | 'back') =>
      ctx.effect(key, (info) => airline.hold(args[key], { idempotencyKey: info.key }), {
        // `result` is absent if nobody knows whether the seat was held: the key of the effect finds it.
        undo: (result, { key: idempotencyKey, effectKey }) =>
          airline.release({ id: result?.hold, heldWith: effectKey }, { idempotencyKey }),
      })
    const there = await hold('there')
    const back = await hold('back')
    const price = there.price + back.price
    if (!(await ctx.confirm('pay', `Pay ${price} EUR?`))) {
      await ctx.undo()
      return 'Nothing was booked, and no seat is held.'
    }
    await ctx.effect('pay there', ({ key }) => airline.pay(there.hold, { idempotencyKey: key }))
    await ctx.effect('pay back', ({ key }) => airline.pay(back.hold, { idempotencyKey: key }))
    return `Booked for ${price} EUR.`
  })
  return server
}

/** Serves until it is stopped. */
export async function serve(airline: Airline) {
  const store = createSqliteStore({ file: 'flights.db' })
  return flights(airline, { store }).listen()
}
