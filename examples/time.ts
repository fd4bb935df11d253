import { createServer, InputExpired, type ServerOptions } from 'rondo'
import { createSqliteStore } from 'rondo/sqlite'
import { z } from 'zod'

const approval = z.object({ budget: z.int() })
const seats = z.object({ seat: z.enum(['window', 'aisle']) })

/** Travel requests: approved in time, or escalated; and a reminder before the trip. */
export function travel(send: (to: string, text: string) => void, options?: Partial<ServerOptions>) {
  const server = createServer({ name: 'travel', version: '1.0.0', ...options })

  server.tool(
    'request_trip',
    { input: z.object({ city: z.string() }), task: 'auto' },
    async ({ city }, ctx) => {
      const outcome = await ctx.elicit('approval', {
        message: `Approve the trip to ${city}?`,
        schema: approval,
        within: '2 days',
      })
      if (outcome.action === 'expired') return `Nobody decided on ${city} in time.`
      if (outcome.action !== 'accept') return `The trip to ${city} was not approved.`
      await ctx.sleep('cool-off', '1 day')
      await ctx.effect('remind', ({ key }) => send(key, `${city}: ${outcome.content.budget} EUR`))
      return `Approved: ${city}.`
    },
  )

  server.tool('pick_seat', {}, async (_args, ctx) => {
    try {
      const { seat } = await ctx.ask('seat', {
        message: 'Which seat?',
        schema: seats,
        within: '10 min',
      })
      return `Seat: ${seat}.`
    } catch (error) {
      if (error instanceof InputExpired) return 'Seat: any.'
      throw error
    }
  })
  return server
}

if (process.argv[1] === import.meta.filename) {
  const store = createSqliteStore({ file: 'travel.db' })
  const { url } = await travel((_key, text) => console.log(text), { store }).listen()
  console.log(`Serving ${url}\nCall it: npx rondo call ${url} request_trip city=Oslo`)
}
