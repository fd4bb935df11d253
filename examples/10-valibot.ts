import { toStandardJsonSchema } from '@valibot/to-json-schema'
import { createServer, type ServerOptions } from 'rondo'
import * as v from 'valibot'

/** Any Standard Schema that can produce a JSON Schema works; valibot needs its converter. */
export function greeter(options?: Partial<ServerOptions>) {
  const server = createServer({ name: 'greeter', version: '1.0.0', ...options })
  const input = toStandardJsonSchema(v.object({ greeting: v.optional(v.string(), 'Hello') }))
  const who = toStandardJsonSchema(v.object({ name: v.pipe(v.string(), v.minLength(1)) }))
  server.tool('greet', { input }, async ({ greeting }, ctx) => {
    const { name } = await ctx.ask('who', { message: 'Whom?', schema: who })
    return `${greeting}, ${name}!`
  })
  return server
}

/** For `npx rondo console examples/10-valibot.ts`. */
export default (options?: Partial<ServerOptions>) => greeter(options)

if (process.argv[1] === import.meta.filename) {
  const { url } = await greeter().listen()
  console.log(`Serving ${url}\nCall it: npx rondo call ${url} greet greeting=Hi`)
}
