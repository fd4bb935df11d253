/** Questions that close by themselves, under the carriers that hold a connection or take turns: in time, too late, withdrawn. */

import { createServer, generateKey, type Server, type ServerOptions } from 'rondo'
import { afterEach, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { connectOlder } from '../support/older-client.ts'
import { connectTurns } from '../support/turns-client.ts'

const value = z.object({ value: z.string() })
const CAPABILITIES = { elicitation: { form: {} } }
const servers: Server[] = []
afterEach(async () => {
  for (const server of servers.splice(0)) await server.close()
})

function createAsking(within: number, options: Partial<ServerOptions> = {}): Server {
  const server = createServer({ name: 'time', version: '1.0.0', log: 'off', ...options })
  server.tool('ask', {}, async (_args, ctx) => {
    const [limited, other] = await Promise.all([
      ctx.elicit('limited', { message: 'Limited?', schema: value, within }),
      ctx.elicit('other', { message: 'Other?', schema: value }),
    ])
    return `${limited.action} ${other.action}`
  })
  servers.push(server)
  return server
}

const accept = { action: 'accept', content: { value: 'x' } }

describe('a question with a time limit in a session', () => {
  const call = async (within: number, answer: (message: string, times: number) => unknown) => {
    const { url } = await createAsking(within).listen({ port: 0, signals: false })
    const seen: string[] = []
    const client = await connectOlder(url, {
      capabilities: CAPABILITIES,
      answer({ params }) {
        const message = String((params as { message?: unknown }).message)
        seen.push(message)
        return answer(message, seen.filter((one) => one === message).length)
      },
    })
    const { result } = await client.call('tools/call', { name: 'ask', arguments: {} })
    const [{ text }] = (result as { content: [{ text: string }] }).content
    return { text, client }
  }
  const never = new Promise(() => {})

  it('G2 counts an answer that comes in time', async () => {
    const { text, client } = await call(60_000, () => accept)
    expect(text).toBe('accept accept')
    expect(client.asked).toHaveLength(2)
  })

  it('G2 expires by timer and is withdrawn; an answer that was there already counts', async () => {
    // Long enough for the other answer to arrive first, on a busy machine too.
    const { text, client } = await call(3_000, (message) => (message === 'Limited?' ? never : accept))
    expect(text).toBe('expired accept')
    const withdrawn = client.received.filter(({ method }) => method === 'notifications/cancelled')
    const limited = client.asked.find(({ params }) => (params as { message: string }).message === 'Limited?')
    expect(withdrawn).toMatchObject([{ params: { requestId: limited?.id } }])
    // It was answered before the time was up, so nobody is asked twice.
    expect(client.asked).toHaveLength(2)
    // A late response is accepted by the transport and has no effect.
    expect((await client.respond(limited?.id, accept)).status).toBe(202)
  })

  it('G2 a question with a limit that was answered counts although another one is still open when its time comes', async () => {
    const { text } = await call(3_000, (message, times) =>
      message === 'Limited?' ? accept : times > 1 ? accept : never,
    )
    expect(text).toBe('accept accept')
  })
})

describe('a question with a time limit in turns', () => {
  it.each([
    ['counts in time', 59_999, 'accept accept'],
    ['is too late at its time', 60_000, 'expired accept'],
  ])('G2 %s, on another instance', async (_name, ms, text) => {
    let now = Date.UTC(2026, 6, 28)
    const keys = generateKey('time')
    const make = () => createAsking(60_000, { keys, now: () => now })
    const client = await connectTurns((request) => make().fetch(request), 'http://127.0.0.1/mcp', {})
    const turn = await client.request('tools/call', { name: 'ask', arguments: {} })
    now += ms
    const got = await client.answer(turn, [accept, accept])
    expect(got).toMatchObject({ kind: 'response', message: { result: { content: [{ text }] } } })
  })
})
