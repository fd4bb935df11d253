/** Who is asked in turns, and what is done for clients that do not bring states back. */

import { describe, expect, it } from 'vitest'
import { lastEventId, responsesTo } from '../support/turns-client.ts'
import {
  accept,
  call,
  connect,
  errorOf,
  make,
  questions,
  REFUSED,
  textOf,
  URL,
} from '../support/turns-wire.ts'

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
