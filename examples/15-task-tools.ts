import { createServer, type ServerOptions } from 'rondo'
import { createSqliteStore } from 'rondo/sqlite'
import { z } from 'zod'

/** A tool that runs as a task for every client: those that cannot follow tasks reach it through `task_status`. */
export function dataExports(options: Partial<ServerOptions>) {
  const server = createServer({ name: 'exports', version: '1.0.0', tasks: { tools: true }, ...options })
  server.tool('export', { task: 'auto', input: z.object({ year: z.int() }) }, async ({ year }, ctx) => {
    const rows = await ctx.step('count', () => 40_000)
    if (!(await ctx.confirm('sure', `Export ${rows} rows of ${year}?`))) return 'Nothing was exported.'
    await ctx.effect('export', async ({ key }) => `exported under ${key}`)
    return `Exported ${rows} rows of ${year}.`
  })
  return server
}

/** For `npx rondo console examples/15-task-tools.ts`. */
export default (options?: Partial<ServerOptions>) =>
  dataExports({ store: createSqliteStore({ file: 'exports.db' }), ...options })

if (process.argv[1] === import.meta.filename) {
  const { url } = await dataExports({ store: createSqliteStore({ file: 'exports.db' }) }).listen()
  console.log(`Serving ${url}\nCall it: npx rondo call ${url} export year=2026`)
}
