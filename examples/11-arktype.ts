import { type } from 'arktype'
import { createServer, type ServerOptions } from 'rondo'

const input = type({ table: "'users' | 'orders'" })
const output = type({ table: 'string', rows: 'number' })
const limit = type({ rows: '1 <= number.integer <= 1000' })

/** arktype schemas, and a structured result that is validated against the output schema. */
export function exporter(options?: Partial<ServerOptions>) {
  const server = createServer({ name: 'exporter', version: '1.0.0', ...options })
  server.tool('export_table', { input, output }, async ({ table }, ctx) => {
    const { rows } = await ctx.ask('limit', { message: `How many rows of ${table}?`, schema: limit })
    return { table, rows }
  })
  return server
}

/** For `npx rondo console examples/11-arktype.ts`. */
export default (options?: Partial<ServerOptions>) => exporter(options)

if (process.argv[1] === import.meta.filename) {
  const { url } = await exporter().listen()
  console.log(`Serving ${url}\nCall it: npx rondo call ${url} export_table table=users`)
}
