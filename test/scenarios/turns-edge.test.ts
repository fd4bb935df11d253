/** Edge cases of turns: errors, moves, single use, limits, and malformed messages. */

import { createServer } from 'rondo'
import { describe, expect, it } from 'vitest'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import { lastEventId, type Message, responsesTo } from '../support/turns-client.ts'
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

describe('a call in turns', () => {
  it('ends as a tool error if the response to a question is an error', async () => {
    const client = await connect(() => make())
    const turn = await client.request(...call('ask'))
    const [response] = responsesTo(turn, [{}])
    const { result: _, ...rest } = response as Message
    const failed = [{ ...rest, error: { code: -1, message: 'User rejected' } }]
    const got = await client.post(failed, { 'last-event-id': lastEventId(turn) })
    expect(got).toMatchObject({ message: { id: 2, result: { isError: true } } })
    expect(textOf(got)).toBe('The client did not answer "name": User rejected')
  })

  it('B10 says what to do if the client does not know a method that it declared', async () => {
    const client = await connect(() => make())
    const turn = await client.request(...call('ask'))
    const [response] = responsesTo(turn, [{}])
    const { result: _, ...rest } = response as Message
    const failed = [{ ...rest, error: { code: -32601, message: 'Method not found' } }]
    const got = await client.post(failed, { 'last-event-id': lastEventId(turn) })
    expect(got).toMatchObject({ message: { id: 2, result: { isError: true } } })
    expect(textOf(got)).toMatch(
      /^This client cannot be asked: .*The tool asks the user: .* Nothing was done\./,
    )
  })

  it('B10 names the missing capability to a client that cannot be asked or reads no streams', async () => {
    const mute = await connect(() => make(), { capabilities: {} })
    expect(textOf(await mute.request(...call('ask')))).toMatch(/elicitation/)
    const deaf = await connect(() => make(), { headers: { accept: 'application/json' } })
    expect(textOf(await deaf.request(...call('ask')))).toMatch(/text\/event-stream/)
  })

  it('B20 is handed over with a ping that carries the state', async () => {
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

  it('B8 F2 accepts a single-use turn once, and repeats the same reply', async () => {
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

  it('P14 F2 stores a journal that is too large for a state', async () => {
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

  it('B20 sends the client to another instance while this one shuts down', async () => {
    const leaving = make({ sessions: {} })
    let at = leaving
    const client = await connect(() => at)
    const turn = await client.request(...call('ask'))
    leaving.drain()
    expect(await client.answer(turn, [accept({ value: 'Ada' })])).toMatchObject({ status: 503 })
    at = make()
    expect(textOf(await client.answer(turn, [accept({ value: 'Ada' })]))).toBe('Hello Ada')
  })

  it('R9 ends at the limit on rounds', async () => {
    const client = await connect(() => make({ limits: { maxRounds: 1 } }))
    const turn = await client.request(...call('ask'))
    expect(errorOf(await client.answer(turn, [accept({ value: 'Ada' })]))).toMatchObject({ code: -32603 })
  })

  it('reports that the tool that asked no longer exists', async () => {
    let server = make()
    const client = await connect(() => server)
    const turn = await client.request(...call('ask'))
    server = createServer({ name: 'wire', version: '2', keys, log: 'off' })
    expect(errorOf(await client.answer(turn, [accept({ value: 'Ada' })]))).toMatchObject({
      message: expect.stringContaining('Start the call again'),
    })
  })

  it('returns an error for a malformed message of a turn, and keeps serving', async () => {
    const server = make()
    const client = await connect(() => server)
    expect(errorOf(await client.request(...call('nothing')))).toMatchObject({ code: -32602 })
    expect(errorOf(await client.request('tasks/list'))).toMatchObject({ code: -32601 })
    expect(await client.post([{ jsonrpc: '2.0', id: 1, method: 'ping' }])).toMatchObject({ status: 400 })
    expect(await client.post(7)).toMatchObject({ status: 400 })
    for (const method of ['GET', 'DELETE']) {
      const headers = { 'mcp-session-id': client.session ?? '', accept: 'text/event-stream' }
      const bare = await server.fetch(new Request(URL, { method, headers }))
      expect([bare.status, bare.headers.get('allow')]).toEqual([405, 'POST'])
    }
  })
})
