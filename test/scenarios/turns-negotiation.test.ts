/** The clients that are asked in turns, and the behaviour for clients that do not echo states. */

import type { ServerOptions } from 'rondo'
import { describe, expect, it } from 'vitest'
import { createTurns } from '../../packages/rondo/src/drafts/turns/carrier.ts'
import type { ClientCapabilities } from '../../packages/rondo/src/protocol/wire.ts'
import { createHost } from '../../packages/rondo/src/serve/host.ts'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import { createRegistry } from '../../packages/rondo/src/tool/registry.ts'
import type { Target } from '../../packages/rondo/src/tool/target.ts'
import { createMemoryBlobs } from '../support/memory-blobs.ts'
import { lastEventId, responsesTo } from '../support/turns-client.ts'
import {
  accept,
  call,
  connect,
  errorOf,
  keys,
  make,
  questions,
  REFUSED,
  textOf,
  URL,
  value,
} from '../support/turns-wire.ts'

describe('negotiating turns', () => {
  it('F5 F2 declares the capabilities back, in a session that any instance knows', async () => {
    const client = await connect(() => make())
    expect(client.greeting.capabilities).toEqual({
      tools: {},
      experimental: { 'multi-turn-sse': {}, 'request-state': {} },
    })
    const listed = await client.request('tools/list')
    expect(listed).toMatchObject({ message: { result: { tools: [{ name: 'ask' }, {}, {}] } } })
    expect(await client.request('ping')).toMatchObject({ message: { result: {} } })
    expect(errorOf(await client.request('logging/setLevel', { level: 'info' }))).toMatchObject({
      code: -32601,
    })
  })

  it('F5 pushes the question to a client that did not negotiate turns', async () => {
    for (const [server, options] of [
      [make({ sessions: {} }), { turns: false, state: false }],
      [make({ sessions: {}, turns: false }), {}],
    ] as const) {
      const client = await connect(() => server, options)
      expect(client.greeting).not.toHaveProperty('capabilities.experimental')
      const controller = new AbortController()
      const response = await server.fetch(
        new Request(URL, {
          method: 'POST',
          headers: {
            'content-type': 'application/json',
            accept: 'application/json, text/event-stream',
            'mcp-session-id': client.session ?? '',
            'mcp-protocol-version': '2025-11-25',
          },
          body: JSON.stringify({ jsonrpc: '2.0', id: 'c', method: 'tools/call', params: { name: 'ask' } }),
          signal: controller.signal,
        }),
      )
      const reader = (response.body as ReadableStream<Uint8Array>).getReader()
      const until = async (text: string): Promise<string> => {
        let seen = ''
        for (let i = 0; i < 20 && !seen.includes(text); i++) {
          const { value: chunk, done } = await reader.read()
          if (done) break
          seen += new TextDecoder().decode(chunk)
        }
        return seen
      }
      const asked = await until('elicitation/create')
      expect(asked).not.toMatch(/buffer_input|input_required|"state"/)
      const [, id] = /"id":"([^"]+)"/.exec(asked) ?? []
      const posted = await client.post({ jsonrpc: '2.0', id, result: accept({ value: 'Ada' }) })
      expect(posted).toMatchObject({ status: 202 })
      expect(await until('Hello Ada')).toContain('Hello Ada')
      controller.abort()
      await server.close()
    }
  })

  it('F2 sends no state to a client that did not declare it, and keeps the turn in memory', async () => {
    const server = make()
    let at = server
    const client = await connect(() => at, { state: false })
    expect(client.greeting.capabilities).toMatchObject({ experimental: { 'multi-turn-sse': {} } })
    expect(client.greeting).not.toHaveProperty('capabilities.experimental.request-state')
    const turn = await client.request(...call('ask'))
    expect(questions(turn)[0]).not.toHaveProperty('state')
    at = make()
    expect(errorOf(await client.answer(turn, [accept({ value: 'Ada' })]))).toEqual(REFUSED)
    at = server
    expect(textOf(await client.answer(turn, [accept({ value: 'Ada' })]))).toBe('Hello Ada')
  })

  it('F2 falls back to its memory for a client that declares states but does not echo them', async () => {
    const server = make({ turns: { state: 'per-request' } })
    const client = await connect(() => server)
    for (const keep of [0, 1]) {
      const turn = await client.request(...call('both'))
      const responses = responsesTo(turn, [accept({ value: 'L' }), accept({ value: 'R' })])
      const forgetful = responses.map(({ state, ...rest }, i) => (i < keep ? { ...rest, state } : rest))
      const got = await client.post(forgetful, { 'last-event-id': lastEventId(turn) })
      expect(textOf(got)).toBe('LR')
    }
  })

  it('F2 R9 keeps no more in memory than the limit allows', async () => {
    const server = make({ limits: { maxRememberedBytes: 0 } })
    const client = await connect(() => server, { state: false })
    const turn = await client.request(...call('ask'))
    expect(errorOf(await client.answer(turn, [accept({ value: 'Ada' })]))).toEqual(REFUSED)
  })

  describe.each(['stored', 'dual', 'sealed-first'] as const)('with continuation %s', (continuation) => {
    it.each(['shared', 'per-request'] as const)(
      'F2 F4 finds a turn in the store, on any instance, if its %s states are not echoed',
      async (state) => {
        const events: string[] = []
        const options: Partial<ServerOptions> = {
          continuation,
          store: { ...createMemoryStore(), blobs: createMemoryBlobs() },
          turns: { state },
          log: (event) => void (event.event === 'continuation' && events.push(event.finding)),
        }
        const client = await connect(() => make(options))
        for (const keep of [0, 1, 2]) {
          const turn = await client.request(...call('both'))
          const responses = responsesTo(turn, [accept({ value: 'L' }), accept({ value: 'R' })])
          const forgetful = responses.map(({ state: own, ...rest }, i) =>
            i < keep ? { ...rest, state: own } : rest,
          )
          const got = await client.post(forgetful, { 'last-event-id': lastEventId(turn) })
          expect([keep, textOf(got)]).toEqual([keep, 'LR'])
        }
        expect(events).toEqual([])
      },
    )

    it('B5 F4 finds a turn for nobody but its principal, and not after it has expired', async () => {
      let now = Date.now()
      const options: Partial<ServerOptions> = {
        continuation,
        store: { ...createMemoryStore(), blobs: createMemoryBlobs() },
        now: () => now,
        authenticate: ({ headers }) => ({ subject: headers('x-user') ?? 'nobody' }),
      }
      const ada = await connect(() => make(options), { headers: { 'x-user': 'ada' } })
      const eve = await connect(() => make(options), { headers: { 'x-user': 'eve' } })
      const turn = await ada.request(...call('ask'))
      const forgetful = responsesTo(turn, [accept({ value: 'Ada' })]).map(({ state: _, ...rest }) => rest)
      const last = { 'last-event-id': lastEventId(turn) }
      expect(errorOf(await eve.post(forgetful, last))).toEqual(REFUSED)
      expect(textOf(await ada.post(forgetful, last))).toBe('Hello Ada')
      now += 25 * 60 * 60_000
      expect(errorOf(await ada.post(forgetful, last))).toEqual(REFUSED)
    })
  })
})

describe('the memory kept for turns', () => {
  const PLAIN = 'the plain text of an answer'

  async function remembering(capabilities: ClientCapabilities, echo: boolean) {
    const host = createHost({ audience: 'a', keys, log: 'off' })
    const registry = createRegistry()
    registry.tool('two', {}, async (_args, ctx) => {
      const first = await ctx.ask('first', { message: 'First?', schema: value })
      const second = await ctx.ask('second', { message: 'Second?', schema: value })
      return first.value + second.value
    })
    const turns = createTurns(host, registry.find)
    const target = registry.find('tools/call', 'two') as Target
    const facts = { protocolVersion: '2025-11-25', capabilities }
    const line = {
      closed: false,
      onClose: () => () => {},
      notify: () => {},
      ask: async () => ({ kind: 'gone' }) as const,
      rest: () => () => {},
    }
    const admit = async () => ({ scopes: [] })
    const peer = { facts, takesTurns: true, principal: undefined, session: 's', admit, line: () => line }
    const held: number[] = []
    for (let i = 0; i < 50; i++) {
      const flow = { kind: 'flow', id: i, method: 'tools/call', target: 'two', args: {}, ...facts } as const
      let outcome = await turns.begin(target, flow, undefined, line, 's')
      while (outcome.kind === 'turn') {
        held.push(turns.remembered)
        const { id, requests } = outcome.turn
        const result = { action: 'accept', content: { value: PLAIN.repeat(40) } }
        const answers = requests.map(({ state }, index) => ({
          index,
          ...(echo && state !== undefined && { state }),
          answer: { kind: 'result', result } as const,
        }))
        outcome = await turns.resume({ turn: id, answers }, peer)
      }
      expect(outcome).toMatchObject({ kind: 'reply', reply: { kind: 'complete' } })
    }
    return { held, after: turns.remembered }
  }

  const asked = { elicitation: { form: {} }, experimental: { 'multi-turn-sse': {}, 'request-state': {} } }

  it('B2 B11 is empty for a client that echoes, from its first echo on', async () => {
    const { held, after } = await remembering(asked, true)
    expect(held).toHaveLength(100)
    expect(held[0]).toBeGreaterThan(0)
    expect(held.slice(1)).toEqual(Array(99).fill(0))
    expect(after).toBe(0)
  })

  it('R9 grows for a client that does not echo, whatever it declared', async () => {
    for (const capabilities of [asked, { ...asked, experimental: { 'multi-turn-sse': {} } }]) {
      const { held } = await remembering(capabilities, false)
      expect(held.every((bytes, i) => i === 0 || bytes > (held[i - 1] ?? 0))).toBe(true)
    }
  })
})
