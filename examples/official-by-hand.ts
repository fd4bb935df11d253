import {
  type CallToolResult,
  createRequestStateCodec,
  inputRequired,
  inputResponse,
  McpServer,
} from '@modelcontextprotocol/server'
import { z } from 'zod'
import { createTables } from './official-tables.ts'

const party = z.object({ people: z.int().min(1) })
const sure = z.object({ confirm: z.boolean() })
const text = (value: string): CallToolResult => ({ content: [{ type: 'text', text: value }] })

/** Two questions with the official package alone: a state machine that every round enters from the top. */
export function buildByHand(tables = createTables(), key = crypto.getRandomValues(new Uint8Array(32))) {
  const codec = createRequestStateCodec<{ people: number }>({ key })
  const server = new McpServer(
    { name: 'tables', version: '1.0.0' },
    { requestState: { verify: codec.verify } },
  )
  server.registerTool(
    'book_table',
    { description: 'Book a table', inputSchema: z.object({ date: z.iso.date() }) },
    async ({ date }, ctx) => {
      const answers = ctx.mcpReq.inputResponses
      const state = ctx.mcpReq.requestState<{ people: number }>()
      if (state === undefined) {
        const answer = inputResponse(answers, 'party')
        if (answer.kind === 'elicit' && answer.action !== 'accept') return text('Nothing was booked.')
        const content = answer.kind === 'elicit' ? party.safeParse(answer.content) : undefined
        if (!content?.success) {
          const question = inputRequired.elicit({ message: 'For how many people?', requestedSchema: party })
          return inputRequired({ inputRequests: { party: question } })
        }
        const { people } = content.data
        const message = `Book a table for ${people} on ${date}?`
        return inputRequired({
          inputRequests: { sure: inputRequired.elicit({ message, requestedSchema: sure }) },
          requestState: await codec.mint({ people }, ctx),
        })
      }
      const answer = inputResponse(answers, 'sure')
      const confirmed =
        answer.kind === 'elicit' && answer.action === 'accept' && answer.content?.confirm === true
      if (!confirmed) return text('Nothing was booked.')
      const { id } = await tables.book(date, state.people, { idempotencyKey: crypto.randomUUID() })
      return text(`Booked for ${state.people}: ${id}.`)
    },
  )
  return server
}
