/** The mount in detail: what the official server hands us and what it is given back. */

import {
  type CallToolResult,
  createMcpHandler,
  McpServer,
  ResourceNotFoundError,
  ResourceTemplate,
} from '@modelcontextprotocol/server'
import { generateKey, type LogEvent, type Server } from 'rondo'
import { createRondo, type Rondo, RondoError, type RondoOptions, ToolError } from 'rondo/sdk'
import { createBench, type TestBench } from 'rondo/testing'
import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import { ERRORS } from '../../packages/rondo/src/errors.ts'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import { mountedServer, type Register } from '../support/sdk-bench.ts'
import { send } from '../support/task-client.ts'

const text = (value: string): CallToolResult => ({ content: [{ type: 'text', text: value }] })
const value = z.object({ value: z.string() })
const ok = { sure: { confirm: true } }

type Options = Parameters<typeof mountedServer>[2]

const benchOf = (register: Register, options?: Options): TestBench =>
  createBench((bench) => mountedServer({ ...bench, audience: 'mounted', dev: false }, register, options))

/** A request as nobody would send it by accident. */
async function sendRaw(server: Server, params: object): Promise<unknown> {
  const headers = {
    'content-type': 'application/json',
    'mcp-protocol-version': '2026-07-28',
    'mcp-method': 'tools/call',
    'mcp-name': 'ask',
  }
  const _meta = {
    'io.modelcontextprotocol/protocolVersion': '2026-07-28',
    'io.modelcontextprotocol/clientCapabilities': { elicitation: { form: {} } },
  }
  const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: { ...params, _meta } })
  const response = await server.fetch(new Request('http://127.0.0.1/mcp', { method: 'POST', headers, body }))
  return response.json()
}

describe('the binding of a state', () => {
  it('B7 covers the arguments as they were sent, not as the schema parsed them', async () => {
    let made = 0
    const inputSchema = z.object({
      when: z.iso.date().transform((day) => new Date(day)),
      nonce: z.number().default(() => made++),
    })
    const bench = benchOf((server, rondo) =>
      server.registerTool(
        'book',
        { inputSchema },
        rondo.tool(async ({ when }, ctx) =>
          text(`${when.getUTCFullYear()} ${await ctx.confirm('sure', 'Book?')}`),
        ),
      ),
    )
    const call = bench.tool('book', { when: '2026-07-28' })
    expect(await call.run(ok)).toMatchObject({ text: '2026 true' })
    expect(made).toBeGreaterThan(1)
  })

  it('B7 covers the URI of a resource', async () => {
    const bench = benchOf((server, rondo) =>
      server.registerResource(
        'notes',
        new ResourceTemplate('notes://{day}', { list: undefined }),
        {},
        rondo.resource(async (uri, ctx, { day }) => {
          const sure = await ctx.confirm('sure', 'Read?')
          return { contents: [{ uri: uri.href, text: `${day} ${sure}` }] }
        }),
      ),
    )
    const monday = bench.resource('notes://monday')
    await monday.next()
    const tuesday = bench.resource('notes://tuesday')
    tuesday.state = monday.state
    expect(await tuesday.next(ok)).toMatchObject({ kind: 'error', code: -32602 })
    expect(await monday.next(ok)).toMatchObject({ kind: 'complete', text: 'monday true' })
  })

  it('B5 T1 refuses a verified token without a subject', async () => {
    const bench = benchOf((server, rondo) =>
      server.registerTool(
        'ask',
        {},
        rondo.tool(async (_args, ctx) => text(String(await ctx.confirm('sure', '?')))),
      ),
    )
    const call = bench.tool('ask', {}, { principal: { subject: '', client: 'shared' } })
    expect(await call.next()).toMatchObject({ kind: 'error', code: -32603, message: 'Internal error' })
    const warnings = bench.events.filter((event: LogEvent) => event.event === 'warning')
    expect(warnings).toMatchObject([{ error: { message: expect.stringContaining('authInfo.extra.sub') } }])
  })

  it('B5 takes the principal from the function in the options', async () => {
    const register: Register = (server, rondo) =>
      server.registerTool(
        'who',
        {},
        rondo.tool(async (_args, ctx) =>
          text(`${ctx.principal?.subject} ${ctx.sdk.http?.authInfo?.clientId}`),
        ),
      )
    const bench = createBench((options) =>
      mountedServer(
        {
          ...options,
          audience: 'mounted',
          principal: ({ http }) => ({ subject: `from ${http?.authInfo?.clientId}` }),
        },
        register,
      ),
    )
    const call = bench.tool('who', {}, { principal: { subject: '', client: 'app' } })
    expect(await call.next()).toMatchObject({ text: 'from app app' })
  })
})

describe('an error in a callback', () => {
  const failing = (error: unknown) =>
    benchOf((server, rondo) => {
      const fail = async () => {
        throw error
      }
      server.registerTool('fail', {}, rondo.tool(fail))
      server.registerResource('fail', 'fail://now', {}, rondo.resource(fail))
    })

  it('that is unexpected is logged, and its message is not sent', async () => {
    const bench = failing(new Error('secret 4711'))
    expect(await bench.tool('fail').next()).toMatchObject({ result: { isError: true }, text: 'fail failed' })
    expect(await bench.resource('fail://now').next()).toMatchObject({ kind: 'error', code: -32603 })
    expect(bench.events.filter(({ event }) => event === 'fault')).toHaveLength(2)
  })

  it('that is a ToolError is sent with its message', async () => {
    const bench = failing(new ToolError('Sold out'))
    expect(await bench.tool('fail').next()).toMatchObject({ result: { isError: true }, text: 'Sold out' })
    expect(await bench.resource('fail://now').next()).toMatchObject({ code: -32603, message: 'Sold out' })
  })

  it('that is a protocol error is sent as without Rondo', async () => {
    const bench = failing(new ResourceNotFoundError('fail://now'))
    const message = 'Resource not found: fail://now'
    expect(await bench.tool('fail').next()).toMatchObject({ result: { isError: true }, text: message })
    expect(await bench.resource('fail://now').next()).toEqual({
      kind: 'error',
      code: -32602,
      message,
      data: { uri: 'fail://now' },
    })
  })

  it('is -32021 with the missing capability if the client cannot be asked', async () => {
    const bench = benchOf((server, rondo) =>
      server.registerTool(
        'ask',
        {},
        rondo.tool(async (_args, ctx) => text(String(await ctx.confirm('sure', '?')))),
      ),
    )
    const round = await bench.tool('ask', {}, { capabilities: {} }).next()
    expect(round).toMatchObject({
      code: -32021,
      data: { requiredCapabilities: { elicitation: { form: {} } } },
    })
  })

  it('B14 refuses malformed answers', async () => {
    const bench = benchOf((server, rondo) =>
      server.registerTool(
        'ask',
        {},
        rondo.tool(async (_args, ctx) =>
          text((await ctx.ask('name', { message: '?', schema: value })).value),
        ),
      ),
    )
    const state = (await bench.tool('ask').next()) as { state?: string }
    const inputResponses = { name: { method: 'elicitation/create', result: { action: 'accept' } } }
    const answered = await sendRaw(bench.server, { name: 'ask', inputResponses, requestState: state.state })
    expect(answered).toMatchObject({ error: { code: -32602, message: ERRORS.INPUT_MALFORMED.sentence } })
  })

  it('is reported as a failure of the tool if the result is malformed', async () => {
    const bench = benchOf((server, rondo) =>
      server.registerTool('nothing', {}, rondo.tool((async () => undefined) as never)),
    )
    expect(await bench.tool('nothing').next()).toMatchObject({ result: { isError: true } })
  })
})

/** The official server would throw where it sends, and its client would never hear anything. */
describe('a result that cannot be sent', () => {
  const cycle: Record<string, unknown> = {}
  cycle.self = cycle
  const results: [string, object][] = [
    ['a cycle', { content: [], structuredContent: cycle }],
    ['a BigInt', { content: [], structuredContent: { n: 1n } }],
    [
      'a getter that throws',
      {
        get content() {
          throw new Error('secret 4711')
        },
      },
    ],
  ]

  it.each(results)('R11 %s is a failure of the tool, and logged', async (_name, result) => {
    const bench = benchOf((server, rondo) =>
      server.registerTool('wrong', {}, rondo.tool((async () => result) as never)),
    )
    const round = await bench.tool('wrong').next()
    expect(round).toMatchObject({ result: { isError: true }, text: 'wrong failed' })
    expect(bench.events.filter(({ event }) => event === 'fault')).toMatchObject([
      { error: { message: expect.stringContaining('cannot be written as JSON') } },
    ])
  })

  it('of the wrong shape is refused by the official server, and logged', async () => {
    const bench = benchOf((server, rondo) =>
      server.registerTool('wrong', {}, rondo.tool((async () => ({ content: 'text' })) as never)),
    )
    expect(await bench.tool('wrong').next()).toMatchObject({ kind: 'error', code: -32602 })
    expect(bench.events.filter(({ event }) => event === 'warning')).toMatchObject([
      { message: expect.stringContaining('rejected the result of "wrong"') },
    ])
  })
})

describe('the context', () => {
  it('has the caller and the round, and sends progress and logs', async () => {
    const bench = benchOf(
      (server, rondo) =>
        server.registerTool(
          'look',
          {},
          rondo.tool(async (_args, ctx) => {
            ctx.log('info', 'looking')
            await ctx.confirm('sure', 'Sure?')
            const { client, protocolVersion, round, principal, sdk } = ctx
            return text(
              JSON.stringify([
                client.name,
                protocolVersion,
                round,
                principal?.subject,
                sdk.mcpReq.method,
                ctx.can('form'),
              ]),
            )
          }),
        ),
      () => ({ capabilities: { logging: {} } }),
    )
    const call = bench.tool('look', {}, { principal: { subject: 'alice', client: 'app' } })
    expect(await call.run(ok)).toMatchObject({
      text: JSON.stringify(['rondo-testing', '2026-07-28', 2, 'alice', 'tools/call', true]),
    })
  })

  it('R8 fires its signal when a run is suspended, and runs deferred functions', async () => {
    const seen: string[] = []
    const bench = benchOf((server, rondo) =>
      server.registerTool(
        'wait',
        {},
        rondo.tool(async (_args, ctx) => {
          ctx.defer(() => void seen.push(`deferred, ${ctx.signal.aborted}`))
          await ctx.confirm('sure', 'Sure?')
          return text('done')
        }),
      ),
    )
    await bench.tool('wait').next()
    expect(seen).toEqual(['deferred, true'])
  })
})

/**
 * Servers are built and callbacks run inside of the official package, which answers for whatever is thrown there and tells
 * nobody: every such mistake has to be in our log, with what to do.
 */
describe('a mistake in the program', () => {
  const asks = (rondo: Rondo) =>
    rondo.tool(async (_args, ctx) => text(String(await ctx.confirm('sure', 'Sure?'))))

  interface Mistake {
    readonly name: string
    readonly advice: RegExp
    readonly options?: Partial<RondoOptions>
    build(server: McpServer, rondo: Rondo): void
  }
  const register = (server: McpServer, rondo: Rondo) => void server.registerTool('ask', {}, asks(rondo))
  const mistakes: Mistake[] = [
    {
      name: 'a server that is not mounted',
      advice: /rondo\.mount\(new McpServer/,
      build: register,
    },
    {
      name: 'single use without a store',
      advice: /"once" needs a store: createRondo/,
      build: (server, rondo) =>
        void rondo.mount(server).registerTool(
          'ask',
          {},
          rondo.tool(() => text(''), { once: true }),
        ),
    },
    {
      name: 'tasks without a store',
      advice: /Tasks need a store: createRondo/,
      build: (server, rondo) => register(rondo.tasks(server), rondo),
    },
    {
      name: 'keys that do not load',
      advice: /not today/,
      options: { keys: { load: () => Promise.reject(new RondoError('SERVER_INTERNAL', 'not today')) } },
      build: (server, rondo) => register(rondo.mount(server), rondo),
    },
    {
      name: 'a principal that cannot be found',
      advice: /nobody/,
      options: {
        principal() {
          throw new RondoError('SERVER_INTERNAL', 'nobody')
        },
      },
      build: (server, rondo) => register(rondo.mount(server), rondo),
    },
    {
      name: 'a store that is away',
      advice: /STORE_UNAVAILABLE/,
      options: {
        store: new Proxy(createMemoryStore(), {
          get: (store, key) => (key === 'once' ? away : Reflect.get(store, key)),
        }),
      },
      build: (server, rondo) =>
        void rondo.mount(server).registerTool(
          'ask',
          {},
          rondo.tool(async (_args, ctx) => text(String(await ctx.confirm('sure', 'Sure?'))), { once: true }),
        ),
    },
  ]
  const away = new Proxy({} as never, {
    get: () => () => Promise.reject(new RondoError('STORE_UNAVAILABLE')),
  })

  it.each(mistakes)('$name is logged, and the client gets no details', async (mistake) => {
    const events: LogEvent[] = []
    const log = (event: LogEvent) => void events.push(event)
    const rondo = createRondo({ audience: 'mistakes', keys: generateKey(), log, ...mistake.options })
    const fetch = createMcpHandler(() => {
      const server = new McpServer({ name: 'mistakes', version: '1.0.0' })
      mistake.build(server, rondo)
      return server
    })
    const first = await send(fetch, 'tools/call', { name: 'ask' })
    const reply =
      first.result?.resultType === 'input_required'
        ? await send(fetch, 'tools/call', { name: 'ask', requestState: first.result.requestState })
        : first
    expect(reply.error?.code ?? reply.result?.isError).toBeTruthy()
    expect(events.map((event) => String((event as { error?: Error }).error?.message))).toContainEqual(
      expect.stringMatching(mistake.advice),
    )
    await rondo.close()
  })

  it('in limits is a TypeError of createRondo', () => {
    const limits = { maxRounds: -1 }
    expect(() => createRondo({ audience: 'mistakes', keys: generateKey(), log: 'off', limits })).toThrow(
      'limits.maxRounds must be',
    )
  })

  it('in keys or store is found by ready()', async () => {
    const gone = { ready: () => Promise.reject(new TypeError('no store')) }
    const ready = (options: Partial<RondoOptions>) =>
      createRondo({ audience: 'mistakes', keys: generateKey(), log: 'off', ...options }).ready()
    await expect(ready({ store: { ...createMemoryStore(), ...gone } })).rejects.toThrow('no store')
    await expect(ready({ keys: { load: () => Promise.reject(new Error('no keys')) } })).rejects.toThrow(
      'no keys',
    )
    await expect(ready({ store: createMemoryStore() })).resolves.toBeUndefined()
  })
})
