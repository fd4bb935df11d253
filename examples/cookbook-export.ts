import { createServer, type ServerOptions } from 'rondo'
import { z } from 'zod'

export interface Archive {
  pages(year: number): Promise<number>
  copy(year: number, page: number, options: { idempotencyKey: string }): Promise<void>
  publish(year: number, options: { idempotencyKey: string }): Promise<string>
}

/** An export that takes hours, and continues where it was if a process dies. */
export function exporter(archive: Archive, options?: Partial<ServerOptions>) {
  const server = createServer({ name: 'exporter', version: '1.0.0', ...options })
  const input = z.object({ year: z.int() })
  server.tool('export_orders', { input, task: 'always' }, async ({ year }, ctx) => {
    const pages = await ctx.step('count', () => archive.pages(year))
    for (let page = 1; page <= pages; page++) {
      ctx.status(`page ${page} of ${pages}`)
      await ctx.effect(`copy:${page}`, ({ key }) => archive.copy(year, page, { idempotencyKey: key }), {
        retry: { times: 5, delay: '10 s', factor: 2 },
      })
    }
    const url = await ctx.effect('publish', ({ key }) => archive.publish(year, { idempotencyKey: key }))
    return `The orders of ${year} are at ${url}.`
  })
  return server
}
