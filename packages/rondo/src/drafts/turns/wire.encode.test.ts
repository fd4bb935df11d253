import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { readEvents } from '../../../../../test/support/turns-client.ts'
import type { InputRequest } from '../../protocol/wire.ts'
import { encodeTurn, type TurnRequests } from './wire.ts'

const question: InputRequest = {
  method: 'elicitation/create',
  params: { mode: 'form', message: 'How was this bug resolved?', requestedSchema: { type: 'object' } },
}

const textOf = (turn: TurnRequests): string =>
  encodeTurn(turn, '2025-11-25')
    .map(({ text }) => text)
    .join('')

describe('the events of a turn', () => {
  it('F5 F2 frame the questions with marks that have an id and no data', () => {
    const turn = { id: 'T', requests: [{ request: question, state: 'sealed' }] }
    expect(textOf(turn)).toBe(
      [
        'event: buffer_input',
        'id: T_0',
        '',
        'id: T_1',
        'event: message',
        'data: {"jsonrpc":"2.0","id":"T_1","method":"elicitation/create","params":{"mode":"form",' +
          '"message":"How was this bug resolved?","requestedSchema":{"type":"object"}},"state":"sealed"}',
        '',
        'event: input_required',
        'id: T_2',
        '',
        '',
      ].join('\n'),
    )
  })

  it('F2 F3 have each state beside the id of its request, string or object, and none if there is none', () => {
    const roots: InputRequest = { method: 'roots/list' }
    const requests = [
      { request: question, state: { sealed: 'a' } },
      { request: roots, state: 'b' },
      { request: { method: 'ping' } as const },
    ]
    const messages = readEvents(textOf({ id: 'T', requests })).flatMap(({ data }) =>
      data === undefined ? [] : [JSON.parse(data)],
    )
    expect(messages.map(({ state }) => state)).toEqual([{ sealed: 'a' }, 'b', undefined])
    expect(messages[1]).toEqual({ jsonrpc: '2.0', id: 'T_2', method: 'roots/list', state: 'b' })
    expect(messages[2]).toEqual({ jsonrpc: '2.0', id: 'T_3', method: 'ping' })
  })

  it('T15 let no text of a question or a state begin a field or an event', () => {
    const nasty = fc.string({
      unit: fc.constantFrom('\n', '\r', '\u2028', 'id: 7', 'event: x', ':', ' ', 'a'),
    })
    fc.assert(
      fc.property(nasty, nasty, (message, state) => {
        const request = { ...question, params: { ...question.params, message } } as InputRequest
        const events = readEvents(textOf({ id: 'T', requests: [{ request, state }] }))
        expect(events.map(({ event, id }) => [event, id])).toEqual([
          ['buffer_input', 'T_0'],
          ['message', 'T_1'],
          ['input_required', 'T_2'],
        ])
        expect(JSON.parse(events[1]?.data ?? '')).toMatchObject({ state, params: { message } })
      }),
    )
  })
})
