import { describe, expect, it } from 'vitest'
import type { Call } from '../call.ts'
import { decodeResponse } from './client.ts'

const envelope = { id: 1, protocolVersion: '2026-07-28', capabilities: {} }
const call: Call = { ...envelope, kind: 'flow', method: 'tools/call', target: 't', args: {} }
const list: Call = { ...envelope, kind: 'list', listing: 'tools' }
const result = (value: object) => ({ jsonrpc: '2.0', id: 1, result: value })
const form = { message: 'm', requestedSchema: { type: 'object' } }
const asks = (inputRequests: unknown) => result({ resultType: 'input_required', inputRequests })

describe('a response', () => {
  it.each([
    ['complete', { resultType: 'complete', content: [], extra: 1 }],
    ['complete, said by saying nothing', { content: [], extra: 1 }],
  ])('A4 is %s', (_what, value) => {
    expect(decodeResponse(call, result(value))).toEqual({
      kind: 'complete',
      result: { content: [], extra: 1 },
    })
  })

  it('A1 A3 asks for input', () => {
    const inputRequests = {
      a: { method: 'elicitation/create', params: form },
      b: { method: 'elicitation/create', params: { mode: 'url', message: 'm', url: 'https://a.b' } },
      c: { method: 'sampling/createMessage', params: { messages: [], maxTokens: 5, temperature: 1 } },
      d: { method: 'roots/list' },
    }
    const received = decodeResponse(
      call,
      result({ resultType: 'input_required', inputRequests, requestState: 's' }),
    )
    expect(received).toEqual({
      kind: 'input_required',
      state: 's',
      questions: {
        ...inputRequests,
        a: { method: 'elicitation/create', params: { ...form, mode: 'form' } },
      },
    })
  })

  it('A3 asks for a retry with a state alone, which may be empty', () => {
    const value = { resultType: 'input_required', requestState: '' }
    expect(decodeResponse(call, result(value))).toEqual({ kind: 'input_required', state: '', questions: {} })
  })

  it('is an error', () => {
    const error = { code: -32602, message: 'no', data: { a: 1 } }
    expect(decodeResponse(call, { jsonrpc: '2.0', id: 1, error })).toEqual({ kind: 'error', error })
  })

  it.each([
    ['no message', 'x'],
    ['no JSON-RPC', { id: 1, result: { content: [] } }],
    ['neither result nor error', { jsonrpc: '2.0', id: 1 }],
    ['an error without a code', { jsonrpc: '2.0', id: 1, error: { message: 'x' } }],
    ['an error with a broken code', { jsonrpc: '2.0', id: 1, error: { code: 1.5, message: 'x' } }],
    ['a type nobody knows', result({ resultType: 'chore', content: [] })],
    ['a type that is no string', result({ resultType: 1, content: [] })],
    ['no content', result({ resultType: 'complete' })],
    ['content that is no list of objects', result({ content: ['x'] })],
    ['neither questions nor state (A3)', result({ resultType: 'input_required' })],
    ['no questions and no state (A3)', asks({})],
    ['a state that is no string (A3)', result({ resultType: 'input_required', requestState: {} })],
    ['questions that are a list (A1)', asks([])],
    ['a question of another kind (A1)', asks({ a: { method: 'ping', params: {} } })],
    ['a question that is none (A1)', asks({ a: null })],
    ['a form without a schema', asks({ a: { method: 'elicitation/create', params: { message: 'm' } } })],
    [
      'a form without a message',
      asks({ a: { method: 'elicitation/create', params: { requestedSchema: {} } } }),
    ],
    [
      'a URL without a URL',
      asks({ a: { method: 'elicitation/create', params: { mode: 'url', message: 'm' } } }),
    ],
    ['a mode nobody knows', asks({ a: { method: 'elicitation/create', params: { ...form, mode: 'x' } } })],
    ['sampling without a bound', asks({ a: { method: 'sampling/createMessage', params: { messages: [] } } })],
    ['roots with broken parameters', asks({ a: { method: 'roots/list', params: [] } })],
    ['a key that changes prototypes (T9)', asks(JSON.parse('{"__proto__":{"method":"roots/list"}}'))],
  ])('is not valid with %s', (_what, message) => {
    expect(decodeResponse(call, message)).toMatchObject({ kind: 'invalid' })
  })

  it('A6 may ask for input only in response to calls, prompts and resources', () => {
    const value = { resultType: 'input_required', requestState: 's' }
    expect(decodeResponse(list, result(value))).toMatchObject({ kind: 'invalid' })
    expect(decodeResponse({ ...envelope, kind: 'discover' }, result(value))).toMatchObject({
      kind: 'invalid',
    })
    for (const method of ['prompts/get', 'resources/read'] as const) {
      expect(decodeResponse({ ...call, method }, result(value))).toMatchObject({ kind: 'input_required' })
    }
  })
})
