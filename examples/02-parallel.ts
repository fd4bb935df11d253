import { createServer, type ServerOptions } from 'rondo'
import { z } from 'zod'

const place = z.object({ city: z.string().min(1) })

/** Questions that are open at the same time reach the user together, in one round. */
export function travel(options?: Partial<ServerOptions>) {
  const server = createServer({ name: 'travel', version: '1.0.0', ...options })
  server.tool('plan_trip', { description: 'Plan a trip between two cities' }, async (_args, ctx) => {
    const [from, to] = await Promise.all([
      ctx.ask('from', { message: 'Where do you start?', schema: place }),
      ctx.ask('to', { message: 'Where do you want to go?', schema: place }),
    ])
    if (!(await ctx.confirm('book', `Book a train from ${from.city} to ${to.city}?`))) {
      return 'Nothing was booked.'
    }
    return `Booked: ${from.city} to ${to.city}.`
  })
  return server
}

/** For `npx rondo console examples/02-parallel.ts`. */
export default (options?: Partial<ServerOptions>) => travel(options)

if (process.argv[1] === import.meta.filename) {
  const { url } = await travel().listen()
  console.log(`Serving ${url}\nCall it: npx rondo call ${url} plan_trip`)
}
