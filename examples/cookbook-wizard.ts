import { createServer, type ServerOptions, ToolError } from 'rondo'
import { z } from 'zod'

const trips = z.object({ city: z.enum(['Oslo', 'Rome']), nights: z.int().min(1).max(14) })

export interface Agency {
  hotels(city: string): Promise<string[]>
  book(stay: { hotel: string; nights: number; idempotencyKey: string }): Promise<string>
}

/** A form of three pages: the second depends on the first, and the last shows what will be booked. */
export function travelAgency(agency: Agency, options?: Partial<ServerOptions>) {
  const server = createServer({ name: 'travel-agency', version: '1.0.0', ...options })
  server.tool('book_trip', {}, async (_args, ctx) => {
    const { city, nights } = await ctx.ask('trip', { message: 'Where to, and how long?', schema: trips })
    const [first, ...others] = await ctx.step('hotels', () => agency.hotels(city))
    if (first === undefined) throw new ToolError(`No hotel in ${city} has a free room.`)
    const { hotel } = await ctx.ask('hotel', {
      message: `Which hotel in ${city}?`,
      schema: z.object({ hotel: z.enum([first, ...others]) }),
    })
    if (!(await ctx.confirm('sure', `Book ${hotel} in ${city} for ${nights} nights?`)))
      return 'Nothing was booked.'
    const number = await ctx.effect('book', ({ key }) => agency.book({ hotel, nights, idempotencyKey: key }))
    return `Booked ${hotel} for ${nights} nights: ${number}.`
  })
  return server
}
