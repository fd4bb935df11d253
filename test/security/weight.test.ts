/**
 * N2: what messages weigh in memory while they arrive and while their calls run is bounded, per caller and in all. What has no
 * room is refused with the time to try again, and light calls pass at all times.
 */

import { request as openRequest } from 'node:http'
import { connect as openSocket } from 'node:net'
import { PassThrough } from 'node:stream'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { createServer, generateKey, type Server, type ServerOptions } from 'rondo'
import { describe, expect, it, onTestFinished } from 'vitest'
import { createLoads } from '../../packages/rondo/src/serve/limits.ts'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import { connectOlder } from '../support/older-client.ts'

setFlagsFromString('--expose-gc')
const collectGarbage = runInNewContext('gc') as () => void

type Message = Readonly<Record<string, unknown>>

const MIB = 1_048_576
/** About a megabyte in memory, and 40 kB on the wire. */
const HEAVY = { list: Array.from({ length: 13_000 }, () => ({})) }

const META = {
  'io.modelcontextprotocol/protocolVersion': '2026-07-28',
  'io.modelcontextprotocol/clientCapabilities': {},
  'io.modelcontextprotocol/clientInfo': { name: 'test', version: '1.0.0' },
}

interface Gated {
  readonly server: Server
  /** A part of the arguments of each run of `ask`. */
  readonly seen: readonly WeakRef<object>[]
  /** Resolves when this many calls have begun. */
  begun(calls: number): Promise<void>
  /** Lets the calls that wait end. */
  release(): void
}

function openGated(options: Partial<ServerOptions>): Gated {
  const server = createServer({
    name: 'gated',
    version: '1.0.0',
    keys: generateKey(),
    log: 'off',
    sessions: {},
    ...options,
  })
  const waiting: (() => void)[] = []
  const watching: { calls: number; resolve: () => void }[] = []
  let calls = 0
  server.tool('wait', {}, async () => {
    calls += 1
    for (const one of watching) if (one.calls <= calls) one.resolve()
    await new Promise<void>((resolve) => waiting.push(resolve))
    return 'done'
  })
  server.tool('echo', {}, () => 'echo')
  server.tool('ask', {}, async ({ list }, ctx) => {
    seen.push(new WeakRef((list as object[])[0] ?? {}))
    const sure = await ctx.confirm('sure', 'Sure?')
    return `${sure} ${(list as unknown[]).length}`
  })
  const seen: WeakRef<object>[] = []
  const release = (): void => {
    for (const resolve of waiting.splice(0)) resolve()
  }
  onTestFinished(async () => {
    release()
    await server.close()
  })
  return {
    server,
    seen,
    begun: (wanted) =>
      new Promise((resolve) => {
        if (calls >= wanted) resolve()
        else watching.push({ calls: wanted, resolve })
      }),
    release,
  }
}

let lastId = 0
const callOf = (name: string, args: object = {}, meta: object = META): { id: number; text: string } => {
  lastId += 1
  const message = {
    jsonrpc: '2.0',
    id: lastId,
    method: 'tools/call',
    params: { _meta: meta, name, arguments: args },
  }
  return { id: lastId, text: JSON.stringify(message) }
}

function send(url: string, name: string, args: object = {}, headers: object = {}, signal?: AbortSignal) {
  const { id, text: body } = callOf(name, args)
  const own = { 'mcp-protocol-version': '2026-07-28', 'mcp-method': 'tools/call', 'mcp-name': name }
  const sent = { 'content-type': 'application/json', accept: 'application/json', ...own, ...headers }
  return fetch(url, { method: 'POST', headers: sent, body, signal }).then(async (response) => ({
    id,
    status: response.status,
    retryAfter: response.headers.get('retry-after'),
    message: await response.json(),
  }))
}

const listen = async (server: Server): Promise<string> =>
  (await server.listen({ port: 0, signals: false, rejections: false, graceMs: 100 })).url

const LIMITS = {
  maxMessageWeight: MIB * 1.2,
  maxWeightInFlight: 3.5 * MIB,
  maxWeightInFlightPerCaller: 2.5 * MIB,
}

describe('calls in flight', () => {
  it('N2 refuses the call of a caller whose calls weigh enough, with the time to try again', async () => {
    const gated = openGated(LIMITS)
    const url = await listen(gated.server)
    const running = [send(url, 'wait', HEAVY), send(url, 'wait', HEAVY)]
    await gated.begun(2)
    const refused = await send(url, 'echo', HEAVY)
    expect(refused).toMatchObject({ status: 429, retryAfter: '1' })
    expect(refused.message).toMatchObject({
      id: refused.id,
      error: { code: -32000, data: { retryAfterMs: 1000 } },
    })
    // Light messages are served meanwhile.
    expect((await send(url, 'echo')).status).toBe(200)
    gated.release()
    await Promise.all(running)
    expect((await send(url, 'echo', HEAVY)).status).toBe(200)
  })

  it('N2 leaves room for other callers, up to a limit for all', async () => {
    const authenticate: ServerOptions['authenticate'] = ({ headers }) => ({ subject: headers('user') ?? '' })
    const gated = openGated({ ...LIMITS, authenticate })
    const url = await listen(gated.server)
    const running = ['ada', 'ada', 'ben'].map((user) => send(url, 'wait', HEAVY, { user }))
    await gated.begun(3)
    for (const user of ['ada', 'ben', 'cleo'])
      expect((await send(url, 'echo', HEAVY, { user })).status).toBe(429)
    gated.release()
    await Promise.all(running)
    for (const user of ['ada', 'ben', 'cleo'])
      expect((await send(url, 'echo', HEAVY, { user })).status).toBe(200)
  })

  it('N2 counts a call that runs on after its client has left', async () => {
    const gated = openGated(LIMITS)
    const url = await listen(gated.server)
    const leaving = new AbortController()
    const running = [1, 2].map(() => send(url, 'wait', HEAVY, {}, leaving.signal))
    await gated.begun(2)
    leaving.abort()
    await Promise.allSettled(running)
    expect((await send(url, 'echo', HEAVY)).status).toBe(429)
    gated.release()
    await expect.poll(async () => (await send(url, 'echo', HEAVY)).status).toBe(200)
  })

  it.each([
    ['', () => ({})],
    [' with a store', () => ({ store: createMemoryStore() })],
  ])('N2 holds in sessions of older clients%s', async (_name, options) => {
    const gated = openGated({ ...LIMITS, ...options() })
    const client = await connectOlder(await listen(gated.server), {})
    const running = [1, 2].map(() => client.call('tools/call', { name: 'wait', arguments: HEAVY }))
    await gated.begun(2)
    const error = { code: -32000, data: { retryAfterMs: 1000 } }
    await expect(client.call('tools/call', { name: 'echo', arguments: HEAVY })).resolves.toMatchObject({
      error,
    })
    gated.release()
    await Promise.all(running)
    await expect(client.call('tools/call', { name: 'echo', arguments: HEAVY })).resolves.toMatchObject({
      result: {},
    })
  })

  it.each([
    ['of today', META, ''],
    [
      'of an earlier era',
      {},
      '{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"o","version":"1"}}}\n',
    ],
  ])('N2 holds over stdio, for a client %s', async (_name, meta, greeting) => {
    const gated = openGated(LIMITS)
    const input = new PassThrough()
    const output = new PassThrough({ encoding: 'utf8' })
    void gated.server.stdio({ input, output, signals: false, rejections: false })
    const responses = new Map<number, { error?: unknown; result?: unknown }>()
    let rest = ''
    output.on('data', (text: string) => {
      const lines = (rest + text).split('\n')
      rest = lines.pop() ?? ''
      for (const line of lines) responses.set(JSON.parse(line).id, JSON.parse(line))
    })
    input.write(greeting)
    const call = (name: string): number => {
      const { id, text } = callOf(name, HEAVY, meta)
      input.write(`${text}\n`)
      return id
    }
    const running = [call('wait'), call('wait')]
    await gated.begun(2)
    const refused = call('echo')
    await expect.poll(() => responses.get(refused)).toMatchObject({ error: { code: -32000 } })
    gated.release()
    for (const id of running) await expect.poll(() => responses.get(id)).toMatchObject({ result: {} })
    const served = call('echo')
    await expect.poll(() => responses.get(served)).toMatchObject({ result: {} })
  })
})

describe('calls whose scopes are being looked up', () => {
  /** A tool whose scopes are known when the test says so. */
  function openScoped() {
    const authenticate: ServerOptions['authenticate'] = () => ({ subject: 'ada', scopes: ['pay'] })
    const gated = openGated({ ...LIMITS, authenticate })
    const asked: (() => void)[] = []
    const scopes = () =>
      new Promise<string[]>((resolve) => {
        asked.push(() => resolve(['pay']))
      })
    gated.server.tool('pay', { scopes }, () => 'paid')
    return { ...gated, asked }
  }

  it('N2 count, and no longer when they have ended', async () => {
    const { server, asked } = openScoped()
    const url = await listen(server)
    const running = [send(url, 'pay', HEAVY), send(url, 'pay', HEAVY)]
    await expect.poll(() => asked.length).toBe(2)
    expect((await send(url, 'echo', HEAVY)).status).toBe(429)
    for (const resolve of asked) resolve()
    for (const { status } of await Promise.all(running)) expect(status).toBe(200)
    await Promise.all([1, 2].map(async () => expect((await send(url, 'echo', HEAVY)).status).toBe(200)))
  })

  it('N2 count in sessions too', async () => {
    const { server, asked } = openScoped()
    const client = await connectOlder(await listen(server), {})
    const call = (name: string) => client.call('tools/call', { name, arguments: HEAVY })
    const running = [call('pay'), call('pay')]
    await expect.poll(() => asked.length).toBe(2)
    expect(await call('echo')).toMatchObject({ error: { data: { retryAfterMs: 1000 } } })
    for (const resolve of asked) resolve()
    for (const response of await Promise.all(running)) expect(response).toMatchObject({ result: {} })
    expect(await call('echo')).toMatchObject({ result: {} })
  })
})

describe('calls that wait for an answer', () => {
  it('N2 continue when others have made room for their arguments, and not before', async () => {
    const gated = openGated(LIMITS)
    const url = await listen(gated.server)
    const client = await connectOlder(url, { capabilities: { elicitation: {} } })
    const message = {
      jsonrpc: '2.0',
      id: 70,
      method: 'tools/call',
      params: { name: 'ask', arguments: HEAVY },
    }
    const stream = await client.post(message)
    const question = await stream.next()
    const running = [send(url, 'wait', HEAVY), send(url, 'wait', HEAVY)]
    await gated.begun(2)
    const answer = { action: 'accept', content: { confirm: true } }
    expect((await client.respond(question?.id, answer)).status).toBe(202)
    expect((await send(url, 'echo')).status).toBe(200)
    expect(gated.seen).toHaveLength(1)
    gated.release()
    expect(await stream.next()).toMatchObject({ id: 70, result: { content: [{ text: 'true 13000' }] } })
    await Promise.all(running)
  })

  it.each([
    ['memory', {}],
    ['a store', { store: createMemoryStore() }],
  ])('N2 keep their arguments as text in %s, and continue when there is room', async (_name, options) => {
    const gated = openGated({ ...LIMITS, ...options })
    const url = await listen(gated.server)
    const asked: (() => void)[] = []
    const watching: (() => void)[] = []
    const client = await connectOlder(url, {
      capabilities: { elicitation: {} },
      answer: () =>
        new Promise((resolve) => {
          asked.push(() => resolve({ action: 'accept', content: { confirm: true, sure: true } }))
          watching.shift()?.()
        }),
    })
    const calls: Promise<Message>[] = []
    // Each would be refused if those before it still counted.
    for (let i = 0; i < 6; i++) {
      const isAsked = new Promise<void>((resolve) => watching.push(resolve))
      calls.push(client.call('tools/call', { name: 'ask', arguments: HEAVY }))
      await isAsked
    }
    // References are released at the end of a task.
    await new Promise((resolve) => setImmediate(resolve))
    collectGarbage()
    expect(gated.seen).toHaveLength(6)
    expect(gated.seen.filter((part) => part.deref() !== undefined)).toEqual([])
    for (const answer of asked) answer()
    for (const call of calls)
      await expect(call).resolves.toMatchObject({
        result: { content: [{ text: expect.stringContaining('13000') }] },
      })
    await expect(client.call('tools/call', { name: 'echo', arguments: HEAVY })).resolves.toMatchObject({
      result: {},
    })
  })
})

describe('bodies that are arriving', () => {
  const head = (port: number, bytes: number): string =>
    `POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\nContent-Type: application/json\r\nContent-Length: ${bytes}\r\n\r\n`

  it('N2 count while they are unfinished, whatever the size of their chunks', async () => {
    const { server } = openGated({
      maxMessageWeight: 100_000,
      maxWeightInFlight: 400_000,
      maxWeightInFlightPerCaller: 300_000,
    })
    const url = await listen(server)
    const port = Number(new URL(url).port)
    const begin = (): { answer: Promise<string>; end: () => void } => {
      const socket = openSocket(port, '127.0.0.1')
      socket.write(head(port, 200_000) + 'x'.repeat(100_000))
      const answer = new Promise<string>((resolve) => socket.once('data', (data) => resolve(String(data))))
      socket.on('error', () => {})
      return { answer, end: () => socket.destroy() }
    }
    const sockets = [begin(), begin(), begin()]
    // Two of them have no room, one waits for its rest.
    const answers = sockets.map(async ({ answer }, i) => ({ i, text: await answer }))
    const first = await Promise.race(answers)
    const second = await Promise.race(answers.filter((_, i) => i !== first.i))
    for (const { text } of [first, second]) {
      expect(text).toMatch(/^HTTP\/1\.1 429 /)
      expect(text).toMatch(/Retry-After: 1\r\n/i)
    }
    for (const { end } of sockets) end()
    await expect.poll(async () => (await send(url, 'echo', { text: 'x'.repeat(40_000) })).status).toBe(200)
  })
})

describe('the weight that was counted', () => {
  /** Nothing else has room beside a heavy message. */
  const TIGHT = {
    maxMessageWeight: 1.2 * MIB,
    maxWeightInFlight: 1.2 * MIB,
    maxWeightInFlightPerCaller: 1.2 * MIB,
    maxBodyBytes: 200_000,
  }
  const TEXT = 'x'.repeat(100_000)

  /** A request whose body comes in chunks, so that it counts as arriving. Resolves with its status, or 0 if it is dropped. */
  const chunked = (url: string, body: string, isDropped = false): Promise<number> =>
    new Promise((resolve, reject) => {
      const headers = { 'content-type': 'application/json', accept: 'application/json' }
      const request = openRequest(url, { method: 'POST', headers }, (response) => {
        response.resume().on('end', () => resolve(response.statusCode ?? 0))
      })
      request.on('error', (error) => (isDropped ? resolve(0) : reject(error)))
      request.write(body, () => {
        if (isDropped) request.destroy()
        else request.end()
      })
    })

  const ways: Readonly<Record<string, (url: string, server: Server) => Promise<unknown>>> = {
    'of bodies in chunks': async (url) =>
      expect(await chunked(url, callOf('echo').text + ' '.repeat(99_000))).toBe(400),
    'of bodies that are not JSON': async (url) => expect(await chunked(url, TEXT)).toBe(400),
    'of bodies that break off': async (url) => expect(await chunked(url, TEXT, true)).toBe(0),
    'of bodies that are too long': async (url) => expect(await chunked(url, TEXT.repeat(3))).toBe(413),
    async 'of bodies that reach fetch'(_url, { fetch }) {
      const headers = { 'content-type': 'application/json' }
      const request = new Request('http://localhost/mcp', { method: 'POST', headers, body: TEXT })
      expect((await fetch(request)).status).toBe(400)
    },
    async 'of bodies that break off on their way to fetch'(_url, { fetch }) {
      const body = new ReadableStream({
        start: (controller) => controller.enqueue(new TextEncoder().encode(TEXT)),
        pull: (controller) => controller.error(new Error('lost')),
      })
      const headers = { 'content-type': 'application/json' }
      const init = { method: 'POST', headers, body, duplex: 'half' } as RequestInit
      const request = new Request('http://localhost/mcp', init)
      expect((await fetch(request)).status).toBe(400)
    },
  }

  it.each(Object.entries(ways))('N2 is released in the case %s', async (_name, send10) => {
    const { server } = openGated(TIGHT)
    const url = await listen(server)
    for (let i = 0; i < 10; i++) await send10(url, server)
    await expect.poll(async () => (await send(url, 'echo', HEAVY)).status).toBe(200)
    const { id, text: body } = callOf('echo', HEAVY)
    const own = { 'mcp-protocol-version': '2026-07-28', 'mcp-method': 'tools/call', 'mcp-name': 'echo' }
    const headers = { 'content-type': 'application/json', accept: 'application/json', ...own }
    const response = await server.fetch(
      new Request('http://localhost/mcp', { method: 'POST', headers, body }),
    )
    expect(await response.json()).toMatchObject({ id, result: {} })
  })

  it('N2 is released if a call of a session is refused before it runs', async () => {
    const gated = openGated(TIGHT)
    const client = await connectOlder(await listen(gated.server), {})
    const message = { jsonrpc: '2.0', id: 70, method: 'tools/call', params: { name: 'wait', arguments: {} } }
    const first = client.post(message)
    await gated.begun(1)
    const again = await client.post({ ...message, params: { name: 'wait', arguments: HEAVY } })
    expect(await again.next()).toMatchObject({ id: 70, error: { code: -32600 } })
    const served = await client.call('tools/call', { name: 'echo', arguments: HEAVY })
    expect(served).toMatchObject({ result: {} })
    gated.release()
    await first
  })
})

describe('the weight in flight', () => {
  it('is zero again when nobody holds anything, however often it is released', () => {
    const loads = createLoads()
    const load = loads.open('ada')
    const [first, second] = [load.hold(), load.hold()]
    expect(load.weigh(1_000)).toBe(true)
    expect(load.weigh(5_000)).toBe(true)
    expect(loads.weight).toBe(5_000)
    first()
    first()
    expect(loads.weight).toBe(5_000)
    second()
    expect(loads.weight).toBe(0)
  })

  it('always has room for one message that is allowed at all', () => {
    const loads = createLoads({ maxMessageWeight: 100, maxWeightInFlight: 10, maxWeightInFlightPerCaller: 1 })
    expect(loads.open('ada').weigh(100)).toBe(true)
    expect(loads.open('ben').weigh(1)).toBe(false)
  })

  it.each([{ maxDepth: 1001 }, { maxDepth: 0 }, { maxMessageWeight: Number.NaN }, { maxWeightInFlight: -1 }])(
    'is not limited by %o',
    (options) => {
      expect(() => createLoads(options)).toThrow(/must be a number (of 1 or more|from 1 to 1000)/)
    },
  )
})
