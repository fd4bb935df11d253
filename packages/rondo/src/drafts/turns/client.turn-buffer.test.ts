/** A call in turns against a server that is scripted on the wire. */

import { describe, expect, it } from 'vitest'
import { connect } from '../../client/connect.ts'

interface Seen {
  readonly method: string
  readonly last: string | null
  readonly body: unknown
}

type Reply = { readonly json: unknown } | { readonly events: string }

const form = (message: string) => ({
  mode: 'form',
  message,
  requestedSchema: { type: 'object', properties: {} },
})
const question = (id: string, message: string, more: object = {}) =>
  `id: ${id}\nevent: message\ndata: ${JSON.stringify({ jsonrpc: '2.0', id, method: 'elicitation/create', params: form(message), ...more })}\n\n`
const BUFFER = 'event: buffer_input\nid: a0\n\n'
const ASK = (id: string) => `event: input_required\nid: ${id}\n\n`

/** Greets as an older server that speaks the drafts, or not, then replies as the script says. */
function serve(script: readonly Reply[], experimental?: object, onResume?: (last: string) => Reply) {
  const seen: Seen[] = []
  const greeted: { readonly experimental?: object }[] = []
  const left = [...script]
  const respond = (reply: Reply): Response =>
    'json' in reply
      ? Response.json(reply.json)
      : new Response(reply.events, { headers: { 'content-type': 'text/event-stream' } })
  return {
    seen,
    greeted,
    async fetch(request: Request): Promise<Response> {
      const text = await request.text()
      const body = text === '' ? undefined : JSON.parse(text)
      const last = request.headers.get('last-event-id')
      if (request.method === 'GET' && last !== null && onResume) {
        seen.push({ method: 'GET', last, body: undefined })
        return respond(onResume(last))
      }
      if (request.method !== 'POST') return new Response(null, { status: 405 })
      if (body.method === 'initialize') {
        greeted.push(body.params.capabilities)
        const capabilities = { tools: {}, ...(experimental && { experimental }) }
        const result = {
          protocolVersion: '2025-11-25',
          capabilities,
          serverInfo: { name: 's', version: '1' },
        }
        return Response.json({ jsonrpc: '2.0', id: body.id, result })
      }
      if (body.method === 'notifications/initialized') return new Response(null, { status: 202 })
      seen.push({ method: request.method, last, body })
      const reply = left.shift()
      if (reply === undefined) return new Response(null, { status: 202 })
      return respond(reply)
    },
  }
}

const TURNS = { 'multi-turn-sse': {}, 'request-state': {} }
const done = (id: unknown) => ({
  json: { jsonrpc: '2.0', id, result: { content: [{ type: 'text', text: 'done' }] } },
})

function client(server: ReturnType<typeof serve>, asked: string[] = [], turns?: boolean) {
  return connect(server, {
    mode: '2025-11-25',
    turns,
    answers: {
      elicitation: ({ message }) => {
        asked.push(message)
        return { action: 'accept', content: { said: message } }
      },
    },
  })
}

describe('a client in turns', () => {
  it('F5 F2 buffers, does not resume the stream, and POSTs one array with Last-Event-ID', async () => {
    const state = { workItemId: 4522, fields: { 'System.State': 'Resolved' } }
    const events = BUFFER + question('a1', 'One?', { state }) + question('a2', 'Two?') + ASK('a3')
    const server = serve([{ events }, done(2)], TURNS)
    const asked: string[] = []
    const result = await (await client(server, asked)).callTool('t')
    expect(result.content).toEqual([{ type: 'text', text: 'done' }])
    expect(asked).toEqual(['One?', 'Two?'])
    expect(server.seen.map(({ last }) => last)).toEqual([null, 'a3'])
    const answer = (id: string, said: string, more: object = {}) => ({
      jsonrpc: '2.0',
      id,
      ...more,
      result: { action: 'accept', content: { said } },
    })
    expect(server.seen[1]?.body).toEqual([answer('a1', 'One?', { state }), answer('a2', 'Two?')])
  })

  it('F5 continues turn after turn, whether a turn comes first or after progress', async () => {
    const progress = `event: message\ndata: ${JSON.stringify({ jsonrpc: '2.0', method: 'notifications/progress', params: { progressToken: 2, progress: 1 } })}\n\n`
    const server = serve(
      [
        { events: progress + BUFFER + question('a1', 'One?', { state: 's1' }) + ASK('a2') },
        { events: BUFFER + question('b1', 'Two?', { state: 's2' }) + ASK('b2') },
        { events: `event: message\ndata: ${JSON.stringify(done(2).json)}\n\n` },
      ],
      TURNS,
    )
    const reported: number[] = []
    const onProgress = ({ progress: n }: { progress: number }) => void reported.push(n)
    await (await client(server)).callTool('t', {}, { onProgress })
    expect(reported).toEqual([1])
    expect(server.seen.map(({ last }) => last)).toEqual([null, 'a2', 'b2'])
  })

  it('F5 resumes a stream that breaks within a turn, and only input_required ends it', async () => {
    const rest = { events: `${question('a1', 'One?')}${question('a2', 'Two?')}${ASK('a3')}` }
    const server = serve([{ events: BUFFER + question('a1', 'One?') }, done(2)], TURNS, () => rest)
    const asked: string[] = []
    await (await client(server, asked)).callTool('t')
    expect(asked).toEqual(['One?', 'Two?'])
    expect(server.seen.map(({ method, last }) => [method, last])).toEqual([
      ['POST', null],
      ['GET', 'a1'],
      ['POST', 'a3'],
    ])
  })

  it('C8 ends a call that never stops asking', async () => {
    const turn = { events: BUFFER + question('a1', 'Again?', { state: 's' }) + ASK('a2') }
    const server = serve(Array(20).fill(turn), TURNS)
    await expect((await client(server)).callTool('t', {}, { maxRounds: 3 })).rejects.toThrow(
      'LIMIT_CLIENT_ROUNDS',
    )
    expect(server.seen.length).toBe(4)
  })

  it('T22 refuses a stream that ends without the mark, and a turn that is too long', async () => {
    const cut = serve([{ events: BUFFER + question('a1', 'One?') }], TURNS)
    const asked: string[] = []
    await expect((await client(cut, asked)).callTool('t')).rejects.toThrow('PEER_HTTP')
    expect(asked).toEqual([])
    const many = Array.from({ length: 200 }, (_, i) => question(`a${i + 1}`, '?')).join('')
    const flood = serve([{ events: BUFFER + many + ASK('z') }], TURNS)
    await expect((await client(flood)).callTool('t')).rejects.toThrow('LIMIT_CLIENT_QUESTIONS')
  })

  it('F5 recognises the marks wherever they come, whatever the server declared', async () => {
    const server = serve([{ events: BUFFER + question('a1', 'One?') + ASK('a2') }, done(2)])
    expect((await (await client(server)).callTool('t')).content).toHaveLength(1)
    expect(server.seen.map(({ last }) => last)).toEqual([null, 'a2'])
  })

  it('F5 ignores the marks if the client did not declare turns', async () => {
    const result = `event: message\ndata: ${JSON.stringify(done(2).json)}\n\n`
    const server = serve([{ events: BUFFER + ASK('a1') + result }], TURNS)
    expect((await (await client(server, [], false)).callTool('t')).content).toHaveLength(1)
    expect(server.greeted).toMatchObject([{ experimental: { 'request-state': {} } }])
    expect(server.greeted[0]?.experimental).not.toHaveProperty('multi-turn-sse')
  })

  it('F5 F2 declares no draft with drafts: false, and ignores the marks', async () => {
    const result = `event: message\ndata: ${JSON.stringify(done(2).json)}\n\n`
    const server = serve([{ events: BUFFER + ASK('a1') + result }], TURNS)
    const plain = await connect(server, { mode: '2025-11-25', drafts: false })
    expect((await plain.callTool('t')).content).toHaveLength(1)
    expect(server.greeted).toHaveLength(1)
    expect(server.greeted[0]).not.toHaveProperty('experimental')
  })

  it('C11 does not resume a call in turns with a server that has none', async () => {
    const turn = { events: BUFFER + question('a1', 'One?', { state: 's' }) + ASK('a2') }
    const step = await (await client(serve([turn], TURNS))).start({ method: 'tools/call', name: 't' })
    if (step.status !== 'input_required') throw new Error('should wait')
    const server = serve([done(2)])
    const other = await client(server, [], false)
    const answers = { a1: { action: 'decline' } } as const
    await expect(other.resume(step.pending, answers)).rejects.toThrow('INPUT_PENDING')
    expect(server.seen).toEqual([])
  })
})
