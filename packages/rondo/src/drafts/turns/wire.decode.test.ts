import { describe, expect, it } from 'vitest'
import { RondoError } from '../../errors.ts'
import { decodeAnswers } from './wire.ts'

const response = (more: object) => ({ jsonrpc: '2.0', id: 'T_1', result: { action: 'accept' }, ...more })

function codeOf(message: unknown, last: string | undefined): string {
  try {
    decodeAnswers(message, last)
    return 'taken'
  } catch (error) {
    if (error instanceof RondoError) return error.code
    throw error
  }
}

describe('the responses of a turn', () => {
  it('F5 F2 are read from an array, each with its state', () => {
    const result = { action: 'accept', content: { approved: true } }
    const posted = [
      response({ state: 'a' }),
      { jsonrpc: '2.0', id: 'T_3', state: { sealed: 'b' }, result },
      { jsonrpc: '2.0', id: 'T_2', error: { code: -1, message: 'User rejected' } },
    ]
    expect(decodeAnswers(posted, 'T_4')).toEqual({
      turn: 'T',
      answers: [
        { index: 0, state: 'a', answer: { kind: 'result', result: { action: 'accept' } } },
        { index: 2, state: { sealed: 'b' }, answer: { kind: 'result', result } },
        { index: 1, answer: { kind: 'error', code: -1, message: 'User rejected' } },
      ],
    })
  })

  it('F2 may be one response without an array', () => {
    expect(decodeAnswers(response({}), 'T_2')).toEqual(decodeAnswers([response({})], 'T_2'))
  })

  it('may be empty: the questions are then asked again', () => {
    expect(decodeAnswers([], 'T_2')).toEqual({ turn: 'T', answers: [] })
  })

  it.each([
    ['no Last-Event-ID', [response({})], undefined, 'PEER_REQUEST'],
    ['an event id of another form', [response({})], '17', 'STATE_INVALID'],
    ['an empty event id', [response({})], '', 'STATE_INVALID'],
    ['a very long event id', [response({})], `${'T'.repeat(100)}_2`, 'STATE_INVALID'],
    ['the event id of another turn', [response({})], 'U_2', 'STATE_INVALID'],
    ['the id of a marker', [response({ id: 'T_0' })], 'T_2', 'STATE_INVALID'],
    ['a number for an id', [response({ id: 1 })], 'T_2', 'STATE_INVALID'],
    ['one id twice', [response({}), response({})], 'T_2', 'PEER_REQUEST'],
    ['a request', [response({ method: 'tools/call' })], 'T_2', 'PEER_REQUEST'],
    ['no JSON-RPC', [{ id: 'T_1', result: {} }], 'T_2', 'PEER_REQUEST'],
    ['a number', [7], 'T_2', 'PEER_REQUEST'],
    ['a state that is a number', [response({ state: 7 })], 'T_2', 'PEER_REQUEST'],
    ['a state that is null', [response({ state: null })], 'T_2', 'PEER_REQUEST'],
    ['a state that is an array', [response({ state: ['a'] })], 'T_2', 'PEER_REQUEST'],
    [
      'a flood',
      Array.from({ length: 129 }, (_, i) => response({ id: `T_${i + 1}` })),
      'T_2',
      'INPUT_MALFORMED',
    ],
  ])('B14 are refused with %s', (_what, message, last, code) => {
    expect(codeOf([response({})], 'T_2')).toBe('taken')
    expect(codeOf(message, last)).toBe(code)
  })
})
