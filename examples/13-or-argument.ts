import { createServer, type ServerOptions } from 'rondo'
import { z } from 'zod'

const regions = z.object({ region: z.enum(['eu', 'us']) })

export function provider(options?: Partial<ServerOptions>) {
  const server = createServer({ name: 'provider', version: '1.0.0', ...options })

  server.tool(
    'create_bucket',
    { input: z.object({ name: z.string(), region: z.string().optional() }) },
    async ({ name, ...given }, ctx) => {
      const { region } = given.region
        ? given
        : await ctx.ask('region', {
            message: `Where should ${name} live?`,
            schema: regions,
            orArgument: 'region',
          })
      return `Created ${name} in ${region}`
    },
  )
  return server
}

/** For `npx rondo console examples/13-or-argument.ts`. */
export default (options?: Partial<ServerOptions>) => provider(options)

if (process.argv[1] === import.meta.filename) {
  const { url } = await provider().listen()
  console.log(`Serving ${url}\nCall it: npx rondo call ${url} create_bucket name=photos`)
}
