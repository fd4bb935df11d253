/** Log messages of a handler reach the client from the level that it requested, in every era, and none below it. */

import { createServer, generateKey, type Server } from 'rondo'
import { expect, it, onTestFinished } from 'vitest'
import { callTool } from '../support/echo-service.ts'
import { startOlder } from '../support/older-server.ts'
import { messagesOf } from '../support/post.ts'

/** From the specification, least severe first. */
const LEVELS = ['debug', 'info', 'notice', 'warning', 'error', 'critical', 'alert', 'emergency'] as const

function talks(server: Server): void {
  server.tool('talk', {}, (_args, ctx) => {
    for (const level of LEVELS) ctx.log(level, level)
    return 'said'
  })
}

const levelsOf = (messages: readonly { method?: string; params?: unknown }[]): unknown[] =>
  messages.flatMap(({ method, params }) =>
    method === 'notifications/message' ? [(params as { level: string }).level] : [],
  )

it.each([...LEVELS.entries()])(
  'ctx.log sends messages from level %i (%s) on, as a 2026-07-28 request asks',
  async (least, level) => {
    const server = createServer({ name: 'talk', version: '1.0.0', keys: generateKey(), log: 'off' })
    onTestFinished(() => server.close())
    talks(server)
    const tell = async (meta: Record<string, unknown>) => {
      const { headers, message } = callTool('talk', {}, { _meta: meta })
      const body = JSON.stringify(message)
      const response = await server.fetch(
        new Request('http://localhost/mcp', { method: 'POST', headers, body }),
      )
      const text = await response.text()
      return response.headers.get('content-type') === 'text/event-stream' ? levelsOf(messagesOf(text)) : []
    }
    expect(await tell({ 'io.modelcontextprotocol/logLevel': level })).toEqual(LEVELS.slice(least))
    expect(await tell({})).toEqual([])
  },
)

it.each([...LEVELS.entries()])(
  'ctx.log sends messages from level %i (%s) on, after logging/setLevel in a session',
  async (least, level) => {
    const { connect, server } = await startOlder()
    talks(server)
    const client = await connect()
    const tell = async (id: number) => {
      const stream = await client.post({ jsonrpc: '2.0', id, method: 'tools/call', params: { name: 'talk' } })
      while (await stream.next());
      return levelsOf(stream.messages as never)
    }
    expect(await tell(10)).toEqual(LEVELS.slice(1))
    await client.call('logging/setLevel', { level })
    expect(await tell(11)).toEqual(LEVELS.slice(least))
  },
)
