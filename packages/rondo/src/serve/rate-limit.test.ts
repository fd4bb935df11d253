import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import { processFile } from '../../../../test/support/process-file.ts'
import { connect } from '../client.ts'
import { createServer, generateKey } from '../index.ts'
import { type RateLimitOptions, rateLimit } from './rate-limit.ts'

function open(options: RateLimitOptions) {
  const clock = { now: Date.UTC(2027, 0, 31) }
  const ran: string[] = []
  const server = createServer({
    name: 'limited',
    version: '1.0.0',
    keys: generateKey(),
    log: 'off',
    now: () => clock.now,
    authenticate: ({ headers }) => ({ subject: headers('x-user') ?? 'nobody' }),
  })
  server.use(rateLimit(options))
  server.tool('search', {}, () => {
    ran.push('search')
    return 'found'
  })
  server.tool('other', {}, () => 'done')
  server.tool('ask', {}, async (_args, ctx) => {
    const { name } = await ctx.ask('name', { message: 'Name?', schema: z.object({ name: z.string() }) })
    return `Hello ${name}`
  })
  const call = async (name: string, user = 'alice', requestState?: string) => {
    const response = await server.fetch(
      new Request('http://127.0.0.1/mcp', {
        method: 'POST',
        headers: {
          'Content-Type': 'application/json',
          Accept: 'application/json, text/event-stream',
          'MCP-Protocol-Version': '2026-07-28',
          'Mcp-Method': 'tools/call',
          'Mcp-Name': name,
          'x-user': user,
        },
        body: JSON.stringify({
          jsonrpc: '2.0',
          id: 1,
          method: 'tools/call',
          params: {
            name,
            arguments: {},
            requestState,
            _meta: {
              'io.modelcontextprotocol/protocolVersion': '2026-07-28',
              'io.modelcontextprotocol/clientCapabilities': {},
            },
          },
        }),
      }),
    )
    const { error } = (await response.json()) as { error?: { code: number; data?: unknown } }
    return { status: response.status, retryAfter: response.headers.get('retry-after'), error }
  }
  return { server, clock, ran, call }
}

const TWO = { calls: 2, perMs: 10_000 }

describe('rateLimit', () => {
  it('H9 refuses a call beyond the rate with 429, and says when to try again', async () => {
    const { call, clock, ran } = open({ each: TWO })
    expect([await call('search'), await call('search')]).toMatchObject([{ status: 200 }, { status: 200 }])
    expect(await call('search')).toMatchObject({
      status: 429,
      retryAfter: '5',
      error: { code: -32000, data: { retryAfterMs: 5_000 } },
    })
    expect(ran).toHaveLength(2)
    clock.now += 4_999
    expect(await call('search')).toMatchObject({ status: 429, error: { data: { retryAfterMs: 1 } } })
    clock.now += 1
    expect(await call('search')).toMatchObject({ status: 200 })
  })

  it('H9 counts each caller and each tool apart, and a tool may have a rate of its own', async () => {
    const { call } = open({ each: TWO, tools: { search: { calls: 1, perMs: 60_000 } } })
    expect(await call('search')).toMatchObject({ status: 200 })
    expect(await call('search')).toMatchObject({ status: 429 })
    expect(await call('search', 'bob')).toMatchObject({ status: 200 })
    expect(await call('other')).toMatchObject({ status: 200 })
    expect(await call('other')).toMatchObject({ status: 200 })
  })

  it('H9 sends the code of the draft only where it is turned on', async () => {
    const { call } = open({ each: { calls: 1, perMs: 1_500 }, drafts: true })
    await call('search')
    expect(await call('search')).toMatchObject({
      status: 429,
      retryAfter: '2',
      error: { code: -32023, data: { retryAfterMs: 1_500 } },
    })
  })

  it('H9 refuses a state that is redeemed again and again', async () => {
    const { call } = open({ each: { calls: 1, perMs: 60_000 } })
    for (let round = 0; round < 10; round += 1)
      expect(await call('search', 'alice', 'state')).toMatchObject({ error: { code: -32602 } })
    expect(await call('search', 'alice', 'state')).toMatchObject({ status: 429 })
    expect(await call('search')).toMatchObject({ status: 200 })
  })

  it('counts the first round of a call apart from later ones', async () => {
    const { server } = open({ each: { calls: 1, perMs: 60_000 } })
    const client = await connect(server, {
      answers: { elicitation: { form: () => ({ action: 'accept', content: { name: 'Ada' } }) } },
    })
    const { content } = await client.callTool('ask')
    expect(content).toEqual([{ type: 'text', text: 'Hello Ada' }])
    await client.close()
  })

  it('evicts the bucket that was idle longest', async () => {
    const { call } = open({ each: { calls: 1, perMs: 60_000 }, maxBuckets: 2 })
    for (const user of ['a', 'b', 'c']) expect(await call('search', user)).toMatchObject({ status: 200 })
    expect(await call('search', 'c')).toMatchObject({ status: 429 })
    expect(await call('search', 'a')).toMatchObject({ status: 200 })
  })

  it('T11 counts calls of tools that do not exist together, so that made-up names evict no bucket', async () => {
    const { call } = open({ each: { calls: 1, perMs: 60_000 }, maxBuckets: 3 })
    expect(await call('search', 'bob')).toMatchObject({ status: 200 })
    expect(await call('search')).toMatchObject({ status: 200 })
    expect(await call('made-up-0')).toMatchObject({ error: { code: -32602 } })
    for (let i = 1; i < 5; i++) expect(await call(`made-up-${i}`)).toMatchObject({ status: 429 })
    expect(await call('search')).toMatchObject({ status: 429 })
    expect(await call('search', 'bob')).toMatchObject({ status: 429 })
  })

  it.each([{ each: { calls: 0, perMs: 1 } }, { tools: { search: { calls: 1 } as never } }])(
    'refuses a rate that lets nothing in: %j',
    (options) => {
      expect(() => rateLimit(options)).toThrow(/must be { calls, perMs }/)
    },
  )
})

describe('a client of a server that limits rates', () => {
  it.each([false, true])(
    'H9 waits as long as it is told, with jitter, and says so (code of the draft: %s)',
    async (drafts) => {
      const { server, clock } = open({ each: { calls: 1, perMs: 1_000 }, drafts })
      const [waits, warnings]: [number[], string[]] = [[], []]
      const client = await connect(server, {
        random: () => 0.4,
        onWarning: (text) => void warnings.push(text),
        clock: {
          now: () => clock.now,
          after(ms, run) {
            if (ms > 5_000) return () => {}
            waits.push(ms)
            clock.now += ms
            const timer = setTimeout(run, 0)
            return () => clearTimeout(timer)
          },
        },
      })
      await client.callTool('search')
      await client.callTool('search')
      expect(waits).toEqual([1_100])
      expect(warnings).toEqual(['The server is busy; the request is sent again in 1100 ms'])
      await client.close()
    },
  )

  const limited = (...args: readonly string[]) => ({
    command: process.execPath,
    args: [processFile('test/support/limited-stdio.ts'), ...args],
  })

  it('H9 waits over stdio, where there is no status, if the server sends the code of the draft', async () => {
    const warnings: string[] = []
    await using client = await connect(limited('drafts'), {
      onWarning: (text) => void warnings.push(text),
    })
    for (let i = 0; i < 3; i++) {
      const { content } = await client.callTool('search')
      expect(content).toEqual([{ type: 'text', text: 'found' }])
    }
    expect(warnings).toContainEqual(
      expect.stringMatching(/^The server is busy; the request is sent again in \d+ ms$/),
    )
  })

  it('H9 reports the limit over stdio without that code, with the time to wait', async () => {
    await using client = await connect(limited())
    const calls = await Promise.allSettled([client.callTool('search'), client.callTool('search')])
    const refused = calls.find((one) => one.status === 'rejected')
    expect(refused?.reason).toMatchObject({
      code: 'PEER_ERROR',
      data: { retryAfterMs: expect.any(Number) },
    })
  })
})
