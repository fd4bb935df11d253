/**
 * A handler that forgets to await a confirmation, under every carrier: its effect does not run, whatever the user says (N1).
 * The first question puts the flow's id into the client's hands, so that nothing else holds the effect back.
 */

import { createServer, type LogEvent, type Server, type ServerOptions } from 'rondo'
import { createBench, decline, type Script } from 'rondo/testing'
import { afterEach, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import { connectOlder } from '../support/older-client.ts'
import { follow, send } from '../support/task-client.ts'
import { connectTurns } from '../support/turns-client.ts'

const keys = 'k:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE='
const closing: (() => Promise<unknown>)[] = []
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close()
})

interface World {
  readonly effects: string[]
  readonly events: LogEvent[]
}

interface Setup extends World {
  readonly dev: boolean
  /** True if the handler awaits its confirmation. */
  readonly awaits: boolean
}

function declare(server: Server, { effects, awaits }: Setup): Server {
  server.tool('clean', { task: 'auto', taskPollMs: 20 }, async (_args, ctx) => {
    await ctx.ask('which', { message: 'Which?', schema: z.object({ value: z.string() }) })
    const asked = ctx.confirm('sure', 'Delete all?')
    const ok = awaits ? await asked : asked
    if (!ok) return 'kept'
    await ctx.effect('delete', () => void effects.push('deleted'))
    return 'deleted'
  })
  return server
}

function start(setup: Setup, options: Partial<ServerOptions> = {}): Server {
  const log = (event: LogEvent) => void setup.events.push(event)
  const server = createServer({ name: 'unread', version: '1', keys, log, dev: setup.dev, ...options })
  closing.push(() => server.close())
  return declare(server, setup)
}

const script: Script = { which: { value: 'x' }, sure: decline }
const which = { action: 'accept', content: { value: 'x' } }
const answerTo = ({ message }: { message?: unknown }) =>
  message === 'Which?' ? which : { action: 'decline' }

/** Each resolves with the last message to the client, as text. */
const CARRIERS: Record<string, (setup: Setup) => Promise<string>> = {
  async token(setup) {
    const bench = createBench((options) => {
      const log = (event: LogEvent) => void setup.events.push(event)
      const server = createServer({ name: 'unread', version: '1', ...options, log, dev: setup.dev })
      return declare(server, setup)
    })
    const call = bench.tool('clean')
    await call.next()
    const second = await call.otherInstance().next({ which: { value: 'x' } })
    const isAsked = second.kind === 'input_required'
    return JSON.stringify(isAsked ? await call.otherInstance().next({ sure: decline }) : second)
  },
  async task(setup) {
    const server = start(setup, { store: createMemoryStore() })
    const { result } = await send(server, 'tools/call', { name: 'clean', arguments: {} })
    return JSON.stringify(await follow(server, String(result?.taskId), script))
  },
  async push(setup) {
    const { url } = await start(setup).listen({ port: 0, signals: false })
    const answer = ({ params }: { params?: unknown }) => answerTo(params as { message?: unknown })
    const client = await connectOlder(url, { capabilities: { elicitation: { form: {} } }, answer })
    return JSON.stringify(await client.call('tools/call', { name: 'clean', arguments: {} }))
  },
  async turns(setup) {
    const server = start(setup)
    const client = await connectTurns((request) => server.fetch(request), 'http://127.0.0.1/mcp', {})
    let got = await client.request('tools/call', { name: 'clean', arguments: {} })
    while (got.kind === 'turn')
      got = await client.answer(
        got,
        got.requests.map(({ params }) => answerTo(params as { message?: unknown })),
      )
    return JSON.stringify(got)
  },
}

const MODES = Object.keys(CARRIERS).flatMap((carrier) => [
  { carrier, dev: false, mode: 'production' },
  { carrier, dev: true, mode: 'development' },
])

describe.each(MODES)('a confirmation that is declined, by $carrier in $mode', ({ carrier, dev }) => {
  const run = async (awaits: boolean) => {
    const setup: Setup = { dev, awaits, effects: [], events: [] }
    return { ...setup, text: (await CARRIERS[carrier]?.(setup)) ?? '' }
  }

  it('N1 R7 R10 runs no effect if the handler forgot to await it, and the log names both', async () => {
    const { effects, events, text } = await run(false)
    expect(effects).toEqual([])
    expect(text).toContain(dev ? 'REPLAY_NOT_AWAITED' : 'This tool is faulty and cannot finish the call')
    const faults = events.filter(({ event }) => event === 'fault')
    expect(faults).toHaveLength(1)
    expect(String((faults[0] as { error?: unknown }).error)).toMatch(/effect "delete".*question "sure"/)
  })

  it('N1 R10 is a No to a handler that awaits it (control)', async () => {
    const { effects, text } = await run(true)
    expect(effects).toEqual([])
    expect(text).toContain('kept')
  })
})

describe('a race that a confirmation lost', () => {
  const raced = async (dev: boolean) => {
    const events: LogEvent[] = []
    const log = (event: LogEvent) => void events.push(event)
    const server = createServer({ name: 'race', version: '1', keys, log, dev, store: createMemoryStore() })
    closing.push(() => server.close())
    server.tool('clean', { task: 'auto', taskPollMs: 20 }, async (_args, ctx) => {
      await ctx.ask('which', { message: 'Which?', schema: z.object({ value: z.string() }) })
      await Promise.race([ctx.confirm('sure', 'Delete all?'), ctx.sleep('patience', 5)])
      return ctx.effect('delete', () => 'deleted')
    })
    const { result } = await send(server, 'tools/call', { name: 'clean', arguments: {} })
    await follow(server, String(result?.taskId), { which: { value: 'x' }, sure: { confirm: true } })
    return events
      .filter(({ event }) => event === 'warning')
      .map((event) => String((event as { message?: unknown }).message))
  }

  it('N1 is a warning before the effect in development, which names both', async () => {
    expect((await raced(true)).join()).toMatch(/"clean" begins the effect "delete".*question "sure"/)
  })

  it('N1 is the author’s own word in production', async () => {
    expect((await raced(false)).join()).not.toContain('effect "delete"')
  })
})
