/**
 * Server-sent events out of a text that comes in pieces, by the grammar of the HTML standard, with one difference: an
 * event without data is handed over too, where a browser would drop it. The drafts mark a stream with such events.
 *
 * 1. Lines end with LF, CR or CRLF, wherever the pieces are cut. 2. Comments, unknown fields and an id with a NUL are
 * skipped. 3. No more than `maxLength` characters of one event are held; past that it calls `onOverflow` once and stops.
 */

export interface StreamEvent {
  readonly event?: string
  readonly id?: string
  readonly data?: string
}

export interface EventParserOptions {
  readonly maxLength: number
  onEvent(event: StreamEvent): void
  onRetry?(ms: number): void
  onOverflow(): void
}

export interface EventParser {
  push(text: string): void
}

const BYTE_ORDER_MARK = 0xfeff

interface Fields {
  event?: string
  id?: string
  data?: string[]
}

export function createEventParser(options: EventParserOptions): EventParser {
  let rest = ''
  let fields: Fields = {}
  let held = 0
  let over = false
  let begun = false

  const takeLine = (line: string): void => {
    if (line !== '') {
      held += line.length
      return readField(line, fields, options)
    }
    const done = fields
    fields = {}
    held = 0
    if (Object.keys(done).length > 0) options.onEvent(toEvent(done))
  }

  return {
    push(text) {
      if (over || text === '') return
      const start = !begun && text.charCodeAt(0) === BYTE_ORDER_MARK ? 1 : 0
      begun = true
      const whole = rest + text.slice(start)
      const lineEnd = /\r\n|\n|\r/g
      // What is left over holds no end of a line but perhaps half of one: a long line is not read again and again.
      lineEnd.lastIndex = Math.max(0, rest.length - 1)
      let from = 0
      for (const { 0: end, index } of whole.matchAll(lineEnd)) {
        // A CR at the very end may be the first half of a CRLF.
        if (end === '\r' && index === whole.length - 1) break
        takeLine(whole.slice(from, index))
        from = index + end.length
      }
      rest = whole.slice(from)
      over = held + rest.length > options.maxLength
      if (over) options.onOverflow()
    },
  }
}

function readField(line: string, fields: Fields, { onRetry }: EventParserOptions): void {
  const colon = line.indexOf(':')
  const name = colon < 0 ? line : line.slice(0, colon)
  const value = colon < 0 ? '' : line.slice(line[colon + 1] === ' ' ? colon + 2 : colon + 1)
  switch (name) {
    case 'event':
      fields.event = value
      break
    case 'data':
      fields.data ??= []
      fields.data.push(value)
      break
    case 'id':
      if (!value.includes('\0')) fields.id = value
      break
    case 'retry':
      if (/^\d{1,9}$/.test(value)) onRetry?.(Number(value))
  }
}

function toEvent({ event, id, data }: Fields): StreamEvent {
  return {
    ...(event !== undefined && event !== '' && { event }),
    ...(id !== undefined && { id }),
    ...(data !== undefined && { data: data.join('\n') }),
  }
}
