/**
 * A captured state of a turn is useless except for its own turn. Each row is the same attack with one thing changed; the
 * control changes nothing and succeeds.
 */

import {
  createServer,
  generateKey,
  type LogEvent,
  type Principal,
  type Server,
  type ServerOptions,
} from 'rondo'
import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import { connectTurns, type Got, lastEventId, type Message, responsesTo } from '../support/turns-client.ts'

const LONG = process.env.RONDO_LONG !== undefined
const URL = 'http://127.0.0.1/mcp'
const keys = generateKey('bank')
const REFUSAL = { code: -32602, message: 'Invalid or expired requestState' }
const alice = { subject: 'alice', issuer: 'https://id.example', client: 'app' }
const YES = { action: 'accept', content: { confirm: true } }

const input = z.object({ to: z.string() })
const clock = { now: Date.UTC(2026, 6, 28) }
const events: LogEvent[] = []

function bank(options: Partial<ServerOptions> = {}): Server {
  const server = createServer({
    name: 'bank',
    version: '1',
    keys,
    now: () => clock.now,
    log: (event) => void events.push(event),
    authenticate: ({ headers }) => JSON.parse(decodeURIComponent(headers('x-who') ?? 'null')) ?? undefined,
    ...options,
  })
  for (const tool of ['transfer', 'transfer_all']) {
    server.tool(tool, { input }, async ({ to }, ctx) =>
      (await ctx.confirm('sure', `Send to ${to}?`)) ? `sent to ${to}` : 'not sent',
    )
  }
  return server
}

/** Each request reaches an instance that shares nothing with the others but the key. */
function connect(who: Principal | undefined, make: () => Server = bank) {
  const headers = { 'x-who': encodeURIComponent(JSON.stringify(who ?? null)) }
  return connectTurns((request) => make().fetch(request), URL, { headers })
}

const transfer = (to: string, name = 'transfer'): [string, Message] => [
  'tools/call',
  { name, arguments: { to } },
]

function stateOf(turn: Got): string {
  const state = turn.kind === 'turn' ? turn.requests[0]?.state : undefined
  if (typeof state !== 'string') throw new Error(`no state in ${JSON.stringify(turn)}`)
  return state
}

const errorOf = (got: Got): unknown => (got.kind === 'response' ? got.message.error : got)

/** Answers `turn` with another state than its own. */
async function present(client: Awaited<ReturnType<typeof connect>>, turn: Got, state: unknown): Promise<Got> {
  const responses = responsesTo(turn, [YES]).map((response) => ({ ...response, state }))
  return client.post(responses, { 'last-event-id': lastEventId(turn) })
}

function reasons(): unknown[] {
  return events.splice(0).flatMap((event) => (event.event === 'state_refused' ? [event.reason] : []))
}

describe('the state of a turn', () => {
  it('control: is accepted unchanged, even in another session of the same principal', async () => {
    const client = await connect(alice)
    const turn = await client.request(...transfer('bob'))
    for (const one of [client, await connect(alice)]) {
      expect(await present(one, turn, stateOf(turn))).toMatchObject({
        message: { id: 2, result: { content: [{ text: 'sent to bob' }] } },
      })
    }
  })

  it('F2 B4 is refused if any one bit is changed', async () => {
    const client = await connect(alice)
    const turn = await client.request(...transfer('bob'))
    const state = stateOf(turn)
    const bytes = Buffer.from(state.slice(3), 'base64url')
    const step = LONG ? 1 : 97
    let tried = 0
    for (let bit = 0; bit < bytes.length * 8; bit += step) {
      const changed = Buffer.from(bytes)
      changed[bit >> 3] = (changed[bit >> 3] ?? 0) ^ (1 << (bit & 7))
      const got = await present(client, turn, `r1.${changed.toString('base64url')}`)
      if (JSON.stringify(errorOf(got)) !== JSON.stringify(REFUSAL))
        throw new Error(`A state with bit ${bit} flipped was accepted`)
      tried += 1
    }
    expect(tried).toBeGreaterThan(20)
    expect(await present(client, turn, state)).toMatchObject({ message: { result: {} } })
  })

  it('F2 B4 P17 is refused in every other form, with the same error', async () => {
    const client = await connect(alice)
    const turn = await client.request(...transfer('bob'))
    const state = stateOf(turn)
    const forms = ['', 'x', 'r1.', state.slice(0, -4), `${state}A`, {}, { sealed: state, more: 1 }, 'h1.x']
    const seen = new Set<string>()
    for (const forged of forms) seen.add(JSON.stringify(errorOf(await present(client, turn, forged))))
    expect([...seen]).toEqual([JSON.stringify(REFUSAL)])
    expect(await present(client, turn, { sealed: state })).toMatchObject({ message: { result: {} } })
  })

  it.each([
    ['another subject', { ...alice, subject: 'eve' }],
    ['another issuer', { ...alice, issuer: 'https://evil.example' }],
    ['another client', { ...alice, client: 'other' }],
    ['nobody', undefined],
  ])('F2 B5 T1 is refused for %s', async (_who, thief) => {
    const turn = await (await connect(alice)).request(...transfer('bob'))
    events.splice(0)
    expect(errorOf(await present(await connect(thief), turn, stateOf(turn)))).toEqual(REFUSAL)
    expect(reasons()).toEqual(['principal'])
  })

  it.each([
    ['other arguments', transfer('mallory')],
    ['another tool', transfer('bob', 'transfer_all')],
    ['the same arguments, asked again', transfer('bob')],
  ])('F2 B7 T2 is refused on another call: %s', async (_what, other) => {
    const client = await connect(alice)
    const captured = stateOf(await client.request(...transfer('bob')))
    const turn = await client.request(...other)
    events.splice(0)
    expect(errorOf(await present(client, turn, captured))).toEqual(REFUSAL)
    expect(reasons()).toEqual(['turn'])
    expect(await present(client, turn, stateOf(turn))).toMatchObject({ message: { result: {} } })
  })

  it('F2 B7 is refused with the ids of one turn and the Last-Event-ID of another', async () => {
    const client = await connect(alice)
    const [one, two] = [await client.request(...transfer('bob')), await client.request(...transfer('bob'))]
    const mixed = { 'last-event-id': lastEventId(two) }
    expect(errorOf(await client.post(responsesTo(one, [YES]), mixed))).toEqual(REFUSAL)
    const own = { 'last-event-id': lastEventId(one) }
    expect(await client.post(responsesTo(one, [YES]), own)).toMatchObject({ message: { result: {} } })
  })

  it('F2 B6 is refused after it has expired', async () => {
    const make = () => bank({ limits: { roundTtlMs: 1000 } })
    const client = await connect(alice, make)
    const turn = await client.request(...transfer('bob'))
    clock.now += 999
    expect(await present(client, turn, stateOf(turn))).toMatchObject({ message: { result: {} } })
    clock.now += 1
    expect(errorOf(await present(client, turn, stateOf(turn)))).toEqual(REFUSAL)
  })

  it('F2 B7 is refused as a requestState, and a requestState is refused as a state', async () => {
    const client = await connect(alice)
    const turn = await client.request(...transfer('bob'))
    const meta = {
      'io.modelcontextprotocol/protocolVersion': '2026-07-28',
      'io.modelcontextprotocol/clientCapabilities': { elicitation: {} },
    }
    const modern = {
      'mcp-protocol-version': '2026-07-28',
      'mcp-method': 'tools/call',
      'mcp-name': 'transfer',
    }
    const round = (extra: object) =>
      client.post(
        {
          jsonrpc: '2.0',
          id: 9,
          method: 'tools/call',
          params: { name: 'transfer', arguments: { to: 'bob' }, _meta: meta, ...extra },
        },
        modern,
      )
    const asked = await round({})
    const { result } = asked.kind === 'response' ? asked.message : {}
    const token = (result as Message).requestState
    expect(token).toBeTypeOf('string')
    expect(errorOf(await present(client, turn, token))).toEqual(REFUSAL)
    const answers = { sure: YES }
    expect(errorOf(await round({ requestState: stateOf(turn), inputResponses: answers }))).toEqual(REFUSAL)
    expect(await round({ requestState: token, inputResponses: answers })).toMatchObject({
      message: { result: { content: [{ text: 'sent to bob' }] } },
    })
  })
})

describe('the memory of an instance', () => {
  it('F2 B5 is used only for the principal that was asked', async () => {
    const server = bank()
    const same = () => server
    const turn = await (await connect(alice, same)).request(...transfer('bob'))
    for (const [who, goesOn] of [
      [{ ...alice, subject: 'eve' }, false],
      [undefined, false],
      [alice, true],
    ] as const) {
      const got = await present(await connect(who, same), turn, undefined)
      expect([who, errorOf(got) === undefined]).toEqual([who, goesOn])
    }
  })
})

describe('a sealed session', () => {
  it('is refused for another principal, and if any part of its id is changed', async () => {
    const client = await connect(alice)
    const session = client.session ?? ''
    const eve = await connect({ ...alice, subject: 'eve' })
    const forged = [
      session.slice(0, -1) + (session.endsWith('A') ? 'B' : 'A'),
      `${session}A`,
      't.',
      't.r1.AAAA',
      `t.${stateOf(await client.request(...transfer('bob')))}`,
    ]
    for (const id of forged) {
      expect([id, await client.post(ping, { 'mcp-session-id': id })]).toMatchObject([id, { status: 404 }])
    }
    expect(await eve.post(ping, { 'mcp-session-id': session })).toMatchObject({ status: 404 })
    expect(await client.post(ping)).toMatchObject({ status: 200 })
  })

  it('fits into a header, however much the client declares', async () => {
    const long = '\u0001'.repeat(10_000)
    const server = bank()
    const experimental = { 'multi-turn-sse': {}, 'request-state': {} }
    const elicitation = { form: { long }, url: {} }
    const sampling = { tools: {}, context: {} }
    const capabilities = { elicitation, sampling, roots: {}, experimental, more: { long } }
    for (const name of ['short', 'n'.repeat(500), long]) {
      const clientInfo = { name, version: name, title: name }
      const params = { protocolVersion: '2025-11-25', capabilities, clientInfo }
      const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'initialize', params })
      const headers = { 'content-type': 'application/json' }
      const response = await server.fetch(new Request(URL, { method: 'POST', headers, body }))
      const id = response.headers.get('mcp-session-id') ?? ''
      expect(id).toMatch(/^[!-~]{10,1024}$/)
      const again = new Request(URL, {
        method: 'POST',
        headers: { ...headers, 'mcp-session-id': id },
        body: JSON.stringify(ping),
      })
      expect((await server.fetch(again)).status).toBe(200)
    }
  })
})

const ping = { jsonrpc: '2.0', id: 3, method: 'ping' }
