/** Turns as they look on the wire: the published examples of the two drafts, and everything beside the good path. */

import { createServer, generateKey, type Server, type ServerOptions } from 'rondo'
import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import { type WorkItem, workItems } from '../../examples/08-custom-rules.ts'
import { createMemoryStore } from '../../src/store/memory/memory-store.ts'
import { connectTurns, type Got, lastEventId, type Message, responsesTo } from '../support/turns-client.ts'

const URL = 'http://127.0.0.1/mcp'
const keys = generateKey('wire')
const value = z.object({ value: z.string() })
const accept = (content: Message): Message => ({ action: 'accept', content })

function make(options: Partial<ServerOptions> = {}): Server {
  const server = createServer({ name: 'wire', version: '1', keys, dev: true, log: 'off', ...options })
  server.tool('ask', {}, async (_args, ctx) => {
    const { value: name } = await ctx.ask('name', { message: 'Name?', schema: value })
    return `Hello ${name}`
  })
  server.tool('both', {}, async (_args, ctx) => {
    const [left, right] = await Promise.all([
      ctx.ask('left', { message: 'Left?', schema: value }),
      ctx.ask('right', { message: 'Right?', schema: value }),
    ])
    return `${left.value}${right.value}`
  })
  server.tool('counts', {}, async (_args, ctx) => {
    ctx.progress(1, 3)
    await ctx.ask('go', { message: 'Go?', schema: value })
    ctx.progress(2, 3)
    await ctx.step('work', () => 'done')
    ctx.progress(3, 3)
    return 'counted'
  })
  return server
}

/** A client whose every request reaches the instance that `at` gives. */
function connect(at: () => Server, options?: Parameters<typeof connectTurns>[2]) {
  return connectTurns((request) => at().fetch(request), URL, options)
}

const call = (name: string, args: Message = {}): [string, Message] => [
  'tools/call',
  { name, arguments: args },
]

function questions(got: Got): readonly Message[] {
  if (got.kind !== 'turn') throw new Error(`expected a turn, got ${JSON.stringify(got)}`)
  return got.requests
}

function textOf(got: Got): string {
  const { result } = got.kind === 'response' ? got.message : {}
  if (result === undefined) throw new Error(`expected a result, got ${JSON.stringify(got)}`)
  return (result as { content: { text: string }[] }).content[0]?.text ?? ''
}

function errorOf(got: Got): Message {
  if (got.kind !== 'response' || got.message.error === undefined) throw new Error(JSON.stringify(got))
  return got.message.error as Message
}

const REFUSED = { code: -32602, message: 'Invalid or expired requestState' }

describe('the published examples', () => {
  it('F2 F5 B21 plays the tracker with custom rules over three instances', async () => {
    const items = new Map<number, WorkItem>()
    const instances = [0, 1, 2].map(() => workItems(items, { keys, log: 'off' }))
    let next = 0
    const client = await connect(() => instances[next++ % 3] as Server)
    const args = { workItemId: 4522, fields: { 'System.State': 'Resolved' } }
    const first = await client.request(...call('update_work_item', args))
    expect(questions(first)).toMatchObject([
      {
        method: 'elicitation/create',
        state: expect.any(String),
        params: {
          message: 'Resolving Bug #4522 requires a resolution. How was this bug resolved?',
          requestedSchema: {
            type: 'object',
            properties: {
              resolution: {
                type: 'string',
                enum: ['Fixed', "Won't Fix", 'Duplicate', 'By Design'],
                description: 'Resolution type for this bug',
              },
            },
            required: ['resolution'],
          },
        },
      },
    ])
    const second = await client.answer(first, [accept({ resolution: 'Duplicate' })])
    expect(questions(second)).toMatchObject([
      {
        params: {
          message: 'Since this is a duplicate, which work item is the original?',
          requestedSchema: {
            properties: {
              duplicateOfId: { type: 'number', description: 'Work item ID of the original bug' },
            },
            required: ['duplicateOfId'],
          },
        },
      },
    ])
    const last = await client.answer(second, [accept({ duplicateOfId: 4301 })])
    expect(textOf(last)).toBe(
      'Bug #4522 resolved as Duplicate of Bug #4301. State set to Resolved and duplicate link created.',
    )
    expect(items.get(4522)).toMatchObject({ resolution: 'Duplicate', duplicateOf: 4301 })
  })

  it('F5 asks between two events without data, ends the stream, and answers the POST on another instance', async () => {
    const client = await connect(() => make())
    const turn = await client.request(...call('ask'))
    if (turn.kind !== 'turn') throw new Error('expected a turn')
    expect(turn.events.map(({ event, data }) => [event, data !== undefined])).toEqual([
      ['buffer_input', false],
      ['message', true],
      ['input_required', false],
    ])
    const ids = turn.events.map(({ id }) => id ?? '')
    expect(new Set(ids).size).toBe(3)
    for (const id of ids) expect(id).toMatch(/^[A-Za-z0-9_-]{1,32}$/)
    const done = await client.answer(turn, [accept({ value: 'Ada' })])
    expect(done).toMatchObject({ kind: 'response', status: 200, message: { id: 2 } })
    expect(textOf(done)).toBe('Hello Ada')
  })

  it('F5 answers the POST with a stream where there is something to tell first; progress only grows', async () => {
    const client = await connect(() => make())
    const params = { name: 'counts', arguments: {}, _meta: { progressToken: 'p' } }
    const turn = await client.request('tools/call', params)
    const done = await client.answer(turn, [accept({ value: 'x' })])
    if (turn.kind !== 'turn' || done.kind !== 'response') throw new Error('expected a turn and a result')
    const told = [...turn.events.map(({ data = '' }) => data), done.raw].join('\n')
    expect([...told.matchAll(/"progress":(\d)/g)].map(([, n]) => n)).toEqual(['1', '2', '3'])
    expect(done.raw).toContain('event: message')
    expect(textOf(done)).toBe('counted')
  })
})

describe('what is negotiated', () => {
  it('F5 F2 is declared back, in a session that any instance knows', async () => {
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

  it('F5 pushes the question as ever to a client that did not negotiate turns', async () => {
    for (const [server, options] of [
      [make({ sessions: {} }), { turns: false }],
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

  it('F2 sends no state to a client that did not ask for it, and remembers on this instance', async () => {
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

  it('F2 falls back to its memory for a client that declares states and does not echo them', async () => {
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

  it('F2 R9 remembers no more than it may', async () => {
    const server = make({ limits: { maxRememberedBytes: 0 } })
    const client = await connect(() => server, { state: false })
    const turn = await client.request(...call('ask'))
    expect(errorOf(await client.answer(turn, [accept({ value: 'Ada' })]))).toEqual(REFUSED)
  })
})

describe('shared and single states', () => {
  it('F3 gives every question of a turn the same state, or each its own', async () => {
    for (const [state, count] of [
      ['shared', 1],
      ['per-request', 2],
    ] as const) {
      const client = await connect(() => make({ turns: { state } }))
      const states = questions(await client.request(...call('both'))).map((request) => request.state)
      expect(new Set(states).size).toBe(count)
    }
  })

  it('F3 lets a state count for its own question alone', async () => {
    const client = await connect(() => make({ turns: { state: 'per-request' } }))
    const turn = await client.request(...call('both'))
    const [left, right] = responsesTo(turn, [accept({ value: 'L' }), accept({ value: 'R' })])
    const last = { 'last-event-id': lastEventId(turn) }
    const swapped = [
      { ...left, state: right?.state },
      { ...right, state: left?.state },
    ]
    expect(errorOf(await client.post(swapped, last))).toEqual(REFUSED)
    expect(textOf(await client.post([left, right], last))).toBe('LR')
  })

  it.each(['shared', 'per-request'] as const)(
    'F3 B16 asks again what was left out, and only that: %s',
    async (state) => {
      const client = await connect(() => make({ turns: { state } }))
      const turn = await client.request(...call('both'))
      const [, right] = responsesTo(turn, [{}, accept({ value: 'R' })])
      const again = await client.post([right], { 'last-event-id': lastEventId(turn) })
      expect(questions(again)).toMatchObject([{ params: { message: 'Left?' } }])
      expect(textOf(await client.answer(again, [accept({ value: 'L' })]))).toBe('LR')
    },
  )
})

describe('beside the good path', () => {
  it('ends the call as a tool error when a question is answered with an error', async () => {
    const client = await connect(() => make())
    const turn = await client.request(...call('ask'))
    const [response] = responsesTo(turn, [{}])
    const { result: _, ...rest } = response as Message
    const failed = [{ ...rest, error: { code: -1, message: 'User rejected' } }]
    const got = await client.post(failed, { 'last-event-id': lastEventId(turn) })
    expect(got).toMatchObject({ message: { id: 2, result: { isError: true } } })
    expect(textOf(got)).toBe('The client did not answer "name": User rejected')
  })

  it('B10 says what is missing to a client that cannot be asked, or reads no streams', async () => {
    const mute = await connect(() => make(), { capabilities: {} })
    expect(textOf(await mute.request(...call('ask')))).toMatch(/elicitation/)
    const deaf = await connect(() => make(), { headers: { accept: 'application/json' } })
    expect(textOf(await deaf.request(...call('ask')))).toMatch(/text\/event-stream/)
  })

  it('B20 hands a call over in the middle on a ping that carries the state', async () => {
    let busy = true
    const server = () => {
      const made = make({ shed: () => busy })
      made.tool('steps', {}, async (_args, ctx) => {
        const steps = []
        for (const n of [1, 2]) steps.push(await ctx.step(`s${n}`, () => n))
        return steps.join()
      })
      return made
    }
    const client = await connect(server)
    const turn = await client.request(...call('steps'))
    expect(questions(turn)).toEqual([
      { jsonrpc: '2.0', id: expect.any(String), method: 'ping', state: expect.any(String) },
    ])
    busy = false
    expect(textOf(await client.answer(turn, [{}]))).toBe('1,2')
  })

  it('B8 F2 lets a turn that counts once be answered once, and gives its repetition the same', async () => {
    const store = createMemoryStore()
    const server = () => {
      const made = make({ store })
      made.tool('twice', { once: true }, async (_args, ctx) => {
        const sure = await ctx.confirm('sure', 'Sure?')
        const { value: name } = await ctx.ask('name', { message: 'Name?', schema: value })
        return `${sure} ${name}`
      })
      return made
    }
    const client = await connect(server)
    const turn = await client.request(...call('twice'))
    const next = await client.answer(turn, [accept({ confirm: true })])
    expect(await client.answer(turn, [accept({ confirm: true })])).toEqual(next)
    expect(errorOf(await client.answer(turn, [accept({ confirm: false })]))).toEqual(REFUSED)
    expect(textOf(await client.answer(next, [accept({ value: 'Ada' })]))).toBe('true Ada')
  })

  it('P14 F2 puts a journal into the store that is too large for a state', async () => {
    const store = createMemoryStore()
    const server = () => {
      const made = make({ store, limits: { maxBytes: 2048 } })
      made.tool('large', {}, async (_args, ctx) => {
        const text = await ctx.step('load', () => 'x'.repeat(5000))
        const { value: name } = await ctx.ask('name', { message: 'Name?', schema: value })
        return `${text.length} ${name}`
      })
      return made
    }
    const client = await connect(server)
    const turn = await client.request(...call('large'))
    expect(String(questions(turn)[0]?.state).length).toBeLessThanOrEqual(2048)
    expect(textOf(await client.answer(turn, [accept({ value: 'Ada' })]))).toBe('5000 Ada')
  })

  it('B20 sends the client elsewhere while it shuts down', async () => {
    const leaving = make({ sessions: {} })
    let at = leaving
    const client = await connect(() => at)
    const turn = await client.request(...call('ask'))
    leaving.drain()
    expect(await client.answer(turn, [accept({ value: 'Ada' })])).toMatchObject({ status: 503 })
    at = make()
    expect(textOf(await client.answer(turn, [accept({ value: 'Ada' })]))).toBe('Hello Ada')
  })

  it('R9 ends a flow that has had its rounds', async () => {
    const client = await connect(() => make({ limits: { maxRounds: 1 } }))
    const turn = await client.request(...call('ask'))
    expect(errorOf(await client.answer(turn, [accept({ value: 'Ada' })]))).toMatchObject({ code: -32603 })
  })

  it('says that a tool is gone which asked before', async () => {
    let server = make()
    const client = await connect(() => server)
    const turn = await client.request(...call('ask'))
    server = createServer({ name: 'wire', version: '2', keys, log: 'off' })
    expect(errorOf(await client.answer(turn, [accept({ value: 'Ada' })]))).toMatchObject({
      message: expect.stringContaining('Start the call again'),
    })
  })

  it('answers what is no message of a turn with an error, and goes on', async () => {
    const server = make()
    const client = await connect(() => server)
    expect(errorOf(await client.request(...call('nothing')))).toMatchObject({ code: -32602 })
    expect(errorOf(await client.request('tasks/list'))).toMatchObject({ code: -32601 })
    expect(await client.post([{ jsonrpc: '2.0', id: 1, method: 'ping' }])).toMatchObject({ status: 400 })
    expect(await client.post(7)).toMatchObject({ status: 400 })
    for (const method of ['GET', 'DELETE']) {
      const headers = { 'mcp-session-id': client.session ?? '', accept: 'text/event-stream' }
      const bare = await make({ sessions: {} }).fetch(new Request(URL, { method, headers }))
      expect([bare.status, bare.headers.get('allow')]).toEqual([405, 'POST'])
    }
  })
})
