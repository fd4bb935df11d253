import { describe, expect, it } from 'vitest'
import { callTool, request, VERSION } from '../../../../../test/support/echo-service.ts'
import type { RequestHeaders } from '../common/headers.ts'
import { decode } from './decode.ts'

const dialect = { supportedVersions: [VERSION], paramHeaders: () => [] }

function reader(headers: Record<string, string>): RequestHeaders {
  return headers
}

/** The outcome of `decode` for a request that is valid but for `changes` to its message. */
function refused(message: unknown, headers?: Record<string, string>) {
  const decoded = decode(message, headers && reader(headers), dialect)
  if (decoded.kind !== 'refused') throw new Error(`not refused: ${decoded.kind}`)
  return { id: decoded.id, code: decoded.error.code, rpc: decoded.error.rpc, http: decoded.error.http }
}

function decodedCall(message: unknown, headers?: Record<string, string>) {
  const decoded = decode(message, headers && reader(headers), dialect)
  if (decoded.kind !== 'call') throw decoded.kind === 'refused' ? decoded.error : new Error(decoded.kind)
  return decoded.call
}

function meta(changes: Record<string, unknown>) {
  return request('server/discover', { _meta: changes }, 1).message
}

describe('JSON-RPC shape', () => {
  const good = request('server/discover', {}, 1).message

  it.each([
    ['a string', 'hello', null],
    ['null', null, null],
    ['a batch', [good], null],
    ['an empty batch', [], null],
    ['no version', { ...good, jsonrpc: undefined }, 1],
    ['another version', { ...good, jsonrpc: '1.0' }, 1],
    ['a null id', { ...good, id: null }, null],
    ['a fraction as id', { ...good, id: 1.5 }, null],
    ['an id past the safe integers', { ...good, id: 2 ** 60 }, null],
    ['an object as id', { ...good, id: {} }, null],
    ['no method', { ...good, method: undefined }, 1],
    ['a posted response', { jsonrpc: '2.0', id: 1, result: {} }, 1],
    ['a posted error', { jsonrpc: '2.0', id: 'x', error: { code: 1, message: '' } }, 'x'],
    ['params in an array', { ...good, params: [1] }, 1],
    ['params as a number', { ...good, params: 1 }, 1],
  ])('refuses %s', (_, message, id) => {
    expect(refused(message)).toEqual({ id, code: 'PEER_REQUEST', rpc: -32600, http: 400 })
  })

  it.each([0, -1, 'a', '', 'x'.repeat(1000)])('accepts %j as an id and returns it', (id) => {
    expect(decodedCall({ ...good, id }).id).toBe(id)
  })

  it('reads a message without an id as a notification', () => {
    expect(
      decode(
        { jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 1 } },
        undefined,
        dialect,
      ),
    ).toEqual({ kind: 'notification', method: 'notifications/cancelled', params: { requestId: 1 } })
  })
})

describe('version and _meta', () => {
  it('reads every field of the envelope', () => {
    const call = decodedCall(
      meta({
        'io.modelcontextprotocol/clientCapabilities': { elicitation: { form: {} } },
        'io.modelcontextprotocol/clientInfo': { name: 'c', version: '1' },
        'io.modelcontextprotocol/logLevel': 'warning',
        progressToken: 0,
        traceparent: '00-aa-bb-01',
        baggage: 'k=v',
      }),
    )
    expect(call).toMatchObject({
      kind: 'discover',
      id: 1,
      meta: { baggage: 'k=v', progressToken: 0 },
      protocolVersion: VERSION,
      capabilities: { elicitation: { form: {} } },
      clientInfo: { name: 'c', version: '1' },
      logLevel: 'warning',
      progressToken: 0,
      trace: { traceparent: '00-aa-bb-01', baggage: 'k=v' },
    })
  })

  it('accepts a request without clientInfo', () => {
    expect(decodedCall(meta({})).clientInfo).toBeUndefined()
  })

  it.each([
    ['no params', { ...meta({}), params: undefined }],
    ['no _meta', { ...meta({}), params: {} }],
    ['a _meta that is no object', { ...meta({}), params: { _meta: 1 } }],
    ['no version', meta({ 'io.modelcontextprotocol/protocolVersion': undefined })],
    ['a version that is no string', meta({ 'io.modelcontextprotocol/protocolVersion': 3 })],
    ['no capabilities', meta({ 'io.modelcontextprotocol/clientCapabilities': undefined })],
    ['capabilities in an array', meta({ 'io.modelcontextprotocol/clientCapabilities': [] })],
    ['an unknown log level', meta({ 'io.modelcontextprotocol/logLevel': 'loud' })],
    ['client info without a name', meta({ 'io.modelcontextprotocol/clientInfo': { version: '1' } })],
    ['an object as progress token', meta({ progressToken: {} })],
  ])('refuses %s', (_, message) => {
    expect(refused(message)).toEqual({ id: 1, code: 'PEER_META', rpc: -32602, http: 400 })
  })

  it('refuses an unknown version and names those it serves', () => {
    const decoded = decode(
      meta({ 'io.modelcontextprotocol/protocolVersion': 'v999.0.0' }),
      undefined,
      dialect,
    )
    expect(decoded).toMatchObject({
      kind: 'refused',
      id: 1,
      error: { code: 'PEER_VERSION', data: { supported: [VERSION], requested: 'v999.0.0' } },
    })
  })

  const initialize = {
    jsonrpc: '2.0',
    id: 1,
    method: 'initialize',
    params: { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'old', version: '1' } },
  }

  it('refuses the first request of an older client and names the versions it serves', () => {
    const decoded = decode(initialize, reader({}), dialect)
    expect(decoded).toMatchObject({
      error: { code: 'PEER_VERSION', data: { supported: [VERSION], requested: '2025-11-25' } },
    })
  })

  it('does the same if only the header has an older version', () => {
    const older = { jsonrpc: '2.0', id: 1, method: 'tools/list' }
    expect(refused(older, { 'mcp-protocol-version': '2025-06-18' }).code).toBe('PEER_VERSION')
    expect(refused(older, { 'mcp-protocol-version': VERSION }).code).toBe('PEER_META')
  })

  it('refuses initialize under a header of this version', () => {
    expect(refused(initialize, { 'mcp-protocol-version': VERSION }).code).toBe('PEER_HEADER')
  })
})

describe('methods', () => {
  it.each([
    'initialize',
    'ping',
    'logging/setLevel',
    'resources/subscribe',
    'resources/unsubscribe',
    'tasks/result',
    'tasks/list',
    'unknown/method',
    'toString',
    '',
  ])('leaves the method %j, which this revision does not define, to the service', (method) => {
    const { message, headers } = request(method, { a: 1 }, 9)
    expect(decodedCall(message, headers)).toMatchObject({ kind: 'custom', id: 9, method, args: { a: 1 } })
  })

  it.each([
    ['tools/list', 'tools'],
    ['prompts/list', 'prompts'],
    ['resources/list', 'resources'],
    ['resources/templates/list', 'templates'],
  ])('reads %s with its cursor, also an empty one', (method, listing) => {
    expect(decodedCall(request(method).message)).toMatchObject({ kind: 'list', listing })
    expect(decodedCall(request(method, { cursor: '' }).message)).toMatchObject({ cursor: '' })
  })

  it('reads a completion', () => {
    const ref = { type: 'ref/resource', uri: 'test://{id}' }
    const message = request('completion/complete', {
      ref,
      argument: { name: 'id', value: '1' },
      context: { arguments: { a: 'b' } },
    }).message
    expect(decodedCall(message)).toMatchObject({
      kind: 'complete',
      ref: { kind: 'template', uri: 'test://{id}' },
      argument: { name: 'id', value: '1' },
      context: { a: 'b' },
    })
  })

  it('reads a subscription', () => {
    const filter = { toolsListChanged: true, resourceSubscriptions: ['a://b'] }
    expect(decodedCall(request('subscriptions/listen', { notifications: filter }).message)).toMatchObject({
      kind: 'listen',
      filter,
    })
  })

  it.each([
    ['tools/list', { cursor: 1 }],
    ['tools/call', { arguments: {} }],
    ['tools/call', { name: 7 }],
    ['tools/call', { name: 'a', arguments: [] }],
    ['tools/call', { name: 'a', arguments: 'x' }],
    ['prompts/get', { name: 'a', arguments: { b: 1 } }],
    ['resources/read', { name: 'a' }],
    ['completion/complete', {}],
    ['completion/complete', { ref: { type: 'ref/other' }, argument: { name: 'a', value: 'b' } }],
    ['completion/complete', { ref: { type: 'ref/prompt' }, argument: { name: 'a', value: 'b' } }],
    ['completion/complete', { ref: { type: 'ref/prompt', name: 'p' }, argument: { name: 'a', value: 1 } }],
    ['subscriptions/listen', {}],
    ['subscriptions/listen', { notifications: { toolsListChanged: 'yes' } }],
    ['subscriptions/listen', { notifications: { resourceSubscriptions: [1] } }],
  ])('refuses %s with %j', (method, params) => {
    expect(refused(request(method, params, 3).message)).toEqual({
      id: 3,
      code: 'PEER_PARAMS',
      rpc: -32602,
      http: 200,
    })
  })
})

describe('rounds', () => {
  it('A5 reads inputResponses and requestState beside the original parameters', () => {
    const call = decodedCall(
      callTool('t', { a: 1 }, { inputResponses: { k: { action: 'accept' } }, requestState: 's' }).message,
    )
    expect(call).toMatchObject({ kind: 'flow', method: 'tools/call', target: 't', args: { a: 1 } })
    expect(call).toMatchObject({ inputResponses: { k: { action: 'accept' } }, requestState: 's' })
  })

  it('A6 reads inputResponses and requestState on calls, prompts and resources only', () => {
    const round = { inputResponses: { k: {} }, requestState: 's' }
    const flows = [
      decodedCall(request('tools/call', { name: 'a', ...round }).message),
      decodedCall(request('prompts/get', { name: 'a', ...round }).message),
      decodedCall(request('resources/read', { uri: 'a:b', ...round }).message),
    ]
    for (const call of flows) expect(call).toMatchObject({ requestState: 's', inputResponses: { k: {} } })
    const others = ['server/discover', 'tools/list', 'prompts/list', 'resources/list']
    for (const method of others) {
      expect(decodedCall(request(method, round).message)).not.toHaveProperty('requestState')
      expect(decodedCall(request(method, round).message)).not.toHaveProperty('inputResponses')
    }
  })

  it.each([
    [null],
    [[]],
    [[{}]],
    ['x'],
    [1],
    [true],
    [{ k: null }],
    [{ k: 12345 }],
    [{ k: [] }],
    [{ k: 'x' }],
  ])('B14 refuses %j as inputResponses', (inputResponses) => {
    const { message } = request('tools/call', { name: 'a', inputResponses }, 4)
    expect(refused(message)).toEqual({ id: 4, code: 'INPUT_MALFORMED', rpc: -32602, http: 200 })
  })

  it.each([[null], [1], [{}], [[]], [false]])('refuses %j as requestState', (requestState) => {
    const { message } = request('tools/call', { name: 'a', requestState }, 4)
    expect(refused(message)).toEqual({ id: 4, code: 'STATE_INVALID', rpc: -32602, http: 200 })
  })

  it('T9 keeps responses in a map without a prototype', () => {
    const params = JSON.parse('{"name":"a","inputResponses":{"__proto__":{"action":"accept"}}}')
    const { message } = request('tools/call', params)
    const call = decodedCall(message)
    if (call.kind !== 'flow' || !call.inputResponses) throw new Error('no answers')
    expect(Object.getPrototypeOf(call.inputResponses)).toBeNull()
    expect(call.inputResponses.toString).toBeUndefined()
    expect(call.inputResponses.action).toBeUndefined()
    expect(Object.keys(call.inputResponses)).toEqual(['__proto__'])
  })

  it('T7 refuses more responses than a server asks for at once', () => {
    const many = (count: number) =>
      Object.fromEntries(Array.from({ length: count }, (_, i) => [`k${i}`, { action: 'decline' }]))
    expect(refused(callTool('a', {}, { inputResponses: many(129) }).message).code).toBe('INPUT_MALFORMED')
    expect(decodedCall(callTool('a', {}, { inputResponses: many(128) }).message).kind).toBe('flow')
  })

  it.each([
    ['a long string', (size: number) => ({ a: 'x'.repeat(size) })],
    ['long names', (size: number) => ({ ['n'.repeat(size)]: 1 })],
    ['many small values', (size: number) => ({ a: Array.from({ length: size / 4 }, () => 1) })],
    ['nested values', (size: number) => ({ a: [{ b: { c: 'x'.repeat(size) } }] })],
  ])('T7 refuses a response with %s', (_, build) => {
    expect(refused(callTool('a', {}, { inputResponses: { k: build(65_536) } }).message).code).toBe(
      'INPUT_MALFORMED',
    )
    expect(decodedCall(callTool('a', {}, { inputResponses: { k: build(16_000) } }).message).kind).toBe('flow')
  })
})
