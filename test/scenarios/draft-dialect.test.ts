/** The wire format of `DRAFT-2026-v1`, where it differs, and its negotiation. */

import { describe, expect, it } from 'vitest'
import { declaring, postDraft } from '../support/draft-client.ts'
import { connectOlder } from '../support/older-client.ts'
import { call, getWeather, githubLogin, REPORT, stateOf, weather } from '../support/weather.ts'

describe('DRAFT-2026-v1', () => {
  const other = (method: string, params: object = {}) => ({ jsonrpc: '2.0', id: 1, method, params })

  it.each([
    ['ping', {}],
    ['tools/list', {}],
    ['prompts/list', {}],
    ['resources/list', {}],
    ['resources/templates/list', {}],
    [
      'completion/complete',
      { ref: { type: 'ref/prompt', name: 'brief' }, argument: { name: 'x', value: '' } },
    ],
    ['logging/setLevel', { level: 'info' }],
    ['prompts/get', { name: 'brief' }],
    ['resources/read', { uri: 'notes://today' }],
  ])(
    'A4 A6 %s returns a complete result, whatever responses and state the request carries',
    async (method, params) => {
      const more =
        method.endsWith('/get') || method.endsWith('/read') ? {} : { inputResponses: 7, requestState: 7 }
      const { message } = await postDraft(weather(), other(method, { ...params, ...more }))
      expect(message).toMatchObject({ id: 1, result: { resultType: 'complete' } })
      expect(message.result).not.toHaveProperty('ttlMs')
      expect(message.result).not.toHaveProperty('_meta')
    },
  )

  it('B4 B7 refuses an altered state, and one of another call', async () => {
    const asked = await postDraft(weather(), getWeather(1))
    const state = stateOf(asked.message)
    const refused = { error: { code: -32602, message: 'Invalid or expired requestState' } }
    const changed = await postDraft(weather(), getWeather(2, { requestState: `${state}x` }))
    expect(changed.message).toMatchObject(refused)
    const moved = call(3, 'get_weather', { location: 'Paris' }, { requestState: state })
    expect((await postDraft(weather(), moved)).message).toMatchObject(refused)
  })

  it('R1 refuses a state of the draft in another revision', async () => {
    const asked = await postDraft(weather(), getWeather(1))
    const modern = getWeather(2, { requestState: stateOf(asked.message) })
    const claim = { 'io.modelcontextprotocol/protocolVersion': '2026-07-28' }
    const _meta = { ...(modern.params as { _meta?: object })._meta, ...claim }
    const headers = {
      'mcp-protocol-version': '2026-07-28',
      'mcp-method': 'tools/call',
      'mcp-name': 'get_weather',
    }
    const sent = { ...modern, params: { ...modern.params, _meta } }
    const { message } = await postDraft(weather(), sent, headers)
    expect(message).toMatchObject({ error: { code: -32602, message: 'Invalid or expired requestState' } })
  })

  it('B10 tells a client without capabilities in a result what it would have to declare', async () => {
    const silent = {
      jsonrpc: '2.0',
      id: 1,
      method: 'tools/call',
      params: { name: 'get_weather', arguments: { location: 'x' } },
    }
    const { message } = await postDraft(weather(), silent)
    expect(message).toMatchObject({ result: { resultType: 'complete', isError: true } })
    expect(JSON.stringify(message)).toContain('elicitation.form')
  })

  it('takes capabilities from initialize, unless a request declares others', async () => {
    const server = weather()
    const { url } = await server.listen({ port: 0, signals: false })
    const client = await connectOlder(url, { version: 'DRAFT-2026-v1', capabilities: { elicitation: {} } })
    const params = { name: 'get_weather', arguments: { location: 'New York' } }
    expect(client.initialized).toMatchObject({
      result: { resultType: 'complete', protocolVersion: 'DRAFT-2026-v1' },
    })
    expect((await client.call('tools/call', params)).result).toMatchObject({ inputRequests: githubLogin })
    const less = declaring({ params }, { sampling: {} })
    expect((await client.call('tools/call', less.params)).result).toMatchObject({ isError: true })
    await server.close()
  })

  it('F1 pushes the question if the header of a request names 2025-11-25, in the same session', async () => {
    const server = weather()
    const { url } = await server.listen({ port: 0, signals: false })
    const client = await connectOlder(url, { version: 'DRAFT-2026-v1', capabilities: { elicitation: {} } })
    const message = getWeather(50)
    const stream = await client.post(message, { 'mcp-protocol-version': '2025-11-25' })
    const question = await stream.next()
    expect(question).toMatchObject({ method: 'elicitation/create' })
    await client.respond(question?.id, { action: 'accept', content: { name: 'octocat' } })
    const done = await stream.next()
    expect(done).toMatchObject({ id: 50, result: { content: [{ text: REPORT }] } })
    expect(done?.result).not.toHaveProperty('resultType')
    await server.close()
  })
})
