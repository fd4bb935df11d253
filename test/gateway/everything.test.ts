/** W7: everything that a server offers and says passes through the gateway, in both directions and between all revisions. */

import { createServer, generateKey, type Server } from 'rondo'
import { type Client, connect } from 'rondo/client'
import { describe, expect, it, onTestFinished } from 'vitest'
import { z } from 'zod'
import { serveGateway } from './peers.ts'

const seen = { hanging: 0, aborted: 0, meta: undefined as unknown }

async function upstream(): Promise<{ server: Server; url: string }> {
  const server = createServer({
    name: 'up',
    version: '1.0.0',
    keys: generateKey(),
    log: () => {},
    pageSize: 2,
  })
  server.tool(
    'shape',
    {
      title: 'Shape',
      description: 'Returns everything',
      input: z.object({ n: z.number() }),
      output: z.object({ twice: z.number() }),
      annotations: { readOnlyHint: true },
      icons: [{ src: 'https://example.com/i.png' }],
      _meta: { 'vendor/x': 1 },
    },
    ({ n }, ctx) => {
      seen.meta = ctx.meta
      return {
        structuredContent: { twice: 2 * n },
        content: [{ type: 'text' as const, text: 'it' }],
        _meta: { 'vendor/y': 2 },
      }
    },
  )
  server.tool('work', {}, (_args, ctx) => {
    for (const n of [1, 2, 3]) ctx.progress(n, 3, `step ${n}`)
    ctx.log('warning', { what: 'careful' }, 'work')
    return 'done'
  })
  server.tool('hang', {}, async (_args, ctx) => {
    seen.hanging += 1
    await new Promise<void>((resolve) => ctx.signal.addEventListener('abort', () => resolve()))
    seen.aborted += 1
    return 'late'
  })
  server.tool('fails', {}, () => {
    throw new Error('secret detail')
  })
  server.prompt(
    'brief',
    { input: z.object({ topic: z.string() }), complete: { topic: (value) => [`${value}-a`, `${value}-b`] } },
    ({ topic }) => `About ${topic}`,
  )
  server.resource('notes://today', { name: 'today', mimeType: 'text/plain' }, () => 'Buy milk')
  server.template(
    'notes://{day}',
    { name: 'day', complete: { day: () => ['mon'] } },
    ({ day }) => `On ${day}`,
  )
  const { url } = await server.listen({ port: 0, signals: false, graceMs: 100 })
  onTestFinished(() => server.close())
  return { server, url }
}

const REVISIONS = ['2026-07-28', '2025-11-25'] as const
const cells = REVISIONS.flatMap((host) => REVISIONS.map((behind) => ({ host, behind })))

async function through(
  host: (typeof REVISIONS)[number],
  behind: (typeof REVISIONS)[number],
): Promise<{ client: Client; server: Server }> {
  const { server, url } = await upstream()
  const gateway = await serveGateway({ up: { url, revision: behind } })
  const client = await connect(gateway.url, { mode: host, drafts: false, cache: false })
  onTestFinished(() => client.close())
  return { client, server }
}

describe.each(cells)('W7 from $host to $behind', ({ host, behind }) => {
  it('passes lists of several pages, annotations, icons and _meta, structured results and errors', async () => {
    const { client } = await through(host, behind)
    const tools = await client.listTools()
    expect(tools.map(({ name }) => name)).toEqual(['shape', 'work', 'hang', 'fails'])
    expect(tools[0]).toMatchObject({
      title: 'Shape',
      annotations: { readOnlyHint: true },
      icons: [{ src: 'https://example.com/i.png' }],
      _meta: { 'vendor/x': 1 },
      outputSchema: { properties: { twice: { type: 'number' } } },
    })
    const meta = { 'vendor/z': 3, 'io.modelcontextprotocol/related-task': { taskId: 'another' } }
    const result = await client.callTool('shape', { n: 4 }, { meta })
    expect(result).toMatchObject({
      structuredContent: { twice: 8 },
      content: [{ text: 'it' }],
      _meta: { 'vendor/y': 2 },
    })
    expect(seen.meta).toMatchObject({ 'vendor/z': 3 })
    // W5 The protocol's own keys belong to one hop.
    expect(JSON.stringify(seen.meta)).not.toContain('another')
    expect(await client.callTool('fails')).toMatchObject({ isError: true })
    expect(await client.callTool('shape', { n: 'x' })).toMatchObject({ isError: true })
    await expect(client.callTool('nothing')).rejects.toMatchObject({ peer: { code: -32602 } })
  })

  it('passes prompts, resources, templates and completions', async () => {
    const { client } = await through(host, behind)
    expect((await client.getPrompt('brief', { topic: 'tea' })).messages).toEqual([
      { role: 'user', content: { type: 'text', text: 'About tea' } },
    ])
    const ref = { kind: 'prompt', name: 'brief' } as const
    expect((await client.complete({ ref, argument: { name: 'topic', value: 'x' } })).values).toEqual([
      'x-a',
      'x-b',
    ])
    expect((await client.readResource('notes://today')).contents).toMatchObject([
      { text: 'Buy milk', mimeType: 'text/plain' },
    ])
    expect((await client.readResource('notes://monday')).contents).toMatchObject([{ text: 'On monday' }])
    expect((await client.listResourceTemplates()).map(({ uriTemplate }) => uriTemplate)).toEqual([
      'notes://{day}',
    ])
    await expect(client.readResource('other://thing')).rejects.toMatchObject({
      peer: { code: host === '2026-07-28' ? -32602 : -32002 },
    })
  })

  it('passes progress that never falls, log messages and a cancellation', async () => {
    const { client } = await through(host, behind)
    const progress: number[] = []
    const logs: unknown[] = []
    await client.callTool(
      'work',
      {},
      {
        onProgress: (one) => progress.push(one.progress),
        onLog: (one) => logs.push(one.data),
        logLevel: 'info',
      },
    )
    expect(progress).toEqual([1, 2, 3])
    expect(logs).toEqual([{ what: 'careful' }])
    const before = seen.aborted
    const stop = new AbortController()
    const hanging = client.callTool('hang', {}, { signal: stop.signal, onProgress: () => {} })
    hanging.catch(() => {})
    await expect.poll(() => seen.hanging).toBe(before + 1)
    stop.abort()
    await expect(hanging).rejects.toThrow()
    await expect.poll(() => seen.aborted).toBe(before + 1)
  })

  it('passes changes of lists', async () => {
    const { client, server } = await through(host, behind)
    const subscription = client.subscribe({ toolsListChanged: true })
    await subscription.filter
    server.tool('fresh', {}, () => 'new')
    for await (const change of subscription) {
      if (change.kind !== 'tools') continue
      const names = (await client.listTools({ fresh: true })).map(({ name }) => name)
      if (names.includes('fresh')) break
    }
    expect((await client.callTool('fresh')).content).toEqual([{ type: 'text', text: 'new' }])
    server.remove('tools', 'fresh')
    await expect.poll(async () => (await client.listTools({ fresh: true })).length).toBe(4)
  })
})
