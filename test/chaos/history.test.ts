/** The checker of histories: a good one passes, and each way to break a promise is found in what a run would have written. */

import { describe, expect, it } from 'vitest'
import { checkHistory, type HistoryEvent, readHistory } from './history.ts'

const client = { process: 'client 0' }
const world = { type: 'ok', f: 'effect', process: 'downstream' } as const

/** One order, from its first request to its result. */
function orderOf(order: number, place = `place ${order}`): HistoryEvent[] {
  return [
    { type: 'invoke', f: 'order', ...client, order },
    { type: 'invoke', f: 'round', ...client, order, answers: {} },
    { type: 'ok', f: 'round', ...client, order, asks: [] },
    { ...world, order, effect: 'reserve', key: `r${order}` },
    { type: 'invoke', f: 'round', ...client, order, answers: {} },
    { type: 'info', f: 'round', ...client, order },
    { type: 'ok', f: 'round', ...client, order, asks: ['address'] },
    { type: 'invoke', f: 'round', ...client, order, answers: { address: place } },
    { type: 'ok', f: 'round', ...client, order, asks: ['sure'] },
    { type: 'invoke', f: 'round', ...client, order, answers: { sure: 'yes' } },
    { ...world, order, effect: 'charge', key: `c${order}`, answer: place },
    { type: 'ok', f: 'round', ...client, order, asks: [] },
    { type: 'ok', f: 'order', ...client, order, text: `order ${order} goes to ${place}` },
  ]
}

const history = (...orders: readonly HistoryEvent[][]): HistoryEvent[] => [
  { type: 'info', f: 'run', process: 'nemesis', orders: orders.length },
  ...orders.flat(),
  { type: 'info', f: 'end', process: 'nemesis' },
]

const problemsOf = (events: readonly HistoryEvent[]): string[] =>
  checkHistory(events).problems.map((problem) => problem.split(':')[0] ?? '')

/** The history of two orders, in which the events that `is` names are changed. */
function changed(is: (event: HistoryEvent) => boolean, change: (event: HistoryEvent) => HistoryEvent[]) {
  return history(orderOf(0), orderOf(1)).flatMap((event) => (is(event) ? change(event) : [event]))
}

describe('the checker of histories', () => {
  it('finds no problem in a good history, even if an effect is repeated under its key', () => {
    const good = changed(
      ({ f }) => f === 'effect',
      (event) => [event, event],
    )
    const { problems, figures } = checkHistory(good)
    expect(problems).toEqual([])
    expect(figures).toEqual({ orders: 2, rounds: 8, unanswered: 2, effects: 8, repeated: 4, kills: 0 })
  })

  it.each<[string, string, HistoryEvent[]]>([
    [
      'a question that is asked again after its answer was acknowledged',
      'lost',
      changed(
        ({ asks, order }) => order === 0 && asks?.[0] === 'sure',
        (event) => [{ ...event, asks: ['sure', 'address'] }],
      ),
    ],
    [
      'an order that failed',
      'lost',
      changed(
        ({ f, type, order }) => f === 'order' && type === 'ok' && order === 1,
        (event) => [{ ...event, type: 'fail', error: 'Internal error' }],
      ),
    ],
    [
      'an effect under two keys',
      'two keys',
      changed(
        ({ effect, order }) => effect === 'charge' && order === 0,
        (event) => [event, { ...event, answer: undefined, key: 'other' }],
      ),
    ],
    [
      'an answer that is used under another key',
      'two keys',
      changed(
        ({ effect, order }) => effect === 'charge' && order === 0,
        (event) => [event, { ...event, key: 'other' }],
      ),
    ],
    [
      'one key for two orders',
      'one key for two effects',
      changed(
        ({ effect }) => effect === 'reserve',
        (event) => [{ ...event, key: 'same' }],
      ),
    ],
    [
      'an answer that is used for another order',
      'an answer used twice',
      changed(
        ({ effect, order }) => effect === 'charge' && order === 1,
        (event) => [{ ...event, answer: 'place 0' }],
      ),
    ],
    [
      'a charge without a yes',
      'not allowed',
      changed(
        ({ answers, order }) => answers?.sure !== undefined && order === 0,
        (event) => [{ ...event, answers: { sure: 'no' } }],
      ),
    ],
    [
      'a result without its effect',
      'missing',
      changed(
        ({ effect, order }) => effect === 'charge' && order === 0,
        () => [],
      ),
    ],
    [
      'the result of another order',
      'result',
      changed(
        ({ f, type, order }) => f === 'order' && type === 'ok' && order === 1,
        (event) => [{ ...event, text: 'order 0 goes to place 0' }],
      ),
    ],
    ['a history that breaks off', 'incomplete', history(orderOf(0), orderOf(1)).slice(0, -1)],
    [
      'an order that is missing',
      'incomplete',
      changed(
        ({ order }) => order === 1,
        () => [],
      ),
    ],
  ])('finds %s', (_, problem, events) => {
    expect(problemsOf(events)).toContain(problem)
  })

  it('reads lines of JSON, and says which one is none', () => {
    const [first] = history()
    expect(readHistory(`${JSON.stringify(first)}\n`)).toEqual([first])
    expect(() => readHistory('{}\nx\n')).toThrow('Line 2')
  })
})
