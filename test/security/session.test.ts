/** Sessions under attack: foreign ids, foreign responses, floods, malformed messages, clients that do not read. */

import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { OlderClient, OpenStream } from '../support/older-client.ts'
import { startOlder } from '../support/older-server.ts'

const call = (name: string, id = 7, args: object = {}) => ({
  jsonrpc: '2.0',
  id,
  method: 'tools/call',
  params: { name, arguments: args },
})

async function question(stream: OpenStream): Promise<unknown> {
  for (let message = await stream.next(); message; message = await stream.next()) {
    if (message.method === 'elicitation/create') return message.id
  }
  throw new Error('The server asked nothing')
}

async function expectServing(client: OlderClient): Promise<void> {
  const { result } = await client.call('tools/call', { name: 'plain', arguments: { n: 5 } })
  expect(result).toMatchObject({ content: [{ text: '5' }] })
}

describe('a session', () => {
  it('T1 T17 has a sealed id that is never used twice', async () => {
    const { connect } = await startOlder()
    const ids = new Set<string>()
    for (let i = 0; i < 50; i++) ids.add((await connect()).sessionId ?? '')
    expect(ids.size).toBe(50)
    for (const id of ids) expect(id).toMatch(/^s\.r1\.[\w-]{200,1000}$/)
  })

  it('T1 looks the same to others as one that never existed', async () => {
    const { connect } = await startOlder({
      authenticate: ({ headers }) => ({ subject: headers('authorization') ?? 'nobody' }),
    })
    const alice = await connect({ headers: { authorization: 'alice' } })
    const bob = await connect({ headers: { authorization: 'bob' } })
    const answers: unknown[] = []
    for (const id of [alice.sessionId ?? '', 'AAAAAAAAAAAAAAAAAAAAAA']) {
      const posted = await bob.post(call('plain'), { 'mcp-session-id': id })
      answers.push([posted.status, await posted.next()])
    }
    expect(answers[0]).toEqual(answers[1])
    expect(answers[0]).toMatchObject([404, { error: { code: -32001 } }])
    await expectServing(alice)
  })

  it('T1 does not send its streams to anybody else', async () => {
    const { connect } = await startOlder()
    const [alice, eve] = [await connect(), await connect()]
    const stream = await alice.post(call('ask'))
    await question(stream)
    const stolen = await eve.get({ 'last-event-id': stream.ids[0] ?? '' })
    expect(stolen.status).toBe(400)
  })

  it('T14 is kept apart from two hundred others', async () => {
    const { connect } = await startOlder()
    const canary = (i: number) => `canary-${i}`
    const texts = await Promise.all(
      Array.from({ length: 200 }, async (_, i) => {
        const answer = () => ({ action: 'accept', content: { name: canary(i) } })
        const client = await connect({ answer })
        const { result } = await client.call('tools/call', { name: 'ask' })
        return (result as { content: { text: string }[] }).content[0]?.text
      }),
    )
    expect(texts).toEqual(Array.from({ length: 200 }, (_, i) => `Hello ${canary(i)}`))
  })

  it('T18 is evicted in a flood of initialize only if it is unused, and nobody is refused', async () => {
    const { connect } = await startOlder({ sessions: { maxSessions: 20 } })
    const first = await connect()
    const stream = await first.post(call('ask'))
    const asked = await question(stream)
    const rest = await Promise.all(Array.from({ length: 60 }, () => connect()))
    expect(rest.filter(({ sessionId }) => sessionId !== undefined)).toHaveLength(60)
    await first.respond(asked, { action: 'accept', content: { name: 'Ada' } })
    expect(JSON.stringify(await stream.next())).toContain('Hello Ada')
    await expectServing(await connect())
  })

  it('T18 of an authenticated caller is never evicted; initialize is refused if there is no room', async () => {
    const { connect } = await startOlder({
      sessions: { maxSessions: 20 },
      authenticate: ({ headers }) => {
        const subject = headers('authorization')
        return subject === undefined ? undefined : { subject }
      },
    })
    const named = await Promise.all(
      Array.from({ length: 20 }, (_, i) => connect({ headers: { authorization: `user-${i}` } })),
    )
    const anonymous = await Promise.all(Array.from({ length: 10 }, () => connect()))
    expect(anonymous.filter(({ sessionId }) => sessionId !== undefined)).toHaveLength(0)
    for (const client of named) await expectServing(client)
  })

  it('T8 T9 T10 refuses malformed messages, and keeps serving', async () => {
    const { connect, url } = await startOlder()
    const client = await connect()
    const headers = {
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
      'mcp-session-id': client.sessionId ?? '',
    }
    const post = (body: string) => fetch(url, { method: 'POST', headers, body })
    for (const body of [
      '{',
      '"text"',
      '['.repeat(100_000),
      '{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}',
      '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"__proto__":{}}}',
      '[]',
    ]) {
      expect((await post(body)).status).toBe(400)
    }
    await fc.assert(
      fc.asyncProperty(fc.jsonValue({ maxDepth: 3 }), fc.jsonValue(), async (params, id) => {
        const body = JSON.stringify({ jsonrpc: '2.0', id, method: 'tools/call', params })
        const { status } = await post(body)
        expect([200, 202, 400]).toContain(status)
      }),
      { numRuns: 50 },
    )
    await expectServing(client)
  })

  it('T7 keeps nothing of a huge response', async () => {
    const { connect } = await startOlder()
    const client = await connect()
    const stream = await client.post(call('ask'))
    const id = await question(stream)
    await client.respond(id, { action: 'accept', content: { name: 'x'.repeat(100_000) } })
    expect(JSON.stringify(await stream.next())).toContain('too large')
    await expectServing(client)
  })

  it('T20 disconnects a client that does not read, keeps what matters, and keeps serving', async () => {
    const { connect, server, url } = await startOlder({ maxBacklogBytes: 1_000 })
    const client = await connect()
    const headers = { accept: 'text/event-stream', 'mcp-session-id': client.sessionId ?? '' }
    const unread = await fetch(url, { headers })
    for (let i = 0; i < 40_000; i++) server.updated('notes://none')
    await client.call('resources/subscribe', { uri: 'notes://today' })
    for (let i = 0; i < 40_000; i++) server.updated('notes://today')
    await expect(unread.text()).rejects.toThrow()
    await expectServing(client)
  })
})
