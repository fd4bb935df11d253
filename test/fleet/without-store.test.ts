/** Sessions of older clients on several instances that share nothing but their keys. */

import { generateKey } from 'rondo'
import { connect } from 'rondo/client'
import { expect, it } from 'vitest'
import type { Message, OpenStream } from '../support/older-client.ts'
import { startFleet } from '../support/older-fleet.ts'

const call = (id: number, name: string, args: object = {}) => ({
  jsonrpc: '2.0',
  id,
  method: 'tools/call',
  params: { name, arguments: args },
})
const ADA = { action: 'accept', content: { name: 'Ada' } }

async function question(stream: OpenStream): Promise<Message> {
  for (let message = await stream.next(); message; message = await stream.next()) {
    if (message.method === 'elicitation/create') return message
  }
  throw new Error('the stream ended')
}

it('J1 calls that do not ask work on every instance in turn', async () => {
  const { connect, instances } = await startFleet(3)
  const client = await connect()
  for (let n = 0; n < 9; n++) {
    const { result } = await client.call('tools/call', { name: 'plain', arguments: { n } })
    expect(result).toMatchObject({ content: [{ text: String(n) }] })
  }
  const rounds = instances.map(({ events }) => events.filter(({ event }) => event === 'round').length)
  expect(rounds).toEqual([3, 3, 3])
})

it('J1 a response that reaches another instance gets an error that names both remedies, and is logged', async () => {
  const { connect, route, instances } = await startFleet(2)
  const client = await connect()
  route(0)
  const stream = await client.post(call(7, 'ask'))
  const { id } = await question(stream)
  route(1)
  const answered = await client.respond(id, ADA)
  expect(answered.status).toBe(421)
  expect(await answered.json()).toMatchObject({
    error: { message: expect.stringMatching(/store that they share, or sticky routing/) },
  })
  expect(instances[1]?.events).toContainEqual(
    expect.objectContaining({ event: 'refused', code: 'PEER_OTHER_INSTANCE' }),
  )
  // A response that goes to the right instance is accepted.
  route(0)
  expect((await client.respond(id, ADA)).status).toBe(202)
  let last: Message | undefined
  for (let message = await stream.next(); message; message = await stream.next()) last = message
  expect(last).toMatchObject({ id: 7, result: { content: [{ text: 'Hello Ada' }] } })
})

it('J1 a stream of another instance cannot be resumed, and the error names both remedies', async () => {
  const { connect, route } = await startFleet(2)
  const client = await connect()
  route(0)
  const stream = await client.post(call(7, 'ask'))
  await question(stream)
  await stream.drop()
  route(1)
  const resumed = await client.get({ 'last-event-id': stream.ids.at(-1) ?? '' })
  expect(resumed.status).toBe(400)
  expect(await resumed.next()).toMatchObject({
    error: { message: expect.stringMatching(/store that they share, or sticky routing/) },
  })
})

it.each([
  [
    'altered in one bit',
    (id: string) => id.slice(0, 60) + String.fromCharCode(id.charCodeAt(60) ^ 1) + id.slice(61),
  ],
  ['cut', (id: string) => id.slice(0, -1)],
  ['empty', () => ''],
  ['that is too long', (id: string) => id + 'A'.repeat(2_000)],
])(
  'J1 T2 T26 the fleet refuses a session id %s with 404 on every instance, for every method',
  async (_what, change) => {
    const { connect } = await startFleet(2)
    const client = await connect()
    const headers = { 'mcp-session-id': change(client.sessionId ?? '') }
    for (let request = 0; request < 2; request++) {
      const posted = await client.post(call(1, 'plain', { n: 1 }), headers)
      expect(posted.status).toBe(404)
      expect((await client.get(headers)).status).toBe(404)
    }
  },
)

it('J1 T1 the fleet refuses the session of another caller with 404, and one that was sealed with other keys', async () => {
  const authenticate = ({ headers }: { headers(name: string): string | undefined }) => ({
    subject: headers('authorization') ?? 'nobody',
  })
  const { connect } = await startFleet(2, () => ({ authenticate }))
  const { connect: connectElsewhere } = await startFleet(1, () => ({ authenticate, keys: generateKey() }))
  const alice = await connect({ headers: { authorization: 'alice' } })
  const bob = await connect({ headers: { authorization: 'bob' } })
  const elsewhere = await connectElsewhere({ headers: { authorization: 'bob' } })
  for (const foreign of [alice, elsewhere]) {
    const headers = { 'mcp-session-id': foreign.sessionId ?? '' }
    for (let request = 0; request < 2; request++)
      expect((await bob.post(call(1, 'plain', { n: 1 }), headers)).status).toBe(404)
  }
  expect((await bob.call('ping')).result).toEqual({})
})

it('J1 the fleet refuses an expired session with 404 on every instance', async () => {
  let now = Date.now()
  const { connect } = await startFleet(3, () => ({ now: () => now, sessions: { lifetimeMs: 60_000 } }))
  const client = await connect()
  now += 59_999
  for (let request = 0; request < 3; request++) expect((await client.call('ping')).result).toEqual({})
  now += 1
  for (let request = 0; request < 3; request++)
    expect((await client.post({ jsonrpc: '2.0', id: 1, method: 'ping' })).status).toBe(404)
})

it('J1 a restart with the same keys does not end a session', async () => {
  const keys = generateKey()
  const first = await startFleet(1, () => ({ keys }))
  const second = await startFleet(1, () => ({ keys }))
  const client = await first.connect()
  await first.instances[0]?.server.close()
  const later = await second.connect()
  const posted = await later.post(call(1, 'plain', { n: 4 }), { 'mcp-session-id': client.sessionId ?? '' })
  expect(await posted.next()).toMatchObject({ result: { content: [{ text: '4' }] } })
})

it.each([
  ['each to the other instance', [1, 0]],
  ['both to the other instance', [1, 1]],
  ['one to the instance that asked', [0, 1]],
])('F2 our client that echoes states gets its result, although its answers go %s', async (_, route) => {
  const { instances } = await startFleet(2)
  let runs = 0
  for (const { server } of instances)
    server.tool('twice', {}, async (_args, ctx) => {
      ctx.progress(++runs)
      await ctx.confirm('one', 'Sure?')
      await ctx.confirm('two', 'Really?')
      return 'done'
    })
  const answered = [...route]
  const send = async (request: Request): Promise<Response> => {
    const text = request.method === 'POST' ? await request.clone().text() : ''
    const index = text.includes('"action"') ? (answered.shift() ?? 0) : 0
    return fetch(new Request(instances[index]?.url ?? '', request))
  }
  const asked: string[] = []
  const warnings: string[] = []
  await using client = await connect(instances[0]?.url ?? '', {
    mode: '2025-11-25',
    turns: false,
    fetch: send,
    onWarning: (text) => void warnings.push(text),
    answers: {
      elicitation: {
        form({ message }) {
          asked.push(message)
          return { action: 'accept', content: { confirm: true } }
        },
      },
    },
  })
  const result = await client.callTool('twice', {}, { timeoutMs: 60_000 })
  expect(result).toMatchObject({ content: [{ text: 'done' }] })
  expect(asked).toEqual(['Sure?', 'Really?'])
  expect(answered).toEqual([])
  expect(warnings).toEqual([])
})

it.each([
  [
    '503',
    () =>
      Response.json({ jsonrpc: '2.0', id: null, error: { code: -32000, message: 'Away' } }, { status: 503 }),
  ],
  ['429 with Retry-After', () => new Response(null, { status: 429, headers: { 'Retry-After': '0' } })],
  ['a lost connection', () => Promise.reject(new TypeError('lost'))],
])('J1 F2 our client sends an answer again that got %s, and asks nobody twice', async (_, fail) => {
  const { instances } = await startFleet(1)
  let failures = 2
  const send = async (request: Request): Promise<Response> => {
    const text = request.method === 'POST' ? await request.clone().text() : ''
    if (text.includes('"action"') && failures-- > 0) return fail()
    return fetch(request)
  }
  let asked = 0
  const form = () => {
    asked += 1
    return { action: 'accept', content: { name: 'Ada' } } as const
  }
  await using client = await connect(instances[0]?.url ?? '', {
    mode: '2025-11-25',
    drafts: false,
    fetch: send,
    answers: { elicitation: { form } },
  })
  const result = await client.callTool('ask', {}, { timeoutMs: 60_000 })
  expect(result).toMatchObject({ content: [{ text: 'Hello Ada' }] })
  expect(asked).toBe(1)
  expect(failures).toBe(-1)
})

it('J1 without a store, an ended session is unknown only where it ended', async () => {
  const { connect, route } = await startFleet(2)
  const client = await connect()
  route(0)
  await client.remove()
  for (const status of [200, 404])
    expect((await client.post({ jsonrpc: '2.0', id: 99, method: 'ping' })).status).toBe(status)
})
