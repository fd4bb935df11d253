import { createParser } from 'eventsource-parser'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { encodeNotification, responseText } from '../../protocol/common/json-rpc.ts'
import { SSE_COMMENT, toEvent, toLine } from './line.ts'

function read(stream: string) {
  const events: { event: string | undefined; id: string | undefined; data: string }[] = []
  const parser = createParser({ onEvent: ({ event, id, data }) => events.push({ event, id, data }) })
  parser.feed(stream)
  return events
}

/** Text that tries to end its line and begin a field of its own. */
const hostile = fc
  .array(
    fc.constantFrom(
      '\n',
      '\r',
      '\r\n',
      '\n\n',
      '\0',
      '\u2028',
      '\u0085',
      'data: x',
      'id: 1',
      'event: e',
      ':',
      '"',
      '\\',
    ),
    { maxLength: 12 },
  )
  .map((parts) => parts.join(''))

describe('T15 events', () => {
  it('carry exactly one message each, whatever text it contains', () => {
    fc.assert(
      fc.property(fc.array(hostile, { minLength: 1, maxLength: 4 }), (texts) => {
        const messages = texts.map((text) => encodeNotification(text, { [text]: text }))
        const events = read(messages.map(toEvent).join(SSE_COMMENT))
        expect(events).toEqual(messages.map((data) => ({ event: 'message', id: undefined, data })))
      }),
    )
  })

  it('stay one event when a serialized result has line breaks between its tokens', () => {
    const json = '{\r\n  "a": 1,\r  "b": [\n\n2]\n}'
    const events = read(toEvent(responseText(1, json)))
    expect(events).toHaveLength(1)
    expect(JSON.parse(events[0]?.data ?? '').result).toEqual({ a: 1, b: [2] })
  })

  it('control: an event breaks if its line breaks are kept', () => {
    expect(read(`event: message\ndata: {\n"a":1}\n\n`)[0]?.data).toBe('{')
  })

  it('do not change a line without line breaks', () => {
    expect(toLine('{"a":"\\n"}')).toBe('{"a":"\\n"}')
  })
})
