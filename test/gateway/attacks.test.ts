/** Attacks on the gateway: states in the wrong hands, upstreams that misbehave, calls that must not be sent twice. */

import { createServer as createHttp, type IncomingHttpHeaders } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { GatewayOptions } from '@rondo/gateway'
import { createServer, generateKey } from 'rondo'
import { type Client, connect, type RoundResult } from 'rondo/client'
import { describe, expect, it, onTestFinished } from 'vitest'
import { z } from 'zod'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import { serveGateway } from './peers.ts'

const ORDER = { method: 'tools/call', name: 'order', arguments: { n: 1 } } as const
const YES = { action: 'accept', content: { sure: 'yes' } } as const

interface Counted {
  readonly url: string
  /** The number of times that the tool began, and that it did its work. */
  readonly seen: { began: number; ordered: number }
  readonly headers: IncomingHttpHeaders[]
  stop(): void
}

/** A server with a tool that asks before it orders. */
async function orders(name = 'up'): Promise<Counted> {
  const seen = { began: 0, ordered: 0 }
  const headers: IncomingHttpHeaders[] = []
  const server = createServer({ name, version: '1.0.0', keys: generateKey(), log: () => {} })
  server.tool(
    'order',
    { input: z.object({ n: z.number() }), annotations: { destructiveHint: true } },
    async ({ n }, ctx) => {
      if (ctx.inputResponses === undefined && ctx.round === 1) seen.began += 1
      const { sure } = await ctx.ask('sure', {
        message: `Order ${n}?`,
        schema: z.object({ sure: z.string() }),
      })
      seen.ordered += 1
      return `ordered ${n}: ${sure}`
    },
  )
  server.tool('plain', {}, () => {
    seen.ordered += 1
    return 'plain'
  })
  const handler = server.nodeHandler()
  const http = createHttp((request, response) => {
    headers.push(request.headers)
    handler(request, response)
  })
  await new Promise<void>((resolve) => http.listen(0, '127.0.0.1', resolve))
  const stop = (): void => {
    http.closeAllConnections()
    http.close()
  }
  onTestFinished(async () => {
    await server.close()
    stop()
  })
  return { url: `http://127.0.0.1:${(http.address() as AddressInfo).port}/mcp`, seen, headers, stop }
}

const PAIR = { method: 'tools/call', name: 'pair', arguments: {} } as const

/** A server with a tool that asks twice. */
async function pairs() {
  const seen = { paired: 0 }
  const server = createServer({ name: 'up', version: '1.0.0', keys: generateKey(), log: () => {} })
  server.tool('pair', {}, async (_args, ctx) => {
    const schema = z.object({ sure: z.string() })
    const one = await ctx.ask('one', { message: 'One?', schema })
    const two = await ctx.ask('two', { message: 'Two?', schema })
    seen.paired += 1
    return `${one.sure} ${two.sure}`
  })
  onTestFinished(() => server.close())
  const { url } = await server.listen({ port: 0, signals: false, graceMs: 100 })
  return { url, seen }
}

const byHeader: GatewayOptions['authenticate'] = ({ headers }) => ({ subject: headers('x-user') ?? 'nobody' })

async function as(
  url: string,
  user = 'ada',
  mode: '2026-07-28' | '2025-11-25' = '2026-07-28',
): Promise<Client> {
  const client = await connect(url, {
    mode,
    headers: { 'X-User': user, Authorization: `Bearer of-${user}` },
    drafts: false,
  })
  onTestFinished(() => client.close())
  return client
}

async function stateOf(
  client: Client,
  request: typeof ORDER | { method: 'tools/call'; name: string; arguments: object } = ORDER,
  answered: Parameters<Client['round']>[1] = {},
): Promise<{ key: string; requestState: string }> {
  const round = (await client.round(request as typeof ORDER, answered)) as RoundResult
  if (round.resultType !== 'input_required' || round.requestState === undefined)
    throw new Error('no question')
  return { key: Object.keys(round.inputRequests)[0] ?? '', requestState: round.requestState }
}

const REVISIONS = ['2026-07-28', '2025-11-25'] as const

describe.each(REVISIONS)('K2 W2 the state of a call at an upstream of %s', (revision) => {
  it('is refused to another caller, for other arguments and for another upstream; the caller itself goes on', async () => {
    const [one, two] = [await orders(), await orders()]
    const upstreams = { a: { url: one.url, revision }, b: { url: two.url, revision } }
    const { url } = await serveGateway(upstreams, { authenticate: byHeader })
    const request = { method: 'tools/call', name: 'a_order', arguments: { n: 1 } } as const
    const ada = await as(url)
    const { key, requestState } = await stateOf(ada, request)
    const answered = { requestState, inputResponses: { [key]: YES } }
    const refused = { peer: { code: -32602 } }
    await expect((await as(url, 'eve')).round(request, answered)).rejects.toMatchObject(refused)
    await expect(ada.round({ ...request, arguments: { n: 2 } }, answered)).rejects.toMatchObject(refused)
    await expect(ada.round({ ...request, name: 'b_order' }, answered)).rejects.toMatchObject(refused)
    await expect(ada.round(request, { ...answered, requestState: `${requestState}A` })).rejects.toMatchObject(
      refused,
    )
    expect([one.seen.ordered, two.seen]).toEqual([0, { began: 0, ordered: 0 }])
    expect(await ada.round(request, answered)).toMatchObject({
      result: { content: [{ text: 'ordered 1: yes' }] },
    })
    expect(one.seen.ordered).toBe(1)
  })

  it('is not sent to another server under the same name', async () => {
    const [one, two] = [await orders(), await orders()]
    const keys = generateKey()
    const first = await serveGateway({ up: { url: one.url, revision } }, { keys })
    const second = await serveGateway({ up: { url: two.url, revision } }, { keys })
    const { key, requestState } = await stateOf(await as(first.url))
    const round = await (await as(second.url)).round(ORDER, { requestState, inputResponses: { [key]: YES } })
    expect(round).toMatchObject({
      result: { isError: true, content: [{ text: expect.stringContaining('another server') }] },
    })
    expect(two.seen).toEqual({ began: 0, ordered: 0 })
  })
})

describe('K3 an instance that is gone', () => {
  it('loses nothing where the upstream returns its questions', async () => {
    const up = await orders()
    const keys = generateKey()
    const first = await serveGateway({ up: { url: up.url } }, { keys })
    const { key, requestState } = await stateOf(await as(first.url))
    await first.gateway.close()
    const second = await serveGateway({ up: { url: up.url } }, { keys })
    const round = await (await as(second.url)).round(ORDER, { requestState, inputResponses: { [key]: YES } })
    expect(round).toMatchObject({ result: { content: [{ text: 'ordered 1: yes' }] } })
    expect(up.seen).toEqual({ began: 1, ordered: 1 })
  })

  it('loses a held call, which is reported with its upstream and never sent again', async () => {
    const up = await orders()
    const keys = generateKey()
    const upstreams = { up: { url: up.url, revision: '2025-11-25' as const } }
    const first = await serveGateway(upstreams, { keys })
    const second = await serveGateway(upstreams, { keys })
    const { key, requestState } = await stateOf(await as(first.url))
    const answered = { requestState, inputResponses: { [key]: YES } }
    const client = await as(second.url)
    for (const _again of [1, 2])
      expect(await client.round(ORDER, answered)).toMatchObject({
        result: {
          isError: true,
          content: [{ text: expect.stringMatching(/"up" was lost.*may have had effects.*not sent again/) }],
        },
      })
    expect(up.seen).toEqual({ began: 1, ordered: 0 })
    // Control: the instance that holds it goes on.
    expect(await (await as(first.url)).round(ORDER, answered)).toMatchObject({
      result: { content: [{ text: 'ordered 1: yes' }] },
    })
    expect(up.seen).toEqual({ began: 1, ordered: 1 })
  })

  it('hands the answers of a held call over to the instance that holds it, if both share a store', async () => {
    const up = await orders()
    const shared = { keys: generateKey(), store: createMemoryStore() }
    const upstreams = { up: { url: up.url, revision: '2025-11-25' as const } }
    const first = await serveGateway(upstreams, shared)
    const second = await serveGateway(upstreams, shared)
    const { key, requestState } = await stateOf(await as(first.url))
    const answered = { requestState, inputResponses: { [key]: YES } }
    const done = { result: { content: [{ text: 'ordered 1: yes' }] } }
    const client = await as(second.url)
    expect(await client.round(ORDER, answered)).toMatchObject(done)
    const no = { requestState, inputResponses: { [key]: { action: 'decline' } as const } }
    expect(await client.round(ORDER, no)).toMatchObject(done)
    expect(await (await as(first.url)).round(ORDER, no)).toMatchObject(done)
    expect(up.seen).toEqual({ began: 1, ordered: 1 })
    expect(first.gateway.heldCalls()).toBe(0)
  })

  it('K3 asks nothing again and returns one result if each round is sent twice, to any instance', async () => {
    const up = await pairs()
    const shared = { keys: generateKey(), store: createMemoryStore() }
    const upstreams = { up: { url: up.url, revision: '2025-11-25' as const } }
    const first = await as((await serveGateway(upstreams, shared)).url)
    const second = await as((await serveGateway(upstreams, shared)).url)
    for (const both of [
      [first, first],
      [first, second],
      [second, second],
    ] as const) {
      const begun = await stateOf(first, PAIR)
      const answered = ({ key, requestState }: typeof begun) => ({
        requestState,
        inputResponses: { [key]: YES },
      })
      const states = await Promise.all(both.map((client) => stateOf(client, PAIR, answered(begun))))
      const ended = await Promise.all(states.map((state) => second.round(PAIR, answered(state))))
      const done = { resultType: 'complete', result: { content: [{ text: 'yes yes' }] } }
      expect(ended).toMatchObject([done, done])
    }
    expect(up.seen).toEqual({ paired: 3 })
  })

  it('W7 cancels a held call whose client is gone, even if another instance got its last round', async () => {
    const seen = { slow: '' }
    const server = createServer({ name: 'up', version: '1.0.0', keys: generateKey(), log: () => {} })
    server.tool('slow', {}, async (_args, ctx) => {
      await ctx.ask('sure', { message: 'Sure?', schema: z.object({ sure: z.string() }) })
      seen.slow = 'running'
      await new Promise((resolve) => ctx.signal.addEventListener('abort', resolve))
      seen.slow = 'cancelled'
      return 'never read'
    })
    onTestFinished(() => server.close())
    const { url } = await server.listen({ port: 0, signals: false, graceMs: 100 })
    const shared = { keys: generateKey(), store: createMemoryStore() }
    const upstreams = { up: { url, revision: '2025-11-25' as const } }
    const [first, second] = [await serveGateway(upstreams, shared), await serveGateway(upstreams, shared)]
    const request = { method: 'tools/call', name: 'slow', arguments: {} } as const
    const { key, requestState } = await stateOf(await as(first.url), request)
    const stop = new AbortController()
    const answered = { requestState, inputResponses: { [key]: YES }, signal: stop.signal }
    const calling = (await as(second.url)).round(request, answered)
    calling.catch(() => {})
    await expect.poll(() => seen.slow).toBe('running')
    stop.abort()
    await expect(calling).rejects.toThrow()
    await expect.poll(() => seen.slow).toBe('cancelled')
    await expect.poll(() => first.gateway.heldCalls()).toBe(0)
  })

  it('W7 cancels a held call whose client is gone, in the pushed cell', async () => {
    const up = await orders()
    const { url, gateway } = await serveGateway({ up: { url: up.url, revision: '2025-11-25' } })
    const stop = new AbortController()
    const client = await connect(url, {
      mode: '2025-11-25',
      drafts: false,
      answers: {
        elicitation: {
          form: () => {
            stop.abort()
            return new Promise(() => {})
          },
        },
      },
    })
    onTestFinished(() => client.close())
    await expect(client.callTool('order', { n: 1 }, { signal: stop.signal })).rejects.toThrow()
    await expect.poll(() => gateway.heldCalls()).toBe(0)
    expect(up.seen.ordered).toBe(0)
  })
})

describe('K5 W5 callers', () => {
  it.each(REVISIONS)('share no connection, and their tokens never go upstream (%s)', async (revision) => {
    const up = await orders()
    const credentials = (caller: { subject: string } | undefined) => ({ 'X-For': caller?.subject ?? 'lists' })
    const { url } = await serveGateway(
      { up: { url: up.url, revision, credentials } },
      { authenticate: byHeader },
    )
    for (const user of ['ada', 'bob'])
      expect(await (await as(url, user)).callTool('plain')).toMatchObject({ content: [{ text: 'plain' }] })
    expect(up.headers.every((one) => one.authorization === undefined && one['x-user'] === undefined)).toBe(
      true,
    )
    expect(new Set(up.headers.map((one) => one['x-for']))).toEqual(new Set(['lists', 'ada', 'bob']))
    const sessions = new Map(
      up.headers.flatMap((one) => (one['mcp-session-id'] ? [[one['mcp-session-id'], one['x-for']]] : [])),
    )
    expect(new Set(sessions.values()).size).toBe(sessions.size)
  })
})

describe('never twice: a gateway that stops while a call waits for an answer', () => {
  it.each(REVISIONS)(
    'says that it may have had effects, and not to send it again (server of %s)',
    async (revision) => {
      const up = await orders()
      const { url, gateway } = await serveGateway({ up: { url: up.url, revision } })
      let stopping: Promise<void> | undefined
      const form = () => {
        stopping = gateway.close()
        return new Promise<never>(() => {})
      }
      const client = await connect(url, {
        mode: '2025-11-25',
        drafts: false,
        answers: { elicitation: { form } },
      })
      onTestFinished(() => client.close())
      await expect(client.callTool('order', { n: 1 })).rejects.toThrow(
        'The gateway is stopping, so the call at "up" was ended. It may have had effects there',
      )
      await stopping
    },
  )
})

/** An upstream that is not what it should be. */
async function misbehaving(reply: (body: Record<string, unknown>) => unknown): Promise<string> {
  const http = createHttp(async (request, response) => {
    let text = ''
    for await (const chunk of request) text += chunk
    const body = text === '' ? {} : JSON.parse(text)
    const result = await reply(body)
    if (result === undefined) return
    response.writeHead(200, { 'Content-Type': 'application/json' })
    response.end(
      typeof result === 'string' ? result : JSON.stringify({ jsonrpc: '2.0', id: body.id, result }),
    )
  })
  await new Promise<void>((resolve) => http.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => {
    http.closeAllConnections()
    http.close()
  })
  return `http://127.0.0.1:${(http.address() as AddressInfo).port}/mcp`
}

const HINT = { ttlMs: 0, cacheScope: 'private', resultType: 'complete' }
const tools = (...names: string[]) => ({
  tools: names.map((name) => ({ name, inputSchema: { type: 'object' } })),
  ...HINT,
})

function server2026(
  call: (params: Record<string, unknown>) => unknown,
  list: () => unknown = () => tools('t'),
) {
  return ({ method, params }: Record<string, unknown>): unknown => {
    if (method === 'server/discover')
      return { supportedVersions: ['2026-07-28'], capabilities: { tools: {} }, ...HINT }
    if (method === 'tools/list') return list()
    if (method === 'tools/call') return call(params as Record<string, unknown>)
    return undefined
  }
}

describe('W8 an upstream that misbehaves', () => {
  const good = async () => ({ url: (await orders()).url })
  it.each<[string, () => Promise<string>, RegExp]>([
    ['returns junk', () => misbehaving(server2026(() => 'not JSON')), /"bad" failed.*may have had effects/],
    [
      'never answers',
      () => misbehaving(server2026(() => undefined)),
      /"bad" failed.*did not respond within.*may have had effects/,
    ],
    [
      'asks what was not declared',
      () =>
        misbehaving(
          server2026(() => ({
            resultType: 'input_required',
            inputRequests: {
              s: { method: 'sampling/createMessage', params: { messages: [], maxTokens: 1 } },
            },
          })),
        ),
      /did not declare/,
    ],
    [
      'asks for a password',
      () => {
        const requestedSchema = { type: 'object', properties: { password: { type: 'string' } } }
        const params = { mode: 'form', message: 'Log in', requestedSchema }
        return misbehaving(
          server2026(() => ({
            resultType: 'input_required',
            inputRequests: { s: { method: 'elicitation/create', params } },
          })),
        )
      },
      /"bad" is not shown here/,
    ],
    [
      'asks under a key of the gateway',
      () => {
        const params = { mode: 'form', message: 'Sure?', requestedSchema: { type: 'object' } }
        return misbehaving(
          server2026(() => ({
            resultType: 'input_required',
            inputRequests: { 'gateway:confirm': { method: 'elicitation/create', params } },
          })),
        )
      },
      /reserved/,
    ],
    [
      'sends a state that is too large',
      () =>
        misbehaving(server2026(() => ({ resultType: 'input_required', requestState: 'x'.repeat(50_000) }))),
      /The state of "bad" is 50000 characters/,
    ],
  ])('%s: the caller reads why, and others are not affected', async (_name, start, wanted) => {
    const { url } = await serveGateway({ bad: { url: await start(), timeoutMs: 2_000 }, good: await good() })
    const client = await connect(url, {
      answers: { elicitation: { form: () => ({ action: 'accept', content: {} }) } },
    })
    onTestFinished(() => client.close())
    const [bad, fine] = await Promise.all([client.callTool('bad_t'), client.callTool('good_plain')])
    expect(fine).toMatchObject({ content: [{ text: 'plain' }] })
    expect(bad).toMatchObject({ isError: true, content: [{ text: expect.stringMatching(wanted) }] })
  })

  it('lists what it offered last while it is down, says that nothing was sent, and is not waited for', async () => {
    const down = await serveGateway({ good: await good(), bad: { url: 'http://127.0.0.1:9/mcp' } })
    expect(down.gateway.upstreams()).toMatchObject([
      { name: 'good', tools: 2 },
      { name: 'bad', tools: 0, problem: expect.any(String) },
    ])
    const up = await orders()
    const { url } = await serveGateway({ up: { url: up.url } })
    const client = await as(url)
    expect(await client.callTool('plain')).toMatchObject({ content: [{ text: 'plain' }] })
    up.stop()
    expect((await client.listTools({ fresh: true })).length).toBe(2)
    expect(await client.callTool('plain')).toMatchObject({
      isError: true,
      content: [{ text: expect.stringMatching(/"up" does not answer.*Nothing was sent/) }],
    })
    expect(up.seen.ordered).toBe(1)
  })

  it('floods with tools: the list is refused, and the gateway says why', async () => {
    let page = 0
    const endless = () => {
      page += 1
      return { ...tools(`t${page}`), nextCursor: String(page) }
    }
    const { gateway } = await serveGateway({
      good: await good(),
      bad: { url: await misbehaving(server2026(() => ({}), endless)) },
    })
    expect(gateway.upstreams()[1]).toMatchObject({
      tools: 0,
      problem: expect.stringContaining('does not end'),
    })
    expect(page).toBeLessThan(200)
  })

  it('W6 offers a tool of the same name as another: an error at the start names both', async () => {
    const [a, b] = [await good(), await good()]
    await expect(serveGateway({ a, b }, { rename: (_upstream, name) => name })).rejects.toThrow(
      '"b" and "a" both offer the tool "order"',
    )
  })
})

describe('W10 a loop of gateways', () => {
  it('is refused before anything is sent', async () => {
    const up = await orders()
    const { url } = await serveGateway({ up: { url: up.url } })
    const client = await as(url)
    const hops = (n: number) => client.callTool('plain', {}, { meta: { 'rondo/hops': n } })
    expect(await hops(8)).toMatchObject({
      isError: true,
      content: [{ text: expect.stringContaining('loop') }],
    })
    expect(up.seen.ordered).toBe(0)
    expect(await hops(7)).toMatchObject({ content: [{ text: 'plain' }] })
  })
})

describe('W9 decide', () => {
  const serve = async (decide: GatewayOptions['decide']) => {
    const up = await orders()
    const { url } = await serveGateway({ up: { url: up.url } }, { decide })
    return { up, url }
  }
  it.each<[string, GatewayOptions['decide'], string]>([
    ['denies', () => 'deny', 'does not allow'],
    ['denies with a reason', () => ({ deny: 'not on Fridays' }), 'not on Fridays'],
    [
      'throws',
      () => {
        throw new Error('broken')
      },
      'failed',
    ],
    ['returns nonsense', () => 'maybe' as never, 'does not allow'],
    ['returns nothing', () => undefined as never, 'does not allow'],
    ['returns null', () => null as never, 'does not allow'],
    ['returns an empty object', () => ({}) as never, 'does not allow'],
    [
      'approves and denies at once',
      () => ({ approve: 'managers', deny: 'not on Fridays' }),
      'does not allow the call of plain: not on Fridays',
    ],
    ['wants an approval', () => 'approve', 'has no approvals'],
    ['wants a confirmation of what is too long to show', () => 'confirm', 'too long'],
  ])('sends nothing if it %s', async (name, decide, wanted) => {
    const { up, url } = await serve(decide)
    const client = await connect(url, {
      answers: { elicitation: { form: () => ({ action: 'accept', content: { confirm: true } }) } },
    })
    onTestFinished(() => client.close())
    const text = name.includes('too long') ? 'x'.repeat(5_000) : 'x'
    const result = await client.callTool('plain', { text })
    expect(result).toMatchObject({ isError: true, content: [{ text: expect.stringContaining(wanted) }] })
    expect(up.seen.ordered).toBe(0)
  })

  it.each([true, false])('asks the caller with the exact arguments, and a %s decides', async (yes) => {
    const { up, url } = await serve(({ annotations }) => (annotations.destructiveHint ? 'confirm' : 'allow'))
    const asked: string[] = []
    const client = await connect(url, {
      answers: {
        elicitation: {
          form: ({ message, requestedSchema }) => {
            asked.push(message)
            const [field = ''] = Object.keys(requestedSchema.properties ?? {})
            return { action: 'accept', content: field === 'sure' ? { sure: 'yes' } : { [field]: yes } }
          },
        },
      },
    })
    onTestFinished(() => client.close())
    const result = await client.callTool('order', { n: 7 })
    expect(asked[0]).toContain('"n": 7')
    expect(up.seen.ordered).toBe(yes ? 1 : 0)
    expect(JSON.stringify(result)).toContain(yes ? 'ordered 7' : 'did not confirm')
    expect(await client.callTool('plain')).toMatchObject({ content: [{ text: 'plain' }] })
  })
})
