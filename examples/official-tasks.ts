import { type CallToolResult, McpServer } from '@modelcontextprotocol/server'
import { createRondo, type RondoOptions } from 'rondo/sdk'
import { z } from 'zod'

const text = (value: string): CallToolResult => ({ content: [{ type: 'text', text: value }] })

/** A report on an official server: a task if the client supports tasks, rounds otherwise. `options` contains the store. */
export function createReports(options: Partial<RondoOptions>) {
  const rondo = createRondo({ audience: 'reports', ...options })
  const report = rondo.tool(
    async ({ year }: { year: number }, ctx) => {
      const sure = await ctx.confirm('sure', `Make the report of ${year}? It takes a while.`)
      if (!sure) return text('No report was made.')
      const pages = await ctx.step('render', () => 12)
      return text(`The report of ${year} has ${pages} pages.`)
    },
    { task: 'auto' },
  )
  const build = () => {
    const server = rondo.tasks(new McpServer({ name: 'reports', version: '1.0.0' }))
    server.registerTool('report', { inputSchema: z.object({ year: z.int() }) }, report)
    return server
  }
  return { build, rondo }
}
