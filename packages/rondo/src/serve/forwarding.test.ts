import { createServer, generateKey, inputRequired } from 'rondo'
import { connect } from 'rondo/client'
import { type Forwarded, forwarding, UpstreamError } from 'rondo/forward'
import { createBench } from 'rondo/testing'
import { describe, expect, it } from 'vitest'

const ROW = {
  name: 'search',
  inputSchema: { type: 'object', properties: { q: { type: 'string', 'x-odd': [1] } }, $comment: 'kept' },
  execution: { taskSupport: 'optional' },
  icons: [{ src: 'https://example.com/i.png' }],
}

const serve = (declare: (port: ReturnType<typeof forwarding>) => void, dev = false) => {
  const server = createServer({ name: 'gateway', version: '1.0.0', keys: generateKey(), dev, log: () => {} })
  declare(forwarding(server))
  return server
}

describe('forwarding', () => {
  it('K4 lists the row of another server unchanged', async () => {
    const server = serve((port) => port.declare('tools', 'search', { row: ROW, run: async () => ({}) }))
    const client = await connect(server)
    expect(await client.listTools()).toEqual([ROW])
    expect(await client.discover()).toMatchObject({ capabilities: { tools: { listChanged: true } } })
  })

  it('passes arguments that the schema does not allow, and the result as it came', async () => {
    const result = { content: [], structuredContent: { n: 1 }, _meta: { 'x/y': 1 }, future: true }
    const run: Forwarded['run'] = async (args, ctx) => ({ ...result, echo: args, meta: ctx.meta['x/z'] })
    const server = serve((port) => port.declare('tools', 'search', { row: ROW, run }))
    const client = await connect(server)
    const got = await client.callTool('search', { q: 7, more: true }, { meta: { 'x/z': 'meta' } })
    expect(got).toMatchObject({ ...result, echo: { q: 7, more: true }, meta: 'meta' })
  })

  it('returns an error of another server with its own code, message and data', async () => {
    const run = async () => {
      throw new UpstreamError({ code: 4711, message: 'No such shelf', data: { shelf: 3 } })
    }
    const server = serve((port) => {
      port.declare('tools', 'search', { row: ROW, run })
      port.declare('resources', 'shelf://3', { row: { uri: 'shelf://3', name: 'three' }, run })
    })
    const client = await connect(server)
    const wanted = { peer: { code: 4711, message: 'No such shelf', data: { shelf: 3 } } }
    await expect(client.callTool('search')).rejects.toMatchObject(wanted)
    await expect(client.readResource('shelf://3')).rejects.toMatchObject(wanted)
  })

  it('W2 seals the state of a round, and runs a round once in development mode', async () => {
    let runs = 0
    const bench = createBench((options) => {
      const server = createServer({ name: 'gateway', version: '1.0.0', ...options, dev: true })
      forwarding(server).declare('tools', 'search', {
        row: ROW,
        async run(_args, ctx) {
          runs += 1
          if (ctx.requestState !== undefined) return { content: [{ type: 'text', text: ctx.requestState }] }
          const params = { mode: 'form', message: 'Where?', requestedSchema: { type: 'object' } } as const
          const inputRequests = { where: { method: 'elicitation/create', params } } as const
          return inputRequired({ inputRequests, requestState: 'their state' })
        },
      })
      return server
    })
    const first = await bench.tool('search').next()
    expect(runs).toBe(1)
    expect(JSON.stringify(first)).not.toContain('their state')
    const last = await bench.tool('search').run({ where: {} })
    expect(last).toMatchObject({ kind: 'complete', text: 'their state' })
    expect(runs).toBe(3)
  })

  it('completes arguments of prompts and templates, and reads whatever a template matches', async () => {
    const complete: Forwarded['complete'] = async ({ name, value }, known) => ({
      values: [`${name}:${value}:${known.other}`],
      total: 300,
      hasMore: true,
    })
    const run: Forwarded['run'] = async ({ uri }) => ({
      contents: [{ uri, text: 'it' }],
      ttlMs: 0,
      cacheScope: 'private',
    })
    const server = serve((port) => {
      port.declare('prompts', 'brief', { row: { name: 'brief' }, run, complete })
      port.declare('templates', 'shelf://{n}', { row: { uriTemplate: 'shelf://{n}', name: 'shelf' }, run })
      port.declare('templates', 'everything', { run, matches: (uri) => uri.startsWith('odd:') })
    })
    const client = await connect(server)
    const ref = { kind: 'prompt', name: 'brief' } as const
    const completion = await client.complete({
      ref,
      argument: { name: 'a', value: 'b' },
      known: { other: 'c' },
    })
    expect(completion).toEqual({ values: ['a:b:c'], total: 300, hasMore: true })
    expect((await client.listResourceTemplates()).map(({ name }) => name)).toEqual(['shelf'])
    for (const uri of ['shelf://7', 'odd:thing'])
      expect((await client.readResource(uri)).contents).toEqual([{ uri, text: 'it' }])
    await expect(client.readResource('even:thing')).rejects.toThrow('PEER_ERROR')
  })

  it('refuses a server of another package, and an entry without run', () => {
    expect(() => forwarding({} as never)).toThrow('createServer')
    expect(() => serve((port) => port.declare('tools', 'search', {} as never))).toThrow('needs { run }')
  })
})
