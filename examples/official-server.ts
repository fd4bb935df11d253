import { type CallToolResult, McpServer } from '@modelcontextprotocol/server'
import { createRondo, type RondoOptions } from 'rondo/sdk'
import { z } from 'zod'
import { createTables } from './official-tables.ts'

const party = z.object({ people: z.int().min(1) })
const text = (value: string): CallToolResult => ({ content: [{ type: 'text', text: value }] })

/** Two questions with Rondo in the official server: what happens, in the order in which it happens. */
export function createBuilder(tables = createTables(), options?: Partial<RondoOptions>) {
  const rondo = createRondo({ audience: 'tables', ...options })
  return () => {
    const server = rondo.mount(new McpServer({ name: 'tables', version: '1.0.0' }))
    server.registerTool(
      'book_table',
      { description: 'Book a table', inputSchema: z.object({ date: z.iso.date() }) },
      rondo.tool(async ({ date }, ctx) => {
        const { people } = await ctx.ask('party', { message: 'For how many people?', schema: party })
        const sure = await ctx.confirm('sure', `Book a table for ${people} on ${date}?`)
        if (!sure) return text('Nothing was booked.')
        const { id } = await ctx.effect('book', ({ key }) =>
          tables.book(date, people, { idempotencyKey: key }),
        )
        return text(`Booked for ${people}: ${id}.`)
      }),
    )
    return server
  }
}
