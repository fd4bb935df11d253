import { createParser } from 'eventsource-parser'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { createEventParser, type StreamEvent } from './event-parser.ts'

function parse(...pieces: string[]): StreamEvent[] {
  const events: StreamEvent[] = []
  const onOverflow = () => {
    throw new Error('overflow')
  }
  const parser = createEventParser({ maxLength: 10_000, onEvent: (event) => events.push(event), onOverflow })
  for (const piece of pieces) parser.push(piece)
  return events
}

describe('events of a stream', () => {
  it('F5 gives events that have an id and no data', () => {
    expect(parse('event: buffer_input\nid: 2\n\nevent: input_required\nid: 4\n\n')).toEqual([
      { event: 'buffer_input', id: '2' },
      { event: 'input_required', id: '4' },
    ])
  })

  it.each([
    ['data: a\ndata:b\ndata\n\n', [{ data: 'a\nb\n' }]],
    [':hello\n\ndata: a\r\n\r\n', [{ data: 'a' }]],
    ['\uFEFFdata: a\r\rdata: b\n\n', [{ data: 'a' }, { data: 'b' }]],
    ['id: 7\ndata:  two blanks\n\n', [{ id: '7', data: ' two blanks' }]],
    ['id: a\0b\ndata: x\n\n', [{ data: 'x' }]],
    ['event:\ndata: x\n\n', [{ data: 'x' }]],
    ['color: red\ndata: x\n\n', [{ data: 'x' }]],
    ['data: unfinished', []],
    ['\n\n\n', []],
  ])('reads %j', (text, events) => {
    expect(parse(text)).toEqual(events)
  })

  it('tells how long to wait before coming back', () => {
    const waits: number[] = []
    const parser = createEventParser({
      maxLength: 100,
      onEvent: () => {},
      onRetry: (ms) => waits.push(ms),
      onOverflow: () => {},
    })
    parser.push('retry: 250\nretry: soon\nretry: -1\n\n')
    expect(waits).toEqual([250])
  })

  it('T22 stops once when an event is longer than it may be, in one line or in many', () => {
    for (const flood of ['data: '.padEnd(101, 'x'), 'data: 1234\n'.repeat(12)]) {
      let overflows = 0
      const events: StreamEvent[] = []
      const parser = createEventParser({
        maxLength: 100,
        onEvent: (event) => events.push(event),
        onOverflow: () => overflows++,
      })
      for (const piece of [flood, flood, '\n\ndata: x\n\n']) parser.push(piece)
      expect([overflows, events]).toEqual([1, []])
    }
  })

  const text = fc.string({
    unit: fc.constantFrom('\n', '\r', '\r\n', 'data', 'event', 'id', 'retry', ': ', ':', ' ', 'x', '7'),
    maxLength: 40,
  })

  it('gives the same events however the text is cut', () => {
    fc.assert(
      fc.property(text, fc.array(fc.nat(60)), (whole, cuts) => {
        const places = [...new Set(cuts)].sort((a, b) => a - b)
        const pieces = [0, ...places].map((from, i) => whole.slice(from, places[i] ?? whole.length))
        expect(parse(...pieces)).toEqual(parse(whole))
      }),
    )
  })

  it('agrees with another parser on every event that has data', () => {
    let seen = 0
    fc.assert(
      fc.property(text, (whole) => {
        const theirs: StreamEvent[] = []
        const other = createParser({
          onEvent: ({ event, id, data }) =>
            theirs.push({ ...(event !== undefined && { event }), ...(id !== undefined && { id }), data }),
        })
        // A lone CR at the end is held back by both; the line end makes it whole.
        other.feed(`${whole}\n\n`)
        const ours = parse(`${whole}\n\n`).filter(({ data }) => data !== undefined)
        seen += ours.length
        expect(ours).toEqual(theirs)
      }),
      { numRuns: 2000 },
    )
    expect(seen).toBeGreaterThan(20)
  })
})
