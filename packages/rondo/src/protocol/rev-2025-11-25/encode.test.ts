import { describe, expect, it } from 'vitest'
import { RondoError } from '../../errors.ts'
import type { OlderReply } from '../reply.ts'
import type { InputRequest } from '../wire.ts'
import { encodeError, encodeReply, encodeRequest } from './encode.ts'

interface Parsed {
  readonly result: Record<string, unknown>
  readonly params: { readonly requestedSchema: { readonly properties: unknown } }
}

const parsed = (text: string): unknown => JSON.parse(text)

describe('encoding a reply for a session', () => {
  it('F1 leaves out later fields', () => {
    const result = {
      content: [],
      resultType: 'complete',
      ttlMs: 1,
      cacheScope: 'public',
      structuredContent: [1],
    }
    expect(parsed(encodeReply('a', { kind: 'complete', result }, '2025-11-25'))).toEqual({
      jsonrpc: '2.0',
      id: 'a',
      result: { content: [] },
    })
    const structured = { kind: 'complete', result: { content: [], structuredContent: { a: 1 } } } as const
    expect(parsed(encodeReply(1, structured, '2025-11-25'))).toMatchObject({
      result: { structuredContent: { a: 1 } },
    })
  })

  it('serializes a result that many calls share once', () => {
    const result: Record<string, unknown> = { tools: [] }
    const text = '{"jsonrpc":"2.0","id":1,"result":{"tools":[]}}'
    expect(encodeReply(1, { kind: 'cacheable', result }, '2025-11-25')).toBe(text)
    result.tools = [1]
    expect(encodeReply(1, { kind: 'cacheable', result }, '2025-11-25')).toBe(text)
  })

  it('A6 never sends input_required, nor a result that is not JSON', () => {
    const internal = { error: { code: -32603 } }
    const at = (reply: OlderReply): unknown => parsed(encodeReply(1, reply, '2025-11-25'))
    expect(at({ kind: 'input_required', requestState: 'x' })).toMatchObject(internal)
    expect(at({ kind: 'complete', result: { n: 1n } })).toMatchObject(internal)
  })

  describe('F1 content that a revision lacks becomes text', () => {
    const text = { type: 'text', text: 'a' }
    const audio = { type: 'audio', data: 'AAAA', mimeType: 'audio/wav', annotations: { priority: 1 } }
    const link = { type: 'resource_link', uri: 'file:///a', name: 'a', title: 'An A', mimeType: 'text/plain' }
    const contentAt = (version: string, content: unknown[]): unknown =>
      (parsed(encodeReply(1, { kind: 'complete', result: { content } }, version)) as Parsed).result.content

    it.each([
      ['2024-11-05', ['text', 'text', 'text']],
      ['2025-03-26', ['text', 'audio', 'text']],
      ['2025-06-18', ['text', 'audio', 'resource_link']],
      ['2025-11-25', ['text', 'audio', 'resource_link']],
    ])('in a tool result at %s', (version, types) => {
      const given = [text, audio, link]
      const content = contentAt(version, given) as { type: string; text: string }[]
      expect(content.map(({ type }) => type)).toEqual(types)
      content.forEach((block, i) => {
        if (block.type === given[i]?.type) expect(block).toEqual(given[i])
      })
    })

    it('and says what was left out, for which revision, and where to find it', () => {
      expect(contentAt('2024-11-05', [audio, link])).toEqual([
        {
          type: 'text',
          text: '[Audio (audio/wav) was left out: protocol revision 2024-11-05 has no audio content.]',
          annotations: { priority: 1 },
        },
        { type: 'text', text: 'Resource "An A" (text/plain): file:///a' },
      ])
    })

    it('in a prompt and in a sampling request too', () => {
      const messages = [{ role: 'user', content: audio }]
      const prompt = encodeReply(1, { kind: 'complete', result: { messages } }, '2024-11-05')
      expect(parsed(prompt)).toMatchObject({ result: { messages: [{ content: { type: 'text' } }] } })
      const params = { messages, maxTokens: 1 }
      const sampling = encodeRequest('a', { method: 'sampling/createMessage', params }, '2024-11-05', 'e')
      expect(parsed(sampling)).toMatchObject({ params: { messages: [{ content: { type: 'text' } }] } })
    })
  })

  it.each([
    ['PEER_RESOURCE', -32002],
    ['PEER_PARAMS', -32602],
    ['PEER_METHOD', -32601],
    ['PEER_HEADER', -32602],
    ['PEER_CAPABILITY', -32602],
    ['PEER_VERSION', -32602],
    ['SERVER_INTERNAL', -32603],
  ] as const)('F1 sends %s with a code of the revision', (code, rpc) => {
    expect(parsed(encodeError(null, new RondoError(code)))).toMatchObject({ id: null, error: { code: rpc } })
  })
})

describe('encoding an input request', () => {
  const form: InputRequest = {
    method: 'elicitation/create',
    params: { mode: 'form', message: 'm', requestedSchema: {} },
  }
  const url: InputRequest = {
    method: 'elicitation/create',
    params: { mode: 'url', message: 'm', url: 'https://example.com' },
  }

  it('F1 names the mode of a form if the revision has modes', () => {
    const at = (version: string): unknown => parsed(encodeRequest('ask-1', form, version, 'e'))
    expect(at('2025-11-25')).toEqual({ jsonrpc: '2.0', id: 'ask-1', ...form })
    expect(at('2025-06-18')).toEqual({
      jsonrpc: '2.0',
      id: 'ask-1',
      method: 'elicitation/create',
      params: { message: 'm', requestedSchema: {} },
    })
  })

  it('F1 adds an id to a URL', () => {
    expect(parsed(encodeRequest('ask-1', url, '2025-11-25', 'e-7'))).toMatchObject({
      params: { mode: 'url', url: 'https://example.com', elicitationId: 'e-7' },
    })
  })

  it('sends sampling and roots unchanged', () => {
    const params = { messages: [], maxTokens: 1, temperature: 0 }
    const sampling = encodeRequest('a', { method: 'sampling/createMessage', params }, '2025-11-25', 'e')
    expect(parsed(sampling)).toEqual({ jsonrpc: '2.0', id: 'a', method: 'sampling/createMessage', params })
    expect(parsed(encodeRequest('a', { method: 'roots/list' }, '2025-11-25', 'e'))).toEqual({
      jsonrpc: '2.0',
      id: 'a',
      method: 'roots/list',
    })
  })

  describe('F1 writes choices in the form that the revision defines', () => {
    const oneOf = [
      { const: 'r', title: 'Red' },
      { const: 'g', title: 'Green' },
    ]
    const properties = {
      plain: { type: 'string', enum: ['a', 'b'] },
      titled: { type: 'string', title: 'Colour', oneOf, default: 'g' },
      several: { type: 'array', title: 'Colours', items: { anyOf: oneOf }, minItems: 1, default: ['r', 'g'] },
      letters: { type: 'array', description: 'Letters', items: { type: 'string', enum: ['a', 'b'] } },
    }
    const fieldsAt = (version: string): unknown => {
      const requestedSchema = { type: 'object', properties, required: ['titled'] }
      const request: InputRequest = {
        method: 'elicitation/create',
        params: { mode: 'form', message: 'm', requestedSchema },
      }
      const { params } = parsed(encodeRequest('ask-1', request, version, 'e')) as Parsed
      expect(params.requestedSchema).toMatchObject({ type: 'object', required: ['titled'] })
      return params.requestedSchema.properties
    }

    it('oneOf and lists at 2025-11-25', () => {
      expect(fieldsAt('2025-11-25')).toEqual(properties)
    })

    it('enum with enumNames and a description that lists the titles, and typed lists, at 2025-06-18', () => {
      expect(fieldsAt('2025-06-18')).toEqual({
        plain: { type: 'string', enum: ['a', 'b'] },
        titled: {
          type: 'string',
          title: 'Colour',
          description: 'One of r (Red), g (Green)',
          enum: ['r', 'g'],
          enumNames: ['Red', 'Green'],
          default: 'g',
        },
        several: {
          type: 'string',
          title: 'Colours',
          description: 'Any of these, separated by commas: r (Red), g (Green)',
          default: 'r, g',
        },
        letters: { type: 'string', description: 'Letters. Any of these, separated by commas: a, b' },
      })
    })
  })
})
