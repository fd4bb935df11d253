import { describe, expect, it } from 'vitest'
import type { FlowCall } from '../../protocol/call.ts'
import { askedTurn, TURNS } from './client.ts'

const { decodeResponse, encodeRequest, legId } = TURNS

const call: FlowCall = {
  kind: 'flow',
  method: 'tools/call',
  target: 'resolve',
  args: { id: 1 },
  id: 7,
  protocolVersion: '2025-11-25',
  capabilities: {},
}
const form = { mode: 'form', message: 'How?', requestedSchema: { type: 'object', properties: {} } }
const ask = (id: unknown, more: object = {}) => ({
  jsonrpc: '2.0',
  id,
  method: 'elicitation/create',
  params: form,
  ...more,
})

describe('a turn as a client sees it', () => {
  it('F5 is a round: its questions by the ids of their requests, and a note of what to echo', () => {
    const state = { deep: ['ü', 1.5, null, { '10': true }] }
    const turn = askedTurn(
      [ask('T_1', { state }), ask(2), { jsonrpc: '2.0', id: 'p', method: 'ping', state: 's' }],
      'T_4',
    )
    const decoded = decodeResponse(call, turn)
    if (decoded.kind !== 'input_required') throw new Error(JSON.stringify(decoded))
    expect(Object.keys(decoded.questions).sort()).toEqual(['2', 'T_1'])
    expect(JSON.parse(decoded.state ?? '')).toEqual({
      id: 7,
      last: 'T_4',
      requests: [{ id: 'T_1', state }, { id: 2 }, { id: 'p', state: 's', ping: true }],
    })
  })

  it('F2 F5 is answered with an array that echoes every state exactly, and none if there was none', () => {
    const state = { b: '\u2028 ü', a: [1.5, null, { '10': true }] }
    const turn = askedTurn([ask('T_1', { state }), ask('T_2'), { id: 'p', method: 'ping', state: '' }], 'T_4')
    const decoded = decodeResponse(call, turn)
    const requestState = decoded.kind === 'input_required' ? decoded.state : undefined
    const inputResponses = { T_1: { action: 'decline' }, T_2: { action: 'cancel' } }
    const leg = { ...call, id: 9, requestState, inputResponses }
    const { body, headers } = encodeRequest(leg)
    expect(body).toBe(
      JSON.stringify([
        { jsonrpc: '2.0', id: 'T_1', state, result: { action: 'decline' } },
        { jsonrpc: '2.0', id: 'T_2', result: { action: 'cancel' } },
        { jsonrpc: '2.0', id: 'p', state: '', result: {} },
      ]),
    )
    expect(headers['Last-Event-ID']).toBe('T_4')
    expect([legId(leg), legId(call)]).toEqual([7, undefined])
  })

  it('F5 begins like any request of its revision', () => {
    expect(JSON.parse(encodeRequest(call).body)).toEqual({
      jsonrpc: '2.0',
      id: 7,
      method: 'tools/call',
      params: { name: 'resolve', arguments: { id: 1 } },
    })
    expect(() => encodeRequest({ ...call, requestState: 'r1.x' })).toThrow('INPUT_PENDING')
  })

  it.each([
    ['a question without an id', [ask(undefined)], 'T_2'],
    ['a fraction as id', [ask(1.5)], 'T_2'],
    ['one id twice', [ask('a'), ask('a')], 'T_2'],
    [
      'a question of an unknown method',
      [{ jsonrpc: '2.0', id: 'a', method: 'shell/run', params: {} }],
      'T_2',
    ],
    ['a malformed question', [ask('a', { params: {} })], 'T_2'],
    ['no id of the last event', [ask('a')], ''],
    ['an id that is not a valid header value', [ask('a')], 'a\u00e9'],
    ['a very long id', [ask('a')], 'T'.repeat(300)],
  ])('T22 is invalid with %s', (_what, requests, last) => {
    expect(decodeResponse(call, askedTurn([ask('a')], 'T_2')).kind).toBe('input_required')
    expect(decodeResponse(call, askedTurn(requests, last)).kind).toBe('invalid')
  })

  it('A6 T22 can end only a call, and cannot be forged by a server', () => {
    const { id, protocolVersion, capabilities } = call
    const list = { kind: 'list', listing: 'tools', id, protocolVersion, capabilities } as const
    expect(decodeResponse(list, askedTurn([ask('a')], 'T_2')).kind).toBe('invalid')
    expect(decodeResponse(call, { requests: [ask('a')], last: 'T_2', asked: true }).kind).toBe('invalid')
  })
})
