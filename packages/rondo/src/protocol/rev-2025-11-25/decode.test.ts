import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { decode } from './decode.ts'

const peer = {
  protocolVersion: '2025-11-25',
  capabilities: { elicitation: {}, extensions: { 'io.modelcontextprotocol/tasks': {} } },
  clientInfo: { name: 'c', version: '1' },
  logLevel: 'warning',
} as const

const request = (method: string, params?: unknown, id: unknown = 1) => ({
  jsonrpc: '2.0',
  id,
  method,
  params,
})

function read(message: unknown): unknown {
  const decoded = decode(message, peer)
  return decoded.kind === 'refused' ? decoded.error.code : decoded
}

describe('decoding a message of a session', () => {
  it('takes the client from its session, and progress and traces from the request', () => {
    const _meta = { progressToken: 'p', traceparent: 't', other: 1 }
    expect(read(request('tools/list', { cursor: 'p1', _meta }))).toEqual({
      kind: 'call',
      call: {
        kind: 'list',
        listing: 'tools',
        cursor: 'p1',
        id: 1,
        protocolVersion: '2025-11-25',
        capabilities: { elicitation: {} },
        clientInfo: { name: 'c', version: '1' },
        logLevel: 'warning',
        progressToken: 'p',
        trace: { traceparent: 't' },
        meta: _meta,
      },
    })
  })

  it('has no rounds: inputResponses and requestState are ignored', () => {
    const params = { name: 't', arguments: { a: 1 }, inputResponses: 7, requestState: 7 }
    expect(read(request('tools/call', params))).toMatchObject({
      call: { kind: 'flow', target: 't', args: { a: 1 }, inputResponses: undefined, requestState: undefined },
    })
  })

  it.each([
    ['tools/call', { name: 'x' }, { kind: 'flow', method: 'tools/call', target: 'x' }],
    ['prompts/get', { name: 'x' }, { kind: 'flow', method: 'prompts/get', target: 'x' }],
    ['resources/read', { uri: 'a:b' }, { kind: 'flow', method: 'resources/read', target: 'a:b' }],
    ['prompts/list', undefined, { kind: 'list', listing: 'prompts' }],
    ['resources/list', undefined, { kind: 'list', listing: 'resources' }],
    ['resources/templates/list', undefined, { kind: 'list', listing: 'templates' }],
    [
      'completion/complete',
      { ref: { type: 'ref/prompt', name: 'p' }, argument: { name: 'a', value: 'v' } },
      { kind: 'complete', ref: { kind: 'prompt', name: 'p' } },
    ],
  ])('reads %s', (method, params, call) => {
    expect(read(request(method, params))).toMatchObject({ kind: 'call', call })
  })

  it.each([
    ['ping', undefined, { kind: 'ping', id: 1 }],
    ['logging/setLevel', { level: 'debug' }, { kind: 'level', id: 1, level: 'debug' }],
    ['resources/subscribe', { uri: 'a:b' }, { kind: 'watch', id: 1, uri: 'a:b' }],
    ['resources/unsubscribe', { uri: 'a:b' }, { kind: 'unwatch', id: 1, uri: 'a:b' }],
    [
      'initialize',
      { protocolVersion: 'x', capabilities: { roots: {} }, clientInfo: { name: 'n', title: 't' } },
      {
        kind: 'initialize',
        id: 1,
        requested: 'x',
        capabilities: { roots: {} },
        clientInfo: { name: 'n', version: '', title: 't' },
      },
    ],
    ['initialize', { protocolVersion: 'x' }, { kind: 'initialize', id: 1, requested: 'x', capabilities: {} }],
  ])('reads %s of the session itself', (method, params, call) => {
    expect(read(request(method, params))).toEqual({ kind: 'session', call })
  })

  it.each([
    ['no object', 7, 'PEER_REQUEST'],
    ['another JSON-RPC', { ...request('ping'), jsonrpc: '1.0' }, 'PEER_REQUEST'],
    ['a method that is no string', { ...request('ping'), method: 7 }, 'PEER_REQUEST'],
    ['params that are a list', request('ping', []), 'PEER_REQUEST'],
    ['an id that is none', request('ping', {}, null), 'PEER_REQUEST'],
    ['an id with a fraction', request('ping', {}, 1.5), 'PEER_REQUEST'],
    ['a tool without a name', request('tools/call', {}), 'PEER_PARAMS'],
    ['a level that is none', request('logging/setLevel', { level: 'loud' }), 'PEER_PARAMS'],
    ['a watch of nothing', request('resources/subscribe', {}), 'PEER_PARAMS'],
    ['no version', request('initialize', { capabilities: {} }), 'PEER_PARAMS'],
    ['no capabilities', request('initialize', { protocolVersion: 'x', capabilities: 7 }), 'PEER_PARAMS'],
  ])('refuses %s', (_, message, code) => {
    expect(read(message)).toBe(code)
  })

  it('leaves a method that this revision does not define to the service', () => {
    expect(read(request('server/discover', { a: 1 }))).toMatchObject({
      call: { kind: 'custom', id: 1, method: 'server/discover', args: { a: 1 } },
    })
  })

  it('reads a response, and refuses anything but a result object', () => {
    const answer = (body: object): unknown => read({ jsonrpc: '2.0', id: 'ask-1', ...body })
    expect(answer({ result: { action: 'accept' } })).toEqual({
      kind: 'answer',
      id: 'ask-1',
      answer: { kind: 'result', result: { action: 'accept' } },
    })
    expect(answer({ error: { code: -1, message: 'no' } })).toMatchObject({
      answer: { kind: 'error', code: -1, message: 'no' },
    })
    for (const body of [
      {},
      { result: 7 },
      { result: [] },
      { error: {} },
      { result: { a: 'x'.repeat(70_000) } },
    ]) {
      expect(answer(body)).toMatchObject({ kind: 'answer', answer: { kind: 'error' } })
    }
  })

  it('reads a notification', () => {
    expect(read({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 1 } })).toEqual({
      kind: 'notification',
      method: 'notifications/cancelled',
      params: { requestId: 1 },
    })
  })

  it('never throws, whatever the message', () => {
    fc.assert(
      fc.property(fc.jsonValue(), fc.jsonValue(), fc.jsonValue(), (id, method, params) => {
        for (const message of [
          params,
          { jsonrpc: '2.0', id, method, params },
          request('tools/call', params, id),
        ]) {
          expect(['call', 'session', 'notification', 'answer', 'refused']).toContain(
            decode(message, peer).kind,
          )
        }
      }),
    )
  })
})
