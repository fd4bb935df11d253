import { createServer, type ServerOptions } from 'rondo'
import { createSqliteStore } from 'rondo/sqlite'
import { z } from 'zod'

const formats = z.object({ format: z.enum(['pdf', 'csv']) })

/** Slow reports: a call begins in rounds and continues as a task if the client supports tasks. */
export function reports(options?: Partial<ServerOptions>) {
  const server = createServer({ name: 'reports', version: '1.0.0', ...options })
  server.tool('report', { input: z.object({ year: z.int() }) }, async ({ year }, ctx) => {
    const { format } = await ctx.ask('format', {
      message: `In which format do you want the report of ${year}?`,
      schema: formats,
    })
    await ctx.background()
    const months = []
    for (let month = 1; month <= 12; month++) {
      ctx.status(`month ${month} of 12`)
      months.push(await ctx.step(`month:${month}`, () => month * 100))
    }
    if (!(await ctx.confirm('sure', `Publish ${months.length} months as ${format}?`))) return 'Kept private.'
    await ctx.effect('publish', async ({ key }) => `published under ${key}`)
    return `Published the ${format} report of ${year}.`
  })
  return server
}

/** For `npx rondo console examples/12-tasks.ts`. */
export default (options?: Partial<ServerOptions>) =>
  reports({ store: createSqliteStore({ file: 'reports.db' }), ...options })

if (process.argv[1] === import.meta.filename) {
  const { url } = await reports({ store: createSqliteStore({ file: 'reports.db' }) }).listen()
  console.log(`Serving ${url}\nCall it: npx rondo call ${url} report year=2026`)
}
