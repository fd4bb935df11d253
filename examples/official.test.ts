/** The examples of the guide's page on the official server, driven by the official client. */

import type { Server as HttpServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { serve as serveHono } from '@hono/node-server'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/client'
import { createMcpHandler } from '@modelcontextprotocol/server'
import { generateKey } from 'rondo'
import { createBench } from 'rondo/testing'
import { afterAll, describe, expect, it } from 'vitest'
import { createMemoryStore } from '../packages/rondo/src/store/memory/store.ts'
import { connectOfficial } from '../test/support/official-client.ts'
import { send, settled } from '../test/support/task-client.ts'
import { buildByHand } from './official-by-hand.ts'
import { onExpress, onHono, onNode } from './official-entrances.ts'
import { createBuilder } from './official-server.ts'
import { createTables } from './official-tables.ts'
import { createReports } from './official-tasks.ts'

const options = { keys: generateKey(), log: 'off' } as const
const answers = { party: { people: 4 }, sure: { confirm: true } }
const call = { method: 'tools/call', target: 'book_table', args: { date: '2026-12-24' } } as const

type Fetch = (request: Request) => Promise<Response>

const byHand = (tables = createTables()): Fetch => {
  const key = new Uint8Array(32).fill(1)
  return createMcpHandler(() => buildByHand(tables, key)).fetch
}
const withRondo = (tables = createTables()): Fetch => createMcpHandler(createBuilder(tables, options)).fetch

describe.each([
  ['by hand', byHand],
  ['with Rondo', withRondo],
])('booking a table %s', (_name, serve) => {
  it('asks twice and books one table', async () => {
    const tables = createTables()
    const fetch = serve(tables)
    const transport = new StreamableHTTPClientTransport(new URL('http://127.0.0.1/mcp'), {
      fetch: (url, init) => fetch(new Request(url, init)),
    })
    const client = await connectOfficial(transport)
    expect(await client.run(call, answers)).toEqual({ text: 'Booked for 4: T1.', isError: false })
    expect(client.asked).toEqual(['For how many people?', 'Book a table for 4 on 2026-12-24?'])
    expect(tables.booked.size).toBe(1)
  })
})

describe('a lost reply', () => {
  async function loseTheLast(serve: (tables: ReturnType<typeof createTables>) => Fetch) {
    const tables = createTables()
    const bench = createBench(() => ({ fetch: serve(tables), close: async () => {} }))
    const round = bench.tool('book_table', { date: '2026-12-24' })
    await round.next()
    await round.next({ party: { people: 4 } })
    await round.loseReply({ sure: { confirm: true } })
    await round.next({ sure: { confirm: true } })
    return tables.booked.size
  }

  it('books two tables if the tool is written by hand', async () => expect(await loseTheLast(byHand)).toBe(2))
  it('R7 books one table with Rondo', async () => expect(await loseTheLast(withRondo)).toBe(1))
})

describe('a report that becomes a task', () => {
  const { build, rondo } = createReports({ ...options, store: createMemoryStore() })
  const { fetch } = createMcpHandler(build)
  const params = { name: 'report', arguments: { year: 2026 } }
  const inputResponses = { sure: { action: 'accept', content: { confirm: true } } }
  const made = { content: [{ text: 'The report of 2026 has 12 pages.' }] }

  afterAll(() => rondo.close())

  it('asks and ends as a task if the client supports tasks', async () => {
    const created = await send({ fetch }, 'tools/call', params)
    expect(created.result).toMatchObject({ resultType: 'task' })
    const taskId = String(created.result?.taskId)
    const asking = { status: 'input_required', inputRequests: { sure: {} } }
    expect(await settled({ fetch }, taskId)).toMatchObject(asking)
    await send({ fetch }, 'tasks/update', { taskId, inputResponses })
    expect(await settled({ fetch }, taskId)).toMatchObject({ status: 'completed', result: made })
  })

  it('asks and ends in rounds if the client does not support tasks', async () => {
    const plain = { capabilities: { elicitation: { form: {} } } }
    const asked = await send({ fetch }, 'tools/call', params, plain)
    expect(asked.result).toMatchObject({ resultType: 'input_required', inputRequests: { sure: {} } })
    const { requestState } = asked.result as { requestState: string }
    const ended = await send({ fetch }, 'tools/call', { ...params, inputResponses, requestState }, plain)
    expect(ended.result).toMatchObject(made)
  })
})

describe('the entrances of the official packages', () => {
  const build = createBuilder(createTables(), options)
  const entrances: [string, (listening: () => void) => HttpServer][] = [
    ['node', (listening) => onNode(build).listen(0, '127.0.0.1', listening)],
    ['Express', (listening) => onExpress(build).listen(0, '127.0.0.1', listening)],
    [
      'Hono',
      (listening) =>
        serveHono({ fetch: onHono(build).fetch, port: 0, hostname: '127.0.0.1' }, listening) as HttpServer,
    ],
  ]

  it.each(entrances)('%s serves both rounds of a call', async (_name, listen) => {
    const server = await new Promise<HttpServer>((resolve) => {
      const listening = listen(() => resolve(listening))
    })
    const url = new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`)
    const client = await connectOfficial(new StreamableHTTPClientTransport(url))
    expect((await client.run(call, answers)).text).toMatch(/^Booked for 4: T\d\.$/)
    await client.close()
    await new Promise((resolve) => server.close(resolve))
  })
})
