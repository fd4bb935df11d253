import { afterEach, describe, expect, it, vi } from 'vitest'
import { z } from 'zod'
import { send, settled } from '../../../../test/support/task-client.ts'
import { runAround } from '../carry/around.ts'
import { JsonRpcError, RondoError, ToolError } from '../errors.ts'
import type { CallFacts, CallReply, Extension, ExtensionHost } from '../extension.ts'
import type { LogEvent } from '../log/event.ts'
import { generateKey } from '../seal/key-ring.ts'
import { createMemoryStore } from '../store/memory/store.ts'
import type { ServerOptions } from './options.ts'
import { createServer, type Server } from './server.ts'

const servers: Server[] = []
afterEach(() => Promise.all(servers.splice(0).map((server) => server.close())))

function serverWith(extensions: readonly Extension[], options: Partial<ServerOptions> = {}): Server {
  const server = createServer({ name: 'shop', version: '1', keys: generateKey(), log: 'off', ...options })
  servers.push(server)
  for (const extension of extensions) server.use(extension)
  server.tool('add', { input: z.object({ a: z.number() }) }, ({ a }) => String(a + 1))
  server.tool('ask', {}, async (_, ctx) => {
    const { name } = await ctx.ask('who', { message: 'Who?', schema: z.object({ name: z.string() }) })
    return name
  })
  return server
}

const get = (server: Server, path: string, init: RequestInit = {}): Promise<Response> =>
  server.fetch(new Request(`http://127.0.0.1${path}`, init))

const add = (server: Server, a = 1) => send(server, 'tools/call', { name: 'add', arguments: { a } })

describe('server.use', () => {
  const route = () => new Response('ok')
  const method = () => ({})

  it.each<[string, readonly Extension[], string]>([
    [
      'a route twice',
      [
        { name: 'a', routes: { '/x': route } },
        { name: 'b', routes: { '/x': route } },
      ],
      '"a" and "b" both serve /x',
    ],
    [
      'a route below that of another',
      [
        { name: 'a', routes: { '/x': route } },
        { name: 'b', routes: { '/x/y': route } },
      ],
      'both serve /x/y',
    ],
    [
      'a route above that of another',
      [
        { name: 'a', routes: { '/x/y': route } },
        { name: 'b', routes: { '/x': route } },
      ],
      'both serve /x/y',
    ],
    [
      'a method twice',
      [
        { name: 'a', methods: { 'v/m': method } },
        { name: 'b', methods: { 'v/m': method } },
      ],
      '"a" and "b" both define the method v/m',
    ],
    [
      'a method of the protocol',
      [{ name: 'a', methods: { 'tools/call': method } }],
      'belongs to the protocol',
    ],
    ['a method without a namespace', [{ name: 'a', methods: { ping: method } }], 'vendor/thing'],
    ['a route without a slash', [{ name: 'a', routes: { x: route } }], 'a path such as /approvals'],
    [
      'a route that ends with a slash',
      [{ name: 'a', routes: { '/x/': route } }],
      'without a slash at its end',
    ],
    ['a name twice', [{ name: 'a' }, { name: 'a' }], 'already in use'],
    ['no name', [{} as Extension], 'needs a name'],
    ['an unknown part', [{ name: 'a', route: {} } as Extension], 'Did you mean "routes"?'],
    ['attach that is async', [{ name: 'a', attach: (async () => {}) as never }], 'and not a promise'],
    ['a route that is no function', [{ name: 'a', routes: { '/x': 5 as never } }], 'must be a function'],
  ])('refuses %s', (_, extensions, message) => {
    expect(() => serverWith(extensions)).toThrow(message)
  })

  it('refuses a route over the OAuth metadata', () => {
    const resource = { scopes: [], challenge: () => '', paths: ['/.well-known/oauth'], document: '{}' }
    const authenticate = Object.assign(() => undefined, { resource })
    const hides = () => serverWith([{ name: 'a', routes: { '/.well-known': route } }], { authenticate })
    expect(hides).toThrow('hides /.well-known/oauth')
  })

  it.each(['/mcp', '/healthz', '/readyz'])('refuses to listen where a route hides %s', async (path) => {
    const server = serverWith([{ name: 'a', routes: { [path]: route } }])
    const listening = server.listen({ port: 0, signals: false, health: '/healthz', ready: '/readyz' })
    await expect(listening).rejects.toThrow(`The route ${path} of the extension "a" hides ${path}`)
  })

  it('refuses an extension after the first request', async () => {
    const server = serverWith([])
    await add(server)
    expect(() => server.use({ name: 'late' })).toThrow('must come before')
  })

  it('leaves nothing of an extension whose attach throws', async () => {
    const server = serverWith([])
    let ran = 0
    const broken: Extension = {
      name: 'a',
      routes: { '/x': route },
      methods: { 'v/m': method },
      around: (_, next) => {
        ran += 1
        return next()
      },
      attach() {
        throw new Error('No directory')
      },
    }
    expect(() => server.use(broken)).toThrow('No directory')
    await add(server)
    expect(ran).toBe(0)
    expect((await get(server, '/x')).status).toBe(405)
    expect((await send(server, 'v/m', {})).error).toMatchObject({ code: -32601 })
  })

  it('R11 closes within a limit of time, whatever an extension waits for', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
    try {
      const events: LogEvent[] = []
      const stuck: Extension = { name: 'stuck', attach: () => () => new Promise(() => {}) }
      const closing = serverWith([stuck], { log: (event) => void events.push(event) }).close()
      let isClosed = false
      void closing.then(() => {
        isClosed = true
      })
      for (let second = 0; second < 60 && !isClosed; second += 1) {
        await vi.advanceTimersByTimeAsync(1_000)
        await new Promise((resolve) => setImmediate(resolve))
      }
      expect(isClosed).toBe(true)
      expect(events).toContainEqual(
        expect.objectContaining({ event: 'extension', extension: 'stuck', level: 'warn' }),
      )
    } finally {
      vi.useRealTimers()
    }
  })

  it('attaches each extension once, and closes them in the opposite order, even if one throws', async () => {
    const done: string[] = []
    const events: LogEvent[] = []
    const attached = (name: string, close: () => void): Extension => ({
      name,
      attach() {
        done.push(`attach ${name}`)
        return close
      },
    })
    const first = attached('first', () => void done.push('close first'))
    const second = attached('second', () => {
      done.push('close second')
      throw new Error('stuck')
    })
    const server = serverWith([first, second], { log: (event) => void events.push(event) })
    await server.close()
    await server.close()
    expect(done).toEqual(['attach first', 'attach second', 'close second', 'close first'])
    expect(events).toContainEqual(
      expect.objectContaining({ event: 'extension', extension: 'second', level: 'warn' }),
    )
  })
})

describe('the host of an extension', () => {
  const attach = (options: Partial<ServerOptions> = {}, name = 'approvals'): ExtensionHost => {
    let given: ExtensionHost | undefined
    serverWith(
      [
        {
          name,
          attach(host) {
            given = host
            return undefined
          },
        },
      ],
      options,
    )
    if (!given) throw new Error('The extension was not attached')
    return given
  }

  it('seals data for one purpose of one extension of one service', async () => {
    const keys = generateKey()
    const host = attach({ keys })
    const sealed = await host.seal('cookie', 'Ann')
    expect(sealed).toMatch(/^[\w.-]+$/)
    expect(Buffer.from((await host.open('cookie', sealed)) ?? []).toString()).toBe('Ann')
    expect(await host.open('record', sealed)).toBeUndefined()
    const altered = sealed.replace(/.(?=.{40}$)/, (one) => (one === 'A' ? 'B' : 'A'))
    expect(await host.open('cookie', altered)).toBeUndefined()
    expect(await attach({ keys }, 'other').open('cookie', sealed)).toBeUndefined()
    expect(await attach({ keys, audience: 'elsewhere' }).open('cookie', sealed)).toBeUndefined()
    expect(await attach().open('cookie', sealed)).toBeUndefined()
    const again = await attach({ keys }).open('cookie', sealed)
    expect(Buffer.from(again ?? []).toString()).toBe('Ann')
  })

  it('has the name, the clock, the store and the log of the server', () => {
    const events: LogEvent[] = []
    const store = createMemoryStore()
    const host = attach({ store, now: () => 7, log: (event) => void events.push(event) })
    host.log('Head of the record')
    host.log('The directory does not respond', new Error('timeout'))
    expect(host).toMatchObject({ name: 'shop' })
    expect(host.store).toBeDefined()
    expect(host.now()).toBe(7)
    expect(events).toMatchObject([
      { event: 'extension', level: 'info', extension: 'approvals', message: 'Head of the record' },
      { event: 'extension', level: 'warn', error: { message: 'timeout' } },
    ])
  })

  it('delivers events only where there is a store', async () => {
    await expect(attach().deliver('h', {})).rejects.toThrow('needs a store')
    expect(await attach({ store: createMemoryStore() }).deliver('h', {})).toEqual({ kind: 'unknown' })
  })
})

describe('a method of an extension', () => {
  const methods: Extension['methods'] = {
    'vendor/echo': (params, { method, protocolVersion }) => ({ said: params.word, method, protocolVersion }),
    'vendor/refuse': () => {
      throw new RondoError('PEER_PARAMS', 'word is missing')
    },
    'vendor/foreign': () => {
      throw new JsonRpcError(-32050, 'Out of quota', { resetsOn: 'Monday' })
    },
    'vendor/broken': () => {
      throw new Error('secret')
    },
    'vendor/nothing': (() => undefined) as never,
  }

  it('R11 survives a listener of its signal that throws', async () => {
    const events: LogEvent[] = []
    const client = new AbortController()
    const leaving: Extension['methods'] = {
      'vendor/slow': (_, { signal }) =>
        new Promise((resolve) => {
          signal.addEventListener('abort', () => {
            resolve({})
            throw new Error('The listener broke')
          })
          client.abort()
        }),
    }
    const log = (event: LogEvent) => void events.push(event)
    const server = serverWith([{ name: 'vendor', methods: leaving }], { log })
    const meta = {
      'io.modelcontextprotocol/protocolVersion': '2026-07-28',
      'io.modelcontextprotocol/clientCapabilities': {},
    }
    const response = await server.fetch(
      new Request('http://127.0.0.1/mcp', {
        method: 'POST',
        signal: client.signal,
        headers: {
          'content-type': 'application/json',
          'mcp-protocol-version': '2026-07-28',
          'mcp-method': 'vendor/slow',
        },
        body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'vendor/slow', params: { _meta: meta } }),
      }),
    )
    // `fetch` settles even if nobody reads its response.
    expect(response.status).toBe(499)
    expect(events).toContainEqual(
      expect.objectContaining({
        event: 'extension',
        extension: 'vendor',
        error: expect.objectContaining({ message: 'The listener broke' }),
      }),
    )
  })

  it('serves its params and returns its result', async () => {
    const server = serverWith([{ name: 'vendor', methods }])
    const { result } = await send(server, 'vendor/echo', { word: 'hello' })
    expect(result).toMatchObject({ said: 'hello', method: 'vendor/echo', protocolVersion: '2026-07-28' })
  })

  it.each([
    ['vendor/refuse', { code: -32602, message: 'word is missing' }],
    ['vendor/foreign', { code: -32050, message: 'Out of quota', data: { resetsOn: 'Monday' } }],
    ['vendor/broken', { code: -32603, message: 'Internal error' }],
    ['vendor/nothing', { code: -32603, message: 'Internal error' }],
    ['vendor/unknown', { code: -32601, message: 'Method not found' }],
  ])('%s ends with its error', async (method, error) => {
    const server = serverWith([{ name: 'vendor', methods }])
    expect((await send(server, method, {})).error).toEqual(error)
  })
})

describe('a step around calls', () => {
  const observing = (name: string, seen: string[]): Extension => ({
    name,
    async around(call, next) {
      seen.push(`${name} ${call.method}`)
      const reply = await next()
      seen.push(`${name} ${reply.kind}`)
      return reply
    },
  })

  it('runs inside those that were used before it', async () => {
    const seen: string[] = []
    const server = serverWith([observing('outer', seen), observing('inner', seen)])
    expect((await add(server)).result).toMatchObject({ content: [{ text: '2' }] })
    expect(seen).toEqual(['outer tools/call', 'inner tools/call', 'inner complete', 'outer complete'])
  })

  it('learns who calls what', async () => {
    const calls: CallFacts[] = []
    const around: Extension['around'] = (call, next) => {
      calls.push(call)
      return next()
    }
    const server = serverWith([{ name: 'x', around }], { authenticate: () => ({ subject: 'ann' }) })
    await send(
      server,
      'tools/call',
      { name: 'add', arguments: { a: 1 } },
      {
        meta: { 'io.modelcontextprotocol/clientInfo': { name: 'c', version: '2' } },
      },
    )
    await send(server, 'tools/list', {})
    expect(calls).toMatchObject([
      {
        kind: 'request',
        method: 'tools/call',
        target: 'add',
        args: { a: 1 },
        continues: false,
        principal: { subject: 'ann' },
        client: { name: 'c', version: '2' },
        protocolVersion: '2026-07-28',
      },
      { kind: 'request', method: 'tools/list', args: {} },
    ])
  })

  it('runs once per round, also in development, where a round runs twice', async () => {
    const calls: CallFacts[] = []
    const around: Extension['around'] = (call, next) => {
      calls.push(call)
      return next()
    }
    const server = serverWith([{ name: 'x', around }], { dev: true })
    const first = await send(server, 'tools/call', { name: 'ask', arguments: {} })
    const inputResponses = { who: { action: 'accept', content: { name: 'Ann' } } }
    const requestState = String(first.result?.requestState)
    const second = await send(server, 'tools/call', {
      name: 'ask',
      arguments: {},
      inputResponses,
      requestState,
    })
    expect(second.result).toMatchObject({ content: [{ text: 'Ann' }] })
    expect(calls.map(({ continues }) => continues)).toEqual([false, true])
  })

  const replies: [string, () => CallReply, object][] = [
    [
      'a result',
      () => ({ kind: 'complete', result: { content: [{ type: 'text', text: 'mine' }] } }),
      { result: { content: [{ text: 'mine' }] } },
    ],
    [
      'an error',
      () => ({ kind: 'error', error: new RondoError('PEER_FORBIDDEN') }),
      { error: { code: -32000, message: 'This caller may not do this' } },
    ],
    [
      'a thrown error',
      () => {
        throw new JsonRpcError(-32077, 'No')
      },
      { error: { code: -32077, message: 'No' } },
    ],
    [
      'a thrown ToolError',
      () => {
        throw new ToolError('Closed on Sundays')
      },
      { result: { isError: true, content: [{ text: 'Closed on Sundays' }] } },
    ],
    [
      'a fault of its own',
      () => {
        throw new Error('secret')
      },
      { error: { code: -32603, message: 'Internal error' } },
    ],
    ['no reply', () => undefined as never, { error: { code: -32603, message: 'Internal error' } }],
    [
      'a result that is none',
      () => ({ kind: 'complete' }) as never,
      { error: { code: -32603, message: 'Internal error' } },
    ],
    [
      'pending without next',
      () => ({ kind: 'pending' }),
      { error: { code: -32603, message: 'Internal error' } },
    ],
  ]

  it.each(replies)('may reply itself, with %s', async (_, reply, expected) => {
    let ran = false
    const server = serverWith([{ name: 'x', around: async () => reply() }])
    server.tool('run', {}, () => {
      ran = true
      return 'ran'
    })
    expect(await send(server, 'tools/call', { name: 'run' })).toMatchObject(expected)
    expect(ran).toBe(false)
  })

  it.each([undefined, null, 5, 'yes', true, {}])('does not run the call if it returns %j', async (junk) => {
    let ran = 0
    // A step that is not async returns nothing where it refuses.
    const server = serverWith([{ name: 'x', around: () => junk as never }])
    server.tool('run', {}, () => String(++ran))
    expect(await send(server, 'tools/call', { name: 'run' })).toMatchObject({ error: { code: -32603 } })
    expect(ran).toBe(0)
  })

  it('R11 survives a step that drops the promise of next', async () => {
    const rejections: unknown[] = []
    const onRejection = (error: unknown): void => void rejections.push(error)
    process.on('unhandledRejection', onRejection)
    try {
      const drop: Extension['around'] = async (_, next) => {
        void next()
        return { kind: 'complete', result: { content: [] } }
      }
      const server = serverWith([
        { name: 'outer', around: drop },
        { name: 'inner', around: async () => undefined as never },
      ])
      expect((await add(server)).result).toMatchObject({ content: [] })
      await new Promise((resolve) => setImmediate(resolve))
      expect(rejections).toEqual([])
    } finally {
      process.off('unhandledRejection', onRejection)
    }
  })

  it('cannot run the call after it has replied', async () => {
    let ran = 0
    let late: (() => Promise<CallReply>) | undefined
    const around: Extension['around'] = async (_, next) => {
      late = next
      return { kind: 'complete', result: { content: [] } }
    }
    const server = serverWith([{ name: 'x', around }])
    server.tool('run', {}, () => String(++ran))
    await send(server, 'tools/call', { name: 'run' })
    await expect(late?.()).rejects.toThrow('after it had replied')
    expect(ran).toBe(0)
  })

  it('decides about the calls of clients of earlier eras too', async () => {
    let ran = 0
    const refuse: Extension['around'] = async () => {
      throw new RondoError('PEER_FORBIDDEN')
    }
    const server = serverWith([{ name: 'x', around: refuse }])
    server.tool('run', {}, () => String(++ran))
    const response = await get(server, '/mcp', {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'mcp-protocol-version': '2025-11-25' },
      body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'run' } }),
    })
    expect(await response.json()).toMatchObject({ id: 1, error: { message: 'This caller may not do this' } })
    expect(ran).toBe(0)
  })

  it("H2 does not see a call that its caller's token does not allow", async () => {
    const calls: CallFacts[] = []
    const around: Extension['around'] = (call, next) => {
      calls.push(call)
      return next()
    }
    const authenticate = () => ({ subject: 'ann', scopes: ['read'] })
    const server = serverWith([{ name: 'x', around }], { authenticate })
    server.tool('refund', { scopes: ['write'] }, () => 'refunded')
    expect((await send(server, 'tools/call', { name: 'refund' })).error).toMatchObject({
      data: { requiredScopes: ['write'] },
    })
    expect(calls).toEqual([])
  })

  it('may replace a list', async () => {
    const around: Extension['around'] = async ({ method }, next) => {
      const reply = await next()
      if (method !== 'tools/list' || reply.kind !== 'cacheable') return reply
      const tools = [...(reply.result.tools as object[]), { name: 'remote', inputSchema: { type: 'object' } }]
      return { ...reply, result: { ...reply.result, tools } }
    }
    const server = serverWith([{ name: 'x', around }])
    const { result = {} } = await send(server, 'tools/list', {})
    expect((result.tools as { name: string }[]).map(({ name }) => name)).toEqual(['add', 'ask', 'remote'])
  })

  it('runs the call once, even if it calls next twice', async () => {
    let runs = 0
    const around: Extension['around'] = async (_, next) => {
      const [first] = await Promise.all([next(), next()])
      return first
    }
    const server = serverWith([{ name: 'x', around }])
    server.tool('count', {}, () => String(++runs))
    expect((await send(server, 'tools/call', { name: 'count' })).result).toMatchObject({
      content: [{ text: '1' }],
    })
  })
})

describe('the time of a step around calls', () => {
  const limited = (around: Extension['around'], run: () => Promise<string> = async () => 'ran') => {
    const facts: CallFacts = {
      kind: 'request',
      method: 'vendor/run',
      args: {},
      continues: false,
      protocolVersion: 'v',
    }
    const steps = [{ name: 'x', run: around as NonNullable<typeof around> }]
    const result = runAround<string>(
      steps,
      facts,
      run,
      {
        toReply: (text) => ({ kind: 'complete', result: { text } }),
        fromReply: ({ kind }) => kind,
      },
      10,
    )
    return result
  }

  it.each<[string, Extension['around']]>([
    ['before next', () => new Promise(() => {})],
    ['after next', (_, next) => next().then(() => new Promise(() => {}))],
  ])('R11 fails the call if it does not settle %s', async (_, around) => {
    await expect(limited(around)).rejects.toThrow('around of the extension "x" did not settle within 10 ms')
  })

  it('does not count the time of the call', async () => {
    const slow = () => new Promise<string>((resolve) => setTimeout(resolve, 40, 'ran'))
    expect(await limited((_, next) => next(), slow)).toBe('ran')
  })
})

describe('a step around the turns of a task', () => {
  const begin = (server: Server) => send(server, 'tools/call', { name: 'work' })

  async function run(around: Extension['around'], handler: () => string | Promise<string> = () => 'worked') {
    const server = serverWith([{ name: 'x', around }], { store: createMemoryStore() })
    server.tool('work', { task: 'always' }, handler)
    const { result } = await begin(server)
    return { server, taskId: String(result?.taskId), task: await settled(server, String(result?.taskId)) }
  }

  it('runs once per turn, and sees the result', async () => {
    const seen: [CallFacts, CallReply][] = []
    const { taskId, task } = await run(async (call, next) => {
      const reply = await next()
      if (call.kind === 'turn') seen.push([call, reply])
      return reply
    })
    expect(task).toMatchObject({ status: 'completed', result: { content: [{ text: 'worked' }] } })
    expect(seen).toMatchObject([
      [
        { kind: 'turn', method: 'tools/call', target: 'work', task: taskId, flow: expect.any(String) },
        { kind: 'complete', result: { content: [{ text: 'worked' }] } },
      ],
    ])
  })

  it('ends the turn after its handler, even if it does not wait for it', async () => {
    const done: string[] = []
    const { task } = await run(
      async ({ kind }, next) => {
        const running = next()
        return kind === 'turn' ? { kind: 'complete', result: { content: [] } } : running
      },
      async () => {
        await new Promise((resolve) => setTimeout(resolve, 20))
        done.push('handler')
        return 'worked'
      },
    )
    expect(task).toMatchObject({ status: 'completed', result: { content: [] } })
    expect(done).toEqual(['handler'])
  })

  it('may end the task with a result or an error before the handler runs', async () => {
    let ran = 0
    const refuse: Extension['around'] = async ({ kind }, next) => {
      if (kind === 'turn') throw new RondoError('PEER_FORBIDDEN')
      return next()
    }
    const count = () => String(++ran)
    expect((await run(refuse, count)).task).toMatchObject({ status: 'failed', error: { code: -32000 } })
    const replace: Extension['around'] = async ({ kind }, next) =>
      kind === 'turn' ? { kind: 'complete', result: { content: [] } } : next()
    expect((await run(replace, count)).task).toMatchObject({ status: 'completed', result: { content: [] } })
    expect(ran).toBe(0)
  })

  it.each([
    ['a fault of its own', () => new Error('The directory does not respond')],
    ['a store that is away', () => new RondoError('STORE_UNAVAILABLE')],
  ])('retries the turn after %s', async (_, toError) => {
    let turns = 0
    const { task } = await run(async ({ kind }, next) => {
      if (kind === 'turn' && ++turns === 1) throw toError()
      return next()
    })
    expect(task).toMatchObject({ status: 'completed' })
    expect(turns).toBe(2)
  })
})

describe('a route over fetch', () => {
  const routes: Extension['routes'] = {
    '/pages': async (request) =>
      Response.json({
        method: request.method,
        path: new URL(request.url).pathname,
        body: await request.text(),
      }),
    '/pages/special': () => new Response('special'),
    '/broken': () => {
      throw new Error('secret')
    },
    '/nothing': (() => 'text') as never,
  }
  const server = (options: Partial<ServerOptions> = {}) => serverWith([{ name: 'pages', routes }], options)

  it('serves its path and every path below it, the longest first', async () => {
    const one = server()
    const body = await (await get(one, '/pages/7', { method: 'POST', body: 'a=1' })).json()
    expect(body).toEqual({ method: 'POST', path: '/pages/7', body: 'a=1' })
    expect(await (await get(one, '/pages/special/x')).text()).toBe('special')
    expect((await get(one, '/pagesx')).status).toBe(405)
  })

  it.each(['/broken', '/nothing'])('%s gets 500 without details', async (path) => {
    const events: LogEvent[] = []
    const response = await get(server({ log: (event) => void events.push(event) }), path)
    expect(response.status).toBe(500)
    expect(await response.text()).toBe('Internal error\n')
    expect(events.filter(({ event }) => event === 'warning')).toHaveLength(1)
  })

  it('T12 refuses another host, another origin and a body that is too large', async () => {
    const one = server({ maxBodyBytes: 10 })
    const from = (headers: HeadersInit, body = 'a') => get(one, '/pages', { method: 'POST', headers, body })
    expect((await from({ host: 'evil.example' })).status).toBe(403)
    expect((await from({ origin: 'https://evil.example' })).status).toBe(403)
    expect((await from({ origin: 'null' })).status).toBe(403)
    expect((await from({}, 'x'.repeat(11))).status).toBe(413)
    expect((await from({ origin: 'http://127.0.0.1' })).status).toBe(200)
  })

  it('T20 refuses a body for which there is no room', async () => {
    const one = server({ maxMessageWeight: 1, maxWeightInFlight: 1, maxWeightInFlightPerCaller: 1 })
    const chunks = [new Uint8Array(6_000), new Uint8Array(6_000)]
    const body = new ReadableStream({
      pull(controller) {
        const chunk = chunks.shift()
        if (chunk) controller.enqueue(chunk)
        else controller.close()
      },
    })
    const sent = { method: 'POST', body, duplex: 'half' } as RequestInit
    const response = await get(one, '/pages', sent)
    expect([response.status, response.headers.get('retry-after')]).toEqual([429, '1'])
    expect((await get(one, '/pages', { method: 'POST', body: 'a=1' })).status).toBe(200)
  })

  it('refuses new requests while the server drains', async () => {
    const one = server()
    one.drain()
    const response = await get(one, '/pages')
    expect([response.status, response.headers.get('retry-after')]).toEqual([503, '1'])
  })

  it('T12 names the host that was checked, whatever the request line names', async () => {
    const url = async (target: string, host: string): Promise<string> => {
      const one = serverWith([{ name: 'u', routes: { '/url': (request) => new Response(request.url) } }], {
        allowedHosts: ['*'],
      })
      return (await one.fetch(new Request(target, { headers: { host } }))).text()
    }
    expect(await url('http://evil.example/url?a=1', 'shop.example:8080')).toBe(
      'http://shop.example:8080/url?a=1',
    )
    // A host that contains a path must not choose the route.
    expect(await url('http://shop.example/mcp', 'shop.example/url?')).not.toContain('/url')
    expect(await url('http://shop.example/url', 'shop.example/other?')).not.toContain('http:')
  })

  it('does not ask authenticate', async () => {
    const authenticate = () => ({ status: 401 as const })
    expect((await get(server({ authenticate }), '/pages')).status).toBe(200)
  })
})
