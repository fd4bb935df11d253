/**
 * T22: responses that are small where they are checked and large where they are kept: tiny chunks, deep values, lists of many
 * pages, turns and subscriptions that never end. Each limit is shown to be what stops the attack.
 */

import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { describe, expect, it, vi } from 'vitest'
import { probeHttp } from '../../packages/cli/src/doctor/probe.ts'
import { checkTools } from '../../packages/cli/src/doctor/protocol.ts'
import { formatTable } from '../../packages/cli/src/io.ts'
import { createResponseReader } from '../../packages/rondo/src/client/transport/response-reader.ts'
import { connect } from '../../packages/rondo/src/client.ts'
import { TURNS } from '../../packages/rondo/src/drafts/turns/client.ts'
import { systemClock } from '../../packages/rondo/src/lib/clock.ts'
import { collectBytes } from '../../packages/rondo/src/lib/collection.ts'
import { nestsDeeper } from '../../packages/rondo/src/lib/json.ts'
import { createLineReader } from '../../packages/rondo/src/protocol/common/lines.ts'
import { createManualClock } from '../support/manual-clock.ts'
import { DISCOVERY, scriptServer } from '../support/scripted-server.ts'
import { completed, created, polling, rush } from '../support/scripted-task.ts'

setFlagsFromString('--expose-gc')
const collectGarbage = runInNewContext('gc') as () => void

/** The bytes of the heap that are in use after `run`, more than before. */
function heldBy(run: () => unknown): number {
  collectGarbage()
  const before = process.memoryUsage().heapUsed
  const held = run()
  collectGarbage()
  const after = process.memoryUsage().heapUsed
  expect(held).toBeDefined()
  return after - before
}

const COUNT = 200_000
const LITTLE = 5_000_000

describe('chunks of one byte', () => {
  const byte = () => Uint8Array.of(32)

  it('R9 cost a response no more than their bytes', () => {
    const head = { status: 200, contentType: 'application/json' }
    const read = () => {
      const reader = createResponseReader(head, { id: 1, maxBytes: COUNT })
      for (let i = 0; i < COUNT; i++) reader.push(byte())
      return reader
    }
    expect(heldBy(read)).toBeLessThan(LITTLE)
  })

  it('R9 cost a line no more than their bytes', () => {
    const read = () => {
      const reader = createLineReader(COUNT, () => {})
      for (let i = 0; i < COUNT; i++) reader(Buffer.from(byte()))
      return reader
    }
    expect(heldBy(read)).toBeLessThan(LITTLE)
  })

  it('control: a list of them costs a multiple', () => {
    expect(heldBy(() => Array.from({ length: COUNT }, byte))).toBeGreaterThan(2 * LITTLE)
  })

  it('are the bytes that were sent', () => {
    const collected = collectBytes()
    for (const text of ['', 'a', 'bc', '', 'd'.repeat(10_000), 'e']) collected.add(Buffer.from(text))
    expect(collected.size).toBe(10_004)
    expect(Buffer.from(collected.take()).toString()).toBe(`abc${'d'.repeat(10_000)}e`)
    expect([collected.size, collected.take().byteLength]).toEqual([0, 0])
  })
})

describe('JSON that nests deep', () => {
  const deep = (levels: number) => `${'[{"a":'.repeat(levels / 2)}1${'}]'.repeat(levels / 2)}`

  it('is found, whatever is in its strings', () => {
    expect(nestsDeeper(deep(100), 100)).toBe(false)
    expect(nestsDeeper(deep(102), 100)).toBe(true)
    expect(nestsDeeper(`["${'['.repeat(200)}\\"${'{'.repeat(200)}"]`, 100)).toBe(false)
    expect(nestsDeeper(`[${'[],'.repeat(500)}1]`, 100)).toBe(false)
    expect(nestsDeeper(`["${'x'.repeat(500)}`, 100)).toBe(false)
  })

  it('R11 is refused before it is parsed, with a sentence', async () => {
    const result = (levels: number) =>
      scriptServer(
        ({ id }) =>
          new Response(`{"jsonrpc":"2.0","id":${id},"result":{"content":[],"x":${deep(levels)}}}`, {
            headers: { 'Content-Type': 'application/json' },
          }),
      )
    const client = await connect(result(100_000))
    await expect(client.callTool('t')).rejects.toThrow(/PEER_BAD_RESPONSE.*nests deeper than 1000 levels/)
    expect(await (await connect(result(900))).callTool('t')).toHaveProperty('x')
  })
})

describe('a list of many pages', () => {
  const pages = (size: number, onPage = () => {}) =>
    scriptServer(({ params }) => {
      onPage()
      const page = Number(params.cursor ?? 0) + 1
      const tools = [{ name: `${page}`, description: 'x'.repeat(size), inputSchema: {} }]
      return { tools, ...(page < 10 && { nextCursor: String(page) }) }
    })

  it('R9 is refused when its pages are too large together', async () => {
    const client = await connect(pages(90_000), { maxResponseBytes: 100_000 })
    await expect(client.listTools()).rejects.toMatchObject({ code: 'LIMIT_CLIENT_BYTES' })
    const patient = await connect(pages(90_000), { maxResponseBytes: 1_000_000 })
    expect(await patient.listTools()).toHaveLength(10)
  })

  it('C12 is given up at the deadline, however fast each page is', async () => {
    const clock = createManualClock()
    const slow = (deadlineMs: number) =>
      connect(
        pages(1, () => clock.advance(1_000)),
        { clock, deadlineMs },
      )
    await expect((await slow(5_000)).listTools()).rejects.toMatchObject({ code: 'LIMIT_CLIENT_DEADLINE' })
    expect(await (await slow(20_000)).listTools()).toHaveLength(10)
  })
})

describe('a list of tasks', () => {
  const capabilities = { tasks: { list: {} } }
  const task = { taskId: 'x', status: 'working', createdAt: '2026', lastUpdatedAt: '2026' }

  /** A server of 2025-11-25. */
  const server = (page: (cursor: number) => object) => ({
    async fetch(request: Request) {
      const { id, method, params } = request.method === 'POST' ? await request.json() : { method: 'GET' }
      if (method === 'server/discover' || id === undefined)
        return new Response(null, { status: method === 'GET' ? 405 : id === undefined ? 202 : 404 })
      const hello = { protocolVersion: '2025-11-25', capabilities, serverInfo: { name: 'o', version: '1' } }
      const result = method === 'initialize' ? hello : page(Number(params?.cursor ?? 0))
      return Response.json({ jsonrpc: '2.0', id, result })
    },
  })

  it('R11 may have more entries than a function may have arguments', async () => {
    const tasks = Array(150_000).fill(task)
    const client = await connect(server(() => ({ tasks })))
    expect(await client.listTasks()).toHaveLength(150_000)
    await client.close()
  })

  it('R9 C12 is refused when its pages are too large together, or take too long', async () => {
    const statusMessage = 'x'.repeat(90_000)
    const clock = createManualClock()
    const many = server((cursor) => {
      clock.advance(1_000)
      return { tasks: [{ ...task, statusMessage }], ...(cursor < 9 && { nextCursor: String(cursor + 1) }) }
    })
    const list = async (limits: object) => {
      const client = await connect(many, { clock, ...limits })
      return client.listTasks().finally(() => client.close())
    }
    await expect(list({ maxResponseBytes: 100_000 })).rejects.toMatchObject({ code: 'LIMIT_CLIENT_BYTES' })
    await expect(list({ deadlineMs: 5_000 })).rejects.toMatchObject({ code: 'LIMIT_CLIENT_DEADLINE' })
    expect(await list({})).toHaveLength(10)
  })
})

describe('a turn that is resumed for ever', () => {
  it('R9 may ask no more than its limit', () => {
    const ping = (id: number) => ({ jsonrpc: '2.0', id, method: 'ping', params: { x: 'x'.repeat(100) } })
    const buffer = TURNS.createBuffer(1_000)
    buffer.look({ event: 'buffer_input', data: '' })
    expect(buffer.take(ping(1))).toBe(true)
    // A repeated one is not counted.
    for (let i = 0; i < 100; i++) expect(buffer.take(ping(1))).toBe(true)
    const more = () => {
      for (let id = 2; id < 100; id++) buffer.take(ping(id))
    }
    expect(more).toThrow(/LIMIT_CLIENT_QUESTIONS/)
  })
})

describe('changes that nobody reads', () => {
  const changes = (methods: readonly (readonly [string, object])[]) =>
    scriptServer(({ id }) => {
      const meta = { _meta: { 'io.modelcontextprotocol/subscriptionId': id } }
      const acknowledged = ['notifications/subscriptions/acknowledged', { notifications: {} }] as const
      const events = [acknowledged, ...methods].map(
        ([method, params]) =>
          `data: ${JSON.stringify({ jsonrpc: '2.0', method, params: { ...params, ...meta } })}\n\n`,
      )
      const end = `data: ${JSON.stringify({ jsonrpc: '2.0', id, result: {} })}\n\n`
      return new Response(events.join('') + end, { headers: { 'Content-Type': 'text/event-stream' } })
    })
  const updated = (uri: string) => ['notifications/resources/updated', { uri }] as const

  async function unread(methods: readonly (readonly [string, object])[], taskIds?: string[]) {
    const client = await connect(changes(methods))
    const subscription = client.subscribe({ resourceSubscriptions: ['a:b'], ...(taskIds && { taskIds }) })
    await subscription.filter
    // All changes came in one chunk with what resolves this promise, so none was read yet.
    const kinds: string[] = []
    for await (const change of subscription) kinds.push(change.kind)
    await client.close()
    return kinds
  }

  it('R9 are dropped when they are too large together, which is reported as a gap', async () => {
    const large = ['a', 'b', 'c'].map((name) => updated(name.repeat(6_000_000)))
    expect(await unread(large)).toEqual(['gap'])
    expect(await unread(['a', 'b', 'c'].map(updated))).toEqual(['resource', 'resource', 'resource'])
    // A change that replaces an unread one is not counted twice.
    const same = Array(5).fill(updated('a'.repeat(6_000_000)))
    expect(await unread(same)).toEqual(['resource'])
  })

  it('R9 are not waited for at a server that accepts no subscription', async () => {
    const clock = createManualClock()
    const server = scriptServer(() => new Response('', { headers: { 'Content-Type': 'text/event-stream' } }))
    const client = await connect(server, { clock })
    const subscription = client.subscribe({}, { retries: 2 })
    let failed: unknown
    subscription.filter.catch((error) => {
      failed = error
    })
    for (let turn = 0; turn < 100 && failed === undefined; turn++) {
      clock.advance(10_000)
      await new Promise((next) => setImmediate(next))
    }
    expect(failed).toMatchObject({ code: 'PEER_UNREACHABLE' })
    expect(server.seen).toHaveLength(3)
    await client.close()
  })

  it('are not about tasks that nobody asked for', async () => {
    const at = { createdAt: '2026', lastUpdatedAt: '2026', status: 'working' }
    const about = (taskId: string) => ['notifications/tasks', { taskId, ...at }] as const
    expect(await unread([about('mine'), about('other')], ['mine'])).toEqual(['task'])
  })
})

describe('times that a server chooses', () => {
  it('C12 are bounded where a poll is refused with Retry-After', async () => {
    const clock = createManualClock()
    let polls = 0
    const server = scriptServer(({ method }) => {
      if (method === 'tools/call') return created()
      polls += 1
      const later = { status: 429, headers: { 'Retry-After': '999999999' } }
      return polls === 1 ? new Response('', later) : completed('done')
    })
    const began = clock.now()
    const client = await connect(server, polling({ clock, deadlineMs: 1e12 }))
    await rush(client.callTool('t'), clock, 600_000)
    expect(polls).toBe(2)
    expect(clock.now() - began).toBeLessThan(3 * 3_600_000)
  })

  it('C12 are waited for, however long they are', () => {
    vi.useFakeTimers()
    try {
      let rung = 0
      const cancel = systemClock.after(3e9, () => rung++)
      vi.advanceTimersByTime(2 ** 31)
      expect(rung).toBe(0)
      vi.advanceTimersByTime(1e9)
      expect(rung).toBe(1)
      cancel()
      const stop = systemClock.after(3e9, () => rung++)
      vi.advanceTimersByTime(2 ** 31)
      stop()
      vi.advanceTimersByTime(2 ** 31)
      expect(rung).toBe(1)
    } finally {
      vi.useRealTimers()
    }
  })
})

describe('text of a server in an error', () => {
  const errorOf = async (reply: Record<string, unknown>) => {
    const client = await connect(scriptServer(reply))
    return (await client.callTool('t').catch((error: Error) => error)) as Error
  }
  const evil = '\u001b[2J\u202e'.repeat(100_000)

  it.each([
    ['an error', { error: { code: -1, message: evil } }],
    ['a result type', { resultType: evil }],
    [
      'a key',
      { resultType: 'input_required', inputRequests: { [evil.slice(0, 1_000)]: { method: 'roots/list' } } },
    ],
  ])('I8 T22 is cleaned and cut: %s', async (_what, reply) => {
    const { message } = await errorOf(reply)
    expect(message.length).toBeLessThan(2_100)
    expect(message).toMatch(/\[2J/)
    // biome-ignore lint/suspicious/noControlCharactersInRegex: the check searches for them.
    expect(message).not.toMatch(/[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u202e]/)
  })

  it('I8 T22 is cleaned and cut in warnings and in the name of the server', async () => {
    const info = { 'io.modelcontextprotocol/serverInfo': { name: evil, version: evil, title: evil } }
    const warnings: string[] = []
    const inputSchema = { type: 'object', 'x-mcp-header': 'a' }
    const server = scriptServer({ tools: [{ name: evil, inputSchema }] })
    const client = await connect(
      {
        async fetch(request) {
          const { id, method } = (await request.clone().json()) as { id: number; method: string }
          if (method !== 'server/discover') return server.fetch(request)
          return Response.json({ jsonrpc: '2.0', id, result: { ...DISCOVERY, _meta: info } })
        },
      },
      { onWarning: (text) => warnings.push(text) },
    )
    await client.listTools()
    const { name = '', version = '', title = '' } = client.server
    expect(warnings).toHaveLength(1)
    for (const text of [...warnings, name, version, title]) {
      expect(text.length).toBeLessThan(2_100)
      // biome-ignore lint/suspicious/noControlCharactersInRegex: the check searches for them.
      expect(text).not.toMatch(/[\u0000-\u001f\u202e]/)
    }
  })
})

describe('the command at a large server', () => {
  it('prints a table as large as its cells', () => {
    const rows = [['x'.repeat(100_000), 'long'], ...Array.from({ length: 200_000 }, (_, i) => [`a${i}`, 'b'])]
    expect(formatTable(rows).length).toBeLessThan(200_000 * 130)
  })

  it('reports a finding about a few of its tools', () => {
    const tools = Array.from({ length: 200_000 }, (_, i) => ({ name: i.toString(36) }))
    const { detail } = checkTools([...tools, tools[0]])
    expect(detail.length).toBeLessThan(2_000)
    expect(checkTools([tools[1], tools[1]]).detail).toMatch(/1 is listed twice/)
  })

  it('C12 has a probe that times out, even if bytes arrive all the time', async () => {
    const { createServer } = await import('node:http')
    const server = createServer((_request, response) => {
      response.writeHead(200, { 'Content-Type': 'text/event-stream' })
      const timer = setInterval(() => response.write(':\n\n'), 5)
      response.on('close', () => clearInterval(timer))
    })
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    const { port } = server.address() as { port: number }
    const reply = await probeHttp(`http://127.0.0.1:${port}/mcp`, {}, 100).send({ method: 'tools/list' })
    server.closeAllConnections()
    server.close()
    expect(reply).toEqual({ problem: 'timed out' })
  })
})
