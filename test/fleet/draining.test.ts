/**
 * A question is answered while the instance that asked it drains, for every way in which a question can travel: the result
 * arrives, and the effect that follows the answer runs once.
 */

import { PassThrough } from 'node:stream'
import { InMemoryTransport, McpServer } from '@modelcontextprotocol/server'
import { serveStdio } from '@modelcontextprotocol/server/stdio'
import { type Context, createServer, generateKey, type Store } from 'rondo'
import { type Client, type ConnectOptions, connect } from 'rondo/client'
import { createRondo } from 'rondo/sdk'
import type { RecordStore } from 'rondo/store'
import { describe, expect, it, onTestFinished } from 'vitest'
import { shareMemory, shareSqlite } from '../support/fleet-stores.ts'
import { connectOfficial, MODERN, OLDER } from '../support/official-client.ts'
import { connectOlder, type OlderClient, type OpenStream } from '../support/older-client.ts'
import { startFleet } from '../support/older-fleet.ts'
import { until } from '../support/store/store-harness.ts'

const YES = { action: 'accept', content: { confirm: true } } as const

/** The keys of the effects that ran. */
type Effects = string[]

/** Asks, pays and says so. */
const pay =
  (effects: Effects) =>
  async (_args: unknown, ctx: Context): Promise<string> => {
    if (!(await ctx.confirm('sure', 'Pay?'))) return 'not paid'
    await ctx.effect('pay', async ({ key }) => {
      effects.push(key)
    })
    return 'paid'
  }

/** A store whose records take `ms()` to write, and cannot be written once the process that uses it has exited. */
function slowed(store: Store, ms: () => number, hasExited: () => boolean): Store {
  const { records } = store
  if (!records) return store
  const put: RecordStore['put'] = async (record) => {
    await new Promise((resolve) => setTimeout(resolve, ms()))
    if (hasExited()) throw new Error('the process has exited')
    return records.put(record)
  }
  return { ...store, records: { ...records, put } }
}

interface Pair {
  readonly effects: Effects
  /** Stops the first instance as SIGTERM does: when it has closed, its process is gone. */
  stop(): Promise<void>
  /** The number of streams that were resumed. */
  resumed(): number
  /** Sends a request to the first instance, and to its replacement if the first does not take it. */
  send(request: Request): Promise<Response>
  readonly url: string
}

/** `settleMs` is how long a record takes to write after the effect. */
async function startPair(open?: () => Store, settleMs = 30): Promise<Pair> {
  const effects: Effects = []
  const keys = generateKey()
  let hasExited = false
  const start = async (isFirst: boolean) => {
    const delay = (): number => (isFirst && effects.length > 0 ? settleMs : 0)
    const store = open && slowed(open(), delay, () => isFirst && hasExited)
    const server = createServer({ name: 'shop', version: '1', keys, log: 'off', store })
    server.tool('pay', {}, pay(effects))
    if (store) server.tool('pay_later', { task: 'always', taskPollMs: 50 }, pay(effects))
    const { url } = await server.listen({ port: 0, signals: false, graceMs: 60_000 })
    onTestFinished(() => server.close())
    return { server, url }
  }
  const [one, two] = [await start(true), await start(false)]
  let isGone = false
  let resumed = 0
  const send = async (request: Request): Promise<Response> => {
    if (request.method === 'GET' && request.headers.has('last-event-id')) resumed += 1
    const again = request.clone()
    if (!isGone) {
      try {
        const response = await fetch(new Request(one.url, request))
        if (response.status !== 503) return response
        expect(response.headers.has('retry-after')).toBe(true)
      } catch (error) {
        if (request.signal.aborted) throw error
        isGone = true
      }
    }
    return fetch(new Request(two.url, again))
  }
  const stop = async (): Promise<void> => {
    await one.server.close()
    hasExited = true
  }
  return { effects, stop, resumed: () => resumed, send, url: one.url }
}

const memory = shareMemory
const sqlite = shareSqlite
const PUSHED = { drafts: false, tasks: false } as const

const carriers: readonly [string, string, ConnectOptions, (() => Promise<() => Store>)?][] = [
  ['rounds', 'pay', { mode: '2026-07-28', tasks: false }],
  ['rounds, with a store', 'pay', { mode: '2026-07-28', tasks: false }, sqlite],
  ['a task', 'pay_later', { mode: '2026-07-28', tasks: 'poll' }, sqlite],
  ['push at 2025-06-18', 'pay', { mode: '2025-06-18', ...PUSHED }],
  ['push at 2025-06-18, with a store', 'pay', { mode: '2025-06-18', ...PUSHED }, sqlite],
  ['push at 2025-11-25', 'pay', { mode: '2025-11-25', ...PUSHED }],
  ['push at 2025-11-25, with a store in memory', 'pay', { mode: '2025-11-25', ...PUSHED }, memory],
  ['push at 2025-11-25, with a store', 'pay', { mode: '2025-11-25', ...PUSHED }, sqlite],
  ['a task at 2025-11-25', 'pay_later', { mode: '2025-11-25', drafts: false }, sqlite],
  ['turns', 'pay', { mode: '2025-11-25', tasks: false }],
  ['turns, with a store', 'pay', { mode: '2025-11-25', tasks: false }, sqlite],
  ['a state without turns', 'pay', { mode: '2025-11-25', tasks: false, turns: false }],
  ['a state without turns, with a store', 'pay', { mode: '2025-11-25', tasks: false, turns: false }, sqlite],
  ['rounds of the draft', 'pay', { mode: 'DRAFT-2026-v1', tasks: false }],
]

/** Calls, and reads up to the question. */
async function ask(client: OlderClient): Promise<{ stream: OpenStream; id: unknown }> {
  const stream = await client.post({ jsonrpc: '2.0', id: 5, method: 'tools/call', params: { name: 'pay' } })
  for (let message = await stream.next(); message; message = await stream.next())
    if (message.method === 'elicitation/create') return { stream, id: message.id }
  throw new Error('no question')
}

describe('a question that is answered while its server drains', () => {
  it.each(carriers)(
    'R6 R7 over HTTP in %s: the result arrives, and the effect runs once',
    async (_, tool, how, share) => {
      const open = share && (await share())
      const { effects, stop, resumed, send, url } = await startPair(open)
      let closing: Promise<void> | undefined
      const client: Client = await connect(url, {
        ...how,
        fetch: send,
        answers: {
          elicitation: {
            form() {
              closing ??= stop()
              return YES
            },
          },
        },
      })
      onTestFinished(() => client.close())
      const result = await client.callTool(tool)
      expect(result).toMatchObject({ content: [{ text: 'paid' }] })
      expect(closing).toBeDefined()
      await closing
      expect(effects).toHaveLength(1)
      // It arrived where the client waited for it.
      expect(resumed()).toBe(0)
    },
  )

  it('J1 R7 a client that lost its stream finds the result at the replacement', async () => {
    // Longer than anything else that a server waits for while it stops.
    const { effects, stop, send, url } = await startPair(await sqlite(), 800)
    const client = await connectOlder(url, { capabilities: { elicitation: {} } }, send)
    const { stream, id } = await ask(client)
    const closing = stop()
    await stream.drop()
    expect((await client.respond(id, YES)).status).toBe(202)
    await closing
    const resumed = await client.get({ 'last-event-id': stream.ids.at(-1) ?? '' })
    expect(await resumed.next()).toMatchObject({ id: 5, result: { content: [{ text: 'paid' }] } })
    expect(effects).toHaveLength(1)
  })

  it('J1 R7 a call that runs for longer than its server waits continues at the replacement, under the same key', async () => {
    const effects: Effects = []
    const open = await memory()
    const {
      connect: connectFleet,
      instances,
      route,
    } = await startFleet(2, () => ({
      store: open(),
      tasks: { leaseMs: 600 },
    }))
    for (const [index, { server }] of instances.entries())
      server.tool('pay', {}, async (_args, ctx) => {
        await ctx.confirm('sure', 'Pay?')
        await ctx.effect('pay', async ({ key }) => {
          effects.push(key)
          if (index === 0) await new Promise(() => {})
        })
        return 'paid'
      })
    const client = await connectFleet()
    route(0)
    const { stream, id } = await ask(client)
    route(0)
    expect((await client.respond(id, YES)).status).toBe(202)
    await until('the effect', () => effects.length === 1)
    await instances[0]?.server.close()
    route(1)
    const resumed = await client.get({ 'last-event-id': stream.ids.at(-1) ?? '' })
    expect(await resumed.next()).toMatchObject({ id: 5, result: { content: [{ text: 'paid' }] } })
    expect(effects).toHaveLength(2)
    expect(new Set(effects).size).toBe(1)
  })

  it('R7 over stdio at 2025-11-25: the result arrives, and the effect runs once', async () => {
    const effects: Effects = []
    const server = createServer({ name: 'shop', version: '1', keys: generateKey(), log: 'off' })
    server.tool('pay', {}, pay(effects))
    const [input, output] = [new PassThrough(), new PassThrough()]
    const done = server.stdio({ input, output, signals: false, rejections: false })
    const send = (message: object): void =>
      void input.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`)
    const clientInfo = { name: 'c', version: '1' }
    const capabilities = { elicitation: {} }
    send({ id: 1, method: 'initialize', params: { protocolVersion: '2025-11-25', capabilities, clientInfo } })
    const received: Record<string, unknown>[] = []
    for await (const chunk of output.setEncoding('utf8')) {
      for (const line of String(chunk).trim().split('\n')) {
        const message = JSON.parse(line)
        received.push(message)
        if (message.id === 1) send({ id: 2, method: 'tools/call', params: { name: 'pay' } })
        if (message.method === 'elicitation/create') {
          server.drain()
          send({ id: message.id, result: YES })
        }
      }
      if (received.some(({ id, method }) => id === 2 && method === undefined)) break
    }
    expect(received.at(-1)).toMatchObject({ id: 2, result: { content: [{ text: 'paid' }] } })
    expect(effects).toHaveLength(1)
    input.end()
    await done
  })

  it.each([
    ['rounds', MODERN],
    ['push', OLDER],
  ])('R7 in a mounted server with %s: the result arrives, and the effect runs once', async (_, options) => {
    const effects: Effects = []
    const rondo = createRondo({ audience: 'shop', keys: generateKey(), log: 'off' })
    const [near, far] = InMemoryTransport.createLinkedPair()
    const served = serveStdio(
      () => {
        const server = rondo.mount(new McpServer({ name: 'shop', version: '1' }))
        const tool = rondo.tool(async (args, ctx) => ({
          content: [{ type: 'text' as const, text: await pay(effects)(args, ctx) }],
        }))
        server.registerTool('pay', {}, tool)
        return server
      },
      { transport: far },
    )
    const client = await connectOfficial(near as never, options)
    onTestFinished(async () => {
      await client.close()
      await served.close()
      await rondo.close()
    })
    client.client.setRequestHandler('elicitation/create', async () => {
      rondo.drain()
      return YES
    })
    const ran = await client.run({ method: 'tools/call', target: 'pay' })
    expect(ran).toMatchObject({ text: 'paid', isError: false })
    expect(effects).toHaveLength(1)
  })
})
