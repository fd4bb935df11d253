import type { InputRequest } from 'rondo/client'
import { describe, expect, it } from 'vitest'
import { fromHost, toHost, withoutAdded } from './host.ts'

const FORM: InputRequest = {
  method: 'elicitation/create',
  params: {
    mode: 'form',
    message: 'How many?',
    requestedSchema: {
      type: 'object',
      properties: {
        name: { type: 'string' },
        seats: { type: 'integer', minimum: 1, maximum: 9, description: 'Seats', default: 2 },
        weight: { type: 'number' },
        extras: {
          type: 'array',
          items: {
            anyOf: [
              { const: 'tea', title: 'Tea' },
              { const: 'milk', title: 'milk' },
            ],
          },
          default: ['tea'],
        },
      },
      required: ['seats'],
    },
  },
}

describe('a form for a host that shows neither numbers nor lists', () => {
  it('asks for them as text, with their bounds and choices in the description', () => {
    const { request } = toHost(FORM, 'codex-mcp-client')
    expect((request as { params: { requestedSchema: unknown } }).params.requestedSchema).toEqual({
      type: 'object',
      properties: {
        name: { type: 'string' },
        seats: {
          type: 'string',
          title: 'Seats',
          description: 'Seats. A whole number from 1 to 9',
          default: '2',
        },
        weight: { type: 'string', title: 'Weight', description: 'A number' },
        extras: {
          type: 'string',
          title: 'Extras',
          description: 'Any of these, separated by commas: tea (Tea), milk',
          default: 'tea',
        },
      },
      required: ['seats'],
    })
  })

  it('is unchanged for other hosts, and without such fields', () => {
    expect(toHost(FORM, 'goose').request).toBe(FORM)
    expect(toHost(FORM, undefined).request).toBe(FORM)
    const roots: InputRequest = { method: 'roots/list' }
    expect(toHost(roots, 'codex-mcp-client')).toEqual({ request: roots })
  })
})

describe('an answer that came as text', () => {
  const { fields } = toHost(FORM, 'codex-mcp-client')
  const answer = (content: Record<string, unknown>) =>
    fromHost({ action: 'accept', content } as never, fields)

  it('becomes the values that the server asked for', () => {
    expect(answer({ name: '7', seats: ' 3 ', weight: '1.5', extras: 'Tea, milk' })).toEqual({
      action: 'accept',
      content: { name: '7', seats: 3, weight: 1.5, extras: ['tea', 'milk'] },
    })
  })

  it('leaves out a field that was left empty, and keeps values that have their type', () => {
    expect(answer({ seats: 3, weight: '' })).toEqual({ action: 'accept', content: { seats: 3 } })
  })

  it.each(['many', '1e99', '0', '3; drop', '0x3'])(
    'passes %j unchanged, for the server to judge',
    (seats) => {
      expect(answer({ seats })).toEqual({ action: 'accept', content: { seats } })
    },
  )

  it('is no answer to anything else: a decline stays a decline', () => {
    expect(fromHost({ action: 'decline' }, fields)).toEqual({ action: 'decline' })
  })
})

describe('arguments that a host adds', () => {
  it('are dropped', () => {
    expect(withoutAdded({ a: 1, wait_for_previous: true }, { properties: { a: {} } })).toEqual({ a: 1 })
  })

  it('control: stay if the tool has an argument of that name, and so do all others', () => {
    const args = { wait_for_previous: true, unknown: 1 }
    expect(withoutAdded(args, { properties: { wait_for_previous: {} } })).toEqual(args)
    expect(withoutAdded({ unknown: 1 }, { properties: {} })).toEqual({ unknown: 1 })
  })
})
