import { createServer } from 'rondo'
import { z } from 'zod'

const resolutions = z.object({ resolution: z.enum(['Fixed', 'Duplicate', 'By Design']) })
const bugs = new Map<number, string>()
const server = createServer({ name: 'tracker', version: '1.0.0' })

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

const { url } = await server.listen()
console.log(`Serving ${url}`)
