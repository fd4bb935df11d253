/** Official clients that know nothing of tasks reach one through `task_status`: 2.4 in rounds and by push, 1.32 by push. */

import { StreamableHTTPClientTransport } from '@modelcontextprotocol/client'
import { StreamableHTTPClientTransport as V1Transport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import { createServer, generateKey, type Server, ToolError } from 'rondo'
import type { Script } from 'rondo/testing'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import { connectOfficial, MODERN, OLDER } from '../support/official-client.ts'
import { idIn } from '../support/task-tools.ts'
import { connectV1 } from '../support/v1-client.ts'

let server: Server
let url: URL
const published: string[] = []

beforeAll(async () => {
  server = createServer({
    name: 'reports',
    version: '1.0.0',
    log: 'off',
    keys: generateKey(),
    store: createMemoryStore(),
    tasks: { tools: true },
  })
  const output = z.object({ format: z.string(), pages: z.number() })
  server.tool('report', { task: 'auto', output }, async (_args, ctx) => {
    const { format } = await ctx.ask('format', {
      message: 'Format?',
      schema: z.object({ format: z.string() }),
    })
    if (!(await ctx.confirm('sure', 'Publish?'))) throw new ToolError('Kept.')
    await ctx.effect('publish', ({ key }) => void published.push(key))
    return { format, pages: 12 }
  })
  url = new URL((await server.listen({ port: 0, signals: false })).url)
})

afterAll(() => server.close())

interface Peer {
  readonly asked: readonly string[]
  readonly client: { listTools(): Promise<{ tools: { name: string }[] }> }
  run(
    call: { method: 'tools/call'; target: string; args?: Record<string, unknown> },
    script?: Script,
  ): Promise<{ text: string; isError: boolean }>
  close(): Promise<void>
}

const PEERS: readonly [string, () => Promise<Peer>][] = [
  ['2.4, asked in rounds', () => connectOfficial(new StreamableHTTPClientTransport(url), MODERN)],
  ['2.4, asked by push', () => connectOfficial(new StreamableHTTPClientTransport(url), OLDER)],
  ['1.32, asked by push', () => connectV1(new V1Transport(url) as never)],
]

describe.each(PEERS)('the official client %s', (_name, connect) => {
  it('G6 starts a task, has the user answer its questions, and gets its result', async () => {
    const peer = await connect()
    // From now on the client checks results against the output schemas that were listed.
    expect((await peer.client.listTools()).tools.map(({ name }) => name)).toContain('task_status')
    const before = published.length
    const taskId = idIn({
      ...(await peer.run({ method: 'tools/call', target: 'report' })),
      structuredContent: undefined,
    })
    expect(peer.asked).toEqual([])
    const status = { method: 'tools/call', target: 'task_status', args: { taskId } } as const
    const ended = await peer.run(status, { format: { format: 'pdf' }, sure: { confirm: true } })
    expect(ended).toEqual({ text: '{"format":"pdf","pages":12}', isError: false })
    expect(peer.asked).toEqual(['Format?', 'Publish?'])
    expect(published.length).toBe(before + 1)
    expect(await peer.run(status)).toEqual(ended)
    expect((await peer.run({ ...status, args: { taskId: 'made-up' } })).isError).toBe(true)
    await peer.close()
  })
})
