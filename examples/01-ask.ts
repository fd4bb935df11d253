import { createServer, type ServerOptions } from 'rondo'
import { z } from 'zod'

// #region readme
const resolved = new Map<number, string>()

export function tracker(options?: Partial<ServerOptions>) {
  const server = createServer({ name: 'tracker', version: '1.0.0', ...options })
  server.tool(
    'resolve_bug',
    { description: 'Resolve a bug', input: z.object({ id: z.int() }) },
    async ({ id }, ctx) => {
      const { resolution } = await ctx.ask('resolution', {
        message: `How was bug #${id} resolved?`,
        schema: z.object({ resolution: z.enum(['Fixed', 'Duplicate', 'By Design']) }),
      })
      await ctx.effect('save', () => void resolved.set(id, resolution))
      return `Bug #${id} resolved as ${resolution}.`
    },
  )
  return server
}
// #endregion

if (import.meta.filename === process.argv[1]) await tracker().listen({ port: 3000 })
