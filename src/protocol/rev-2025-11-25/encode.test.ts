import { describe, expect, it } from 'vitest'
import { RondoError } from '../../errors.ts'
import type { InputRequest } from '../wire.ts'
import { encodeError, encodeReply, encodeRequest } from './encode.ts'

const parsed = (text: string): unknown => JSON.parse(text)

describe('encoding a reply for a session', () => {
  it('F1 leaves out what came later', () => {
    const result = {
      content: [],
      resultType: 'complete',
      ttlMs: 1,
      cacheScope: 'public',
      structuredContent: [1],
    }
    expect(parsed(encodeReply('a', { kind: 'complete', result }))).toEqual({
      jsonrpc: '2.0',
      id: 'a',
      result: { content: [] },
    })
    const structured = { kind: 'complete', result: { content: [], structuredContent: { a: 1 } } } as const
    expect(parsed(encodeReply(1, structured))).toMatchObject({ result: { structuredContent: { a: 1 } } })
  })

  it('sends text that was serialised before as it is', () => {
    expect(encodeReply(1, { kind: 'serialized', json: '{"tools":[]}' })).toBe(
      '{"jsonrpc":"2.0","id":1,"result":{"tools":[]}}',
    )
  })

  it('A6 never sends input_required, or what is no JSON', () => {
    const internal = { error: { code: -32603 } }
    expect(parsed(encodeReply(1, { kind: 'input_required', requestState: 'x' }))).toMatchObject(internal)
    expect(parsed(encodeReply(1, { kind: 'complete', result: { n: 1n } }))).toMatchObject(internal)
  })

  it.each([
    ['PEER_RESOURCE', -32002],
    ['PEER_PARAMS', -32602],
    ['PEER_METHOD', -32601],
    ['PEER_HEADER', -32602],
    ['PEER_CAPABILITY', -32602],
    ['PEER_VERSION', -32602],
    ['SERVER_INTERNAL', -32603],
  ] as const)('F1 gives %s a code of its time', (code, rpc) => {
    expect(parsed(encodeError(null, new RondoError(code)))).toMatchObject({ id: null, error: { code: rpc } })
  })
})

describe('encoding a question', () => {
  const form: InputRequest = {
    method: 'elicitation/create',
    params: { mode: 'form', message: 'm', requestedSchema: {} },
  }
  const url: InputRequest = {
    method: 'elicitation/create',
    params: { mode: 'url', message: 'm', url: 'https://example.com' },
  }

  it('F1 says the mode of a form where there are modes', () => {
    const at = (version: string): unknown => parsed(encodeRequest('ask-1', form, version, 'e'))
    expect(at('2025-11-25')).toEqual({ jsonrpc: '2.0', id: 'ask-1', ...form })
    expect(at('2025-06-18')).toEqual({
      jsonrpc: '2.0',
      id: 'ask-1',
      method: 'elicitation/create',
      params: { message: 'm', requestedSchema: {} },
    })
  })

  it('F1 gives a page to visit an id', () => {
    expect(parsed(encodeRequest('ask-1', url, '2025-11-25', 'e-7'))).toMatchObject({
      params: { mode: 'url', url: 'https://example.com', elicitationId: 'e-7' },
    })
  })

  it('sends sampling and roots as they are', () => {
    const params = { messages: [], maxTokens: 1, temperature: 0 }
    const sampling = encodeRequest('a', { method: 'sampling/createMessage', params }, '2025-11-25', 'e')
    expect(parsed(sampling)).toEqual({ jsonrpc: '2.0', id: 'a', method: 'sampling/createMessage', params })
    expect(parsed(encodeRequest('a', { method: 'roots/list' }, '2025-11-25', 'e'))).toEqual({
      jsonrpc: '2.0',
      id: 'a',
      method: 'roots/list',
    })
  })
})
