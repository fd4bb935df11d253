import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { Call } from '../call.ts'
import { encodeCancel } from '../common/json-rpc.ts'
import { encodeRequest } from './client.ts'
import { decode } from './decode.ts'

const envelope = {
  id: 7,
  protocolVersion: '2026-07-28',
  capabilities: { elicitation: { form: {} } },
  clientInfo: { name: 'c', version: '1' },
}
const meta = {
  'io.modelcontextprotocol/protocolVersion': '2026-07-28',
  'io.modelcontextprotocol/clientCapabilities': { elicitation: { form: {} } },
  'io.modelcontextprotocol/clientInfo': { name: 'c', version: '1' },
}

const cases: [string, Call, { method: string; params: object }][] = [
  [
    'a tool call',
    { ...envelope, kind: 'flow', method: 'tools/call', target: 't', args: { a: 1 } },
    { method: 'tools/call', params: { name: 't', arguments: { a: 1 }, _meta: meta } },
  ],
  [
    'a prompt',
    { ...envelope, kind: 'flow', method: 'prompts/get', target: 'p', args: {} },
    { method: 'prompts/get', params: { name: 'p', arguments: {}, _meta: meta } },
  ],
  [
    'a resource',
    { ...envelope, kind: 'flow', method: 'resources/read', target: 'a:b', args: {} },
    { method: 'resources/read', params: { uri: 'a:b', _meta: meta } },
  ],
  [
    'a later page, with an empty cursor',
    { ...envelope, kind: 'list', listing: 'templates', cursor: '' },
    { method: 'resources/templates/list', params: { cursor: '', _meta: meta } },
  ],
  ['discovery', { ...envelope, kind: 'discover' }, { method: 'server/discover', params: { _meta: meta } }],
  [
    'a completion',
    {
      ...envelope,
      kind: 'complete',
      ref: { kind: 'template', uri: 'a:{b}' },
      argument: { name: 'b', value: 'x' },
      context: { c: 'd' },
    },
    {
      method: 'completion/complete',
      params: {
        ref: { type: 'ref/resource', uri: 'a:{b}' },
        argument: { name: 'b', value: 'x' },
        context: { arguments: { c: 'd' } },
        _meta: meta,
      },
    },
  ],
  [
    'a subscription',
    { ...envelope, kind: 'listen', filter: { toolsListChanged: true } },
    { method: 'subscriptions/listen', params: { notifications: { toolsListChanged: true }, _meta: meta } },
  ],
]

describe('a request on the wire', () => {
  it.each(cases)('is right for %s', (_what, call, { method, params }) => {
    const { body, headers } = encodeRequest(call)
    expect(JSON.parse(body)).toEqual({ jsonrpc: '2.0', id: 7, method, params })
    expect(headers).toMatchObject({
      Accept: 'application/json, text/event-stream',
      'Content-Type': 'application/json',
      'MCP-Protocol-Version': '2026-07-28',
      'Mcp-Method': method,
    })
  })

  it('A5 has inputResponses and requestState beside the original parameters', () => {
    const { body } = encodeRequest({
      ...envelope,
      kind: 'flow',
      method: 'tools/call',
      target: 't',
      args: { a: 1 },
      inputResponses: { q: { action: 'decline' } },
      requestState: '',
    })
    expect(JSON.parse(body).params).toEqual({
      name: 't',
      arguments: { a: 1 },
      inputResponses: { q: { action: 'decline' } },
      requestState: '',
      _meta: meta,
    })
  })

  it('repeats the name and the mirrored arguments in headers', () => {
    const call: Call = {
      ...envelope,
      kind: 'flow',
      method: 'tools/call',
      target: 'tüte',
      args: { r: 'eu', n: 1 },
    }
    const { headers } = encodeRequest(call, [{ header: 'Region', path: ['r'] }])
    expect(headers).toMatchObject({ 'Mcp-Name': '=?base64?dMO8dGU=?=', 'Mcp-Param-Region': 'eu' })
    expect(encodeRequest({ ...envelope, kind: 'discover' }).headers).not.toHaveProperty('Mcp-Name')
  })

  it('carries the progress token, log level and trace of the request', () => {
    const { body } = encodeRequest({
      ...envelope,
      kind: 'discover',
      progressToken: 7,
      logLevel: 'info',
      trace: { traceparent: 'x' },
    })
    expect(JSON.parse(body).params._meta).toEqual({
      ...meta,
      'io.modelcontextprotocol/logLevel': 'info',
      progressToken: 7,
      traceparent: 'x',
    })
  })

  it('cancels by id', () => {
    expect(JSON.parse(encodeCancel(7))).toEqual({
      jsonrpc: '2.0',
      method: 'notifications/cancelled',
      params: { requestId: 7 },
    })
  })
})

describe('a request that the client encodes is decoded by the server', () => {
  const mirrored = [{ header: 'Region', path: ['region'] }]
  const reader = (headers: Readonly<Record<string, string>>) => {
    return Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]))
  }
  const dialect = { supportedVersions: ['2026-07-28'], paramHeaders: () => mirrored }

  it.each(cases)('for %s', (_what, call) => {
    const { body, headers } = encodeRequest(call)
    expect(decode(JSON.parse(body), reader(headers), dialect)).toMatchObject({ kind: 'call', call })
  })

  it('C2 for every name, argument, response and state', () => {
    const text = fc.string({ unit: 'binary' })
    const flow = fc.record({
      method: fc.constantFrom('tools/call' as const, 'prompts/get' as const),
      target: fc.string({ unit: 'binary', minLength: 1, maxLength: 40 }),
      region: text,
      other: text,
      requestState: fc.string({ unit: 'binary', maxLength: 200 }),
      answer: text,
    })
    fc.assert(
      fc.property(flow, ({ method, target, region, other, requestState, answer }) => {
        const args = { region, other }
        const inputResponses = { a: { action: 'accept', content: { answer } } }
        const call: Call = { ...envelope, kind: 'flow', method, target, args, requestState, inputResponses }
        const { body, headers } = encodeRequest(call, method === 'tools/call' ? mirrored : [])
        expect(decode(JSON.parse(body), reader(headers), dialect)).toMatchObject({ kind: 'call', call })
      }),
    )
  })
})
