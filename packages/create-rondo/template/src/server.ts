import { setTimeout as sleep } from 'node:timers/promises'
import { createServer, type ServerOptions } from 'rondo'
import { z } from 'zod'

const resolutions = z.object({ resolution: z.enum(['Fixed', 'Duplicate', 'By Design']) })
const bugs = new Map<number, string>()

/** The server and its tools. Tests pass options of their own. */
export function createTracker(options?: Partial<ServerOptions>) {
  const server = createServer({ name: 'my-server', version: '0.1.0', ...options })

  // Stops in the middle, asks the user, and continues.
  server.tool(
    'resolve_bug',
    { description: 'Resolve a bug', input: z.object({ id: z.int() }) },
    async ({ id }, ctx) => {
      const { resolution } = await ctx.ask('resolution', {
        message: `How was bug #${id} resolved?`,
        schema: resolutions,
      })
      await ctx.effect('save', () => void bugs.set(id, resolution))
      return `Bug #${id} resolved as ${resolution}.`
    },
  )

  // Runs as a task if the client supports tasks: it outlives the request, the connection and this process.
  server.tool(
    'report',
    { description: 'Report on a year of bugs', input: z.object({ year: z.int() }), task: 'auto' },
    async ({ year }, ctx) => {
      let found = 0
      for (let month = 1; month <= 12; month++) {
        ctx.status(`month ${month} of 12`)
        found += await ctx.step(`month:${month}`, ({ signal }) => sleep(100, month, { signal }))
      }
      if (!(await ctx.confirm('sure', `Publish ${found} bugs of ${year}?`))) return 'Kept private.'
      await ctx.effect('publish', ({ key }) => console.log(`Published under the idempotency key ${key}`))
      return `Published ${found} bugs of ${year}.`
    },
  )

  return server
}
