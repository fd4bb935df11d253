/** Turns as they look on the wire: the published examples of the two drafts, and the states of their questions. */

import type { Server } from 'rondo'
import { describe, expect, it } from 'vitest'
import { type WorkItem, workItems } from '../../examples/08-custom-rules.ts'
import { lastEventId, responsesTo } from '../support/turns-client.ts'
import {
  accept,
  call,
  connect,
  errorOf,
  keys,
  make,
  questions,
  REFUSED,
  textOf,
} from '../support/turns-wire.ts'

describe('the published examples', () => {
  it('F2 F5 B21 plays the tracker with custom rules over three instances', async () => {
    const items = new Map<number, WorkItem>()
    const instances = [0, 1, 2].map(() => workItems(items, { keys, log: 'off' }))
    let next = 0
    const client = await connect(() => instances[next++ % 3] as Server)
    const args = { workItemId: 4522, fields: { 'System.State': 'Resolved' } }
    const first = await client.request(...call('update_work_item', args))
    expect(questions(first)).toMatchObject([
      {
        method: 'elicitation/create',
        state: expect.any(String),
        params: {
          message: 'Resolving Bug #4522 requires a resolution. How was this bug resolved?',
          requestedSchema: {
            type: 'object',
            properties: {
              resolution: {
                type: 'string',
                enum: ['Fixed', "Won't Fix", 'Duplicate', 'By Design'],
                description: 'Resolution type for this bug',
              },
            },
            required: ['resolution'],
          },
        },
      },
    ])
    const second = await client.answer(first, [accept({ resolution: 'Duplicate' })])
    expect(questions(second)).toMatchObject([
      {
        params: {
          message: 'Since this is a duplicate, which work item is the original?',
          requestedSchema: {
            properties: {
              duplicateOfId: { type: 'number', description: 'Work item ID of the original bug' },
            },
            required: ['duplicateOfId'],
          },
        },
      },
    ])
    const last = await client.answer(second, [accept({ duplicateOfId: 4301 })])
    expect(textOf(last)).toBe(
      'Bug #4522 resolved as Duplicate of Bug #4301. State set to Resolved and duplicate link created.',
    )
    expect(items.get(4522)).toMatchObject({ resolution: 'Duplicate', duplicateOf: 4301 })
  })

  it('F5 asks between two events without data, ends the stream, and replies to the POST on another instance', async () => {
    const client = await connect(() => make())
    const turn = await client.request(...call('ask'))
    if (turn.kind !== 'turn') throw new Error('expected a turn')
    expect(turn.events.map(({ event, data }) => [event, data !== undefined])).toEqual([
      ['buffer_input', false],
      ['message', true],
      ['input_required', false],
    ])
    const ids = turn.events.map(({ id }) => id ?? '')
    expect(new Set(ids).size).toBe(3)
    for (const id of ids) expect(id).toMatch(/^[A-Za-z0-9_-]{1,32}$/)
    const done = await client.answer(turn, [accept({ value: 'Ada' })])
    expect(done).toMatchObject({ kind: 'response', status: 200, message: { id: 2 } })
    expect(textOf(done)).toBe('Hello Ada')
  })

  it('F5 replies to the POST with a stream if there is progress to report; progress only increases', async () => {
    const client = await connect(() => make())
    const params = { name: 'counts', arguments: {}, _meta: { progressToken: 'p' } }
    const turn = await client.request('tools/call', params)
    const done = await client.answer(turn, [accept({ value: 'x' })])
    if (turn.kind !== 'turn' || done.kind !== 'response') throw new Error('expected a turn and a result')
    const told = [...turn.events.map(({ data = '' }) => data), done.raw].join('\n')
    expect([...told.matchAll(/"progress":(\d)/g)].map(([, n]) => n)).toEqual(['1', '2', '3'])
    expect(done.raw).toContain('event: message')
    expect(textOf(done)).toBe('counted')
  })
})

describe('shared states and states per request', () => {
  it('F3 sends one state for all questions of a turn, or one for each', async () => {
    for (const [state, count] of [
      ['shared', 1],
      ['per-request', 2],
    ] as const) {
      const client = await connect(() => make({ turns: { state } }))
      const states = questions(await client.request(...call('both'))).map((request) => request.state)
      expect(new Set(states).size).toBe(count)
    }
  })

  it('F3 accepts a state only for its own question', async () => {
    const client = await connect(() => make({ turns: { state: 'per-request' } }))
    const turn = await client.request(...call('both'))
    const [left, right] = responsesTo(turn, [accept({ value: 'L' }), accept({ value: 'R' })])
    const last = { 'last-event-id': lastEventId(turn) }
    const swapped = [
      { ...left, state: right?.state },
      { ...right, state: left?.state },
    ]
    expect(errorOf(await client.post(swapped, last))).toEqual(REFUSED)
    expect(textOf(await client.post([left, right], last))).toBe('LR')
  })

  it.each(['shared', 'per-request'] as const)(
    'F3 B16 asks again only for what was left out: %s',
    async (state) => {
      const client = await connect(() => make({ turns: { state } }))
      const turn = await client.request(...call('both'))
      const [, right] = responsesTo(turn, [{}, accept({ value: 'R' })])
      const again = await client.post([right], { 'last-event-id': lastEventId(turn) })
      expect(questions(again)).toMatchObject([{ params: { message: 'Left?' } }])
      expect(textOf(await client.answer(again, [accept({ value: 'L' })]))).toBe('LR')
    },
  )
})
