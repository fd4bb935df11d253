import { describe, expect, it } from 'vitest'
import { RondoError } from '../../errors.ts'
import { statusOf } from '../common/headers.ts'
import { encodeError, encodeNotification } from '../common/json-rpc.ts'
import type { Reply } from '../reply.ts'
import { encodeReply } from './encode.ts'

const service = { serverInfo: { name: 'sé"rver', version: '1' } }
const STAMP = { 'io.modelcontextprotocol/serverInfo': service.serverInfo }

function encoded(reply: Reply, id: string | number = 1) {
  return JSON.parse(encodeReply(id, reply, service))
}

describe('encodeReply', () => {
  it('A4 adds the type and the name of the server to every result', () => {
    expect(encoded({ kind: 'complete', result: { content: [] } })).toEqual({
      jsonrpc: '2.0',
      id: 1,
      result: { resultType: 'complete', _meta: STAMP, content: [] },
    })
    expect(encoded({ kind: 'complete', result: {} }).result).toEqual({ resultType: 'complete', _meta: STAMP })
    expect(encoded({ kind: 'input_required', requestState: 's' }).result).toEqual({
      resultType: 'input_required',
      _meta: STAMP,
      requestState: 's',
    })
  })

  it('keeps the _meta of a result', () => {
    const result = { content: [], _meta: { mine: 1 } }
    expect(encoded({ kind: 'complete', result }).result._meta).toEqual({ mine: 1, ...STAMP })
  })

  it('overrides the type that a result brings', () => {
    const result = { resultType: 'input_required', content: [] }
    expect(encoded({ kind: 'complete', result }).result.resultType).toBe('complete')
  })

  it('A3 writes input requests, state, or both', () => {
    const inputRequests = { a: { method: 'roots/list' as const } }
    expect(encoded({ kind: 'input_required', inputRequests }).result).toEqual({
      resultType: 'input_required',
      _meta: STAMP,
      inputRequests,
    })
    expect(encoded({ kind: 'input_required', inputRequests, requestState: 's' }).result).toMatchObject({
      inputRequests,
      requestState: 's',
    })
  })

  it('A3 writes every question whole, with the text of a form that others share', () => {
    const requestedSchema = {
      type: 'object',
      properties: { 'é"\n': { type: 'string', enum: ['a', '\u2028'] } },
    }
    const form = (message: string, more: object = {}) => ({
      method: 'elicitation/create' as const,
      params: { mode: 'form' as const, message, requestedSchema, ...more },
    })
    for (const state of ['s', 'a "quoted"\nstate']) {
      const inputRequests = {
        '"key"\\': form('What?\n"Why?"'),
        __proto__x: form(''),
        more: form('m', { elicitationId: 'e' }),
        url: {
          method: 'elicitation/create' as const,
          params: { mode: 'url' as const, message: 'm', url: 'https://a.b' },
        },
        roots: { method: 'roots/list' as const },
      }
      const { result } = encoded({ kind: 'input_required', inputRequests, requestState: state })
      expect(result).toEqual({
        resultType: 'input_required',
        _meta: STAMP,
        inputRequests,
        requestState: state,
      })
    }
  })

  it('A3 never sends an input_required result with neither', () => {
    expect(encoded({ kind: 'input_required' }).error).toEqual({ code: -32603, message: 'Internal error' })
  })

  it('serializes a result that many calls share once, and says how long clients may keep it', () => {
    const result = { tools: [1.0, 'é'] }
    const cache = { ttlMs: 0, scope: 'private' } as const
    const first = encoded({ kind: 'cacheable', result, cache }).result
    expect(first).toEqual({
      resultType: 'complete',
      _meta: STAMP,
      tools: [1, 'é'],
      ttlMs: 0,
      cacheScope: 'private',
    })
    result.tools = []
    expect(encoded({ kind: 'cacheable', result, cache }).result).toEqual(first)
  })

  it.each([0, -3, 'a"b\n', ''])('returns the id %j', (id) => {
    expect(encoded({ kind: 'complete', result: {} }, id).id).toBe(id)
  })

  it('turns a result that is not JSON into an internal error', () => {
    const loop: Record<string, unknown> = {}
    loop.loop = loop
    expect(encoded({ kind: 'complete', result: loop }).error.code).toBe(-32603)
    expect(encoded({ kind: 'complete', result: { n: 1n } }).error.code).toBe(-32603)
  })
})

describe('errors and notifications', () => {
  it('sends code, sentence and data, and no detail that is only for the log', () => {
    const closed = new RondoError('STATE_INVALID', 'the tag is wrong', { cause: new Error('secret') })
    expect(JSON.parse(encodeError(2, closed))).toEqual({
      jsonrpc: '2.0',
      id: 2,
      error: { code: -32602, message: 'Invalid or expired requestState' },
    })
    const open = new RondoError('PEER_PARAMS', 'no such tool', { data: { tool: 'x' } })
    expect(JSON.parse(encodeError(null, open))).toEqual({
      jsonrpc: '2.0',
      id: null,
      error: { code: -32602, message: 'no such tool', data: { tool: 'x' } },
    })
  })

  it('writes a notification without an id', () => {
    expect(JSON.parse(encodeNotification('notifications/progress', { progress: 1 }))).toEqual({
      jsonrpc: '2.0',
      method: 'notifications/progress',
      params: { progress: 1 },
    })
  })

  it('returns the HTTP status of a reply', () => {
    expect(statusOf({ kind: 'complete', result: {} })).toBe(200)
    expect(statusOf({ kind: 'input_required', requestState: 's' })).toBe(200)
    expect(statusOf({ kind: 'error', error: new RondoError('PEER_METHOD') })).toBe(404)
    expect(statusOf({ kind: 'error', error: new RondoError('PEER_CAPABILITY') })).toBe(400)
  })
})
