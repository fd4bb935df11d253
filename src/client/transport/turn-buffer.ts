/**
 * The part of a stream between `buffer_input` and `input_required`: requests are put by instead of being answered at once,
 * and at the end they are the turn. One buffer serves one request, also where its stream broke in between and was resumed.
 *
 * The two marks are events without data, which every parser that keeps to the HTML standard drops. So before a text is
 * parsed, each mark in it is given an empty line of data.
 */

import { type AskedTurn, askedTurn } from '../../protocol/draft-turns/asked-turn.ts'

type Message = Readonly<Record<string, unknown>>

interface StreamEvent {
  readonly event?: string
  readonly id?: string
  readonly data: string
}

export interface TurnBuffer {
  /** A filter for the text of one stream, in which every line ends with LF. */
  showMarks(): (text: string) => string
  /** Looks at an event; gives the turn when this one ends it. */
  mark(event: StreamEvent): AskedTurn | undefined
  /** True if the request was put by. */
  take(request: Message): boolean
}

export function createTurnBuffer(): TurnBuffer {
  let held: Map<unknown, Message> | undefined
  return {
    showMarks: createMarkFilter,
    mark({ event, id = '', data }) {
      if (data !== '') return undefined
      if (event === 'buffer_input') held ??= new Map()
      return event === 'input_required' && held ? askedTurn([...held.values()], id) : undefined
    },
    take(request) {
      // A resumed stream may repeat a request; one that was there before it is the same.
      if (held !== undefined && !held.has(request.id)) held.set(request.id, request)
      return held !== undefined
    },
  }
}

const MARK = /^event: ?(?:buffer_input|input_required)$/
const DATA = /^data(?::|$)/
/** More than any line that matters here. */
const LONGEST = 32

/** Reads each character once and keeps no more than the beginning of a line. */
function createMarkFilter(): (text: string) => string {
  let begun = ''
  let isMark = false
  let hasData = false
  return (text) => {
    let out = ''
    let copied = 0
    let start = 0
    for (let end = text.indexOf('\n'); end !== -1; end = text.indexOf('\n', start)) {
      const line = begun + text.slice(start, Math.min(end, start + LONGEST))
      if (line === '') {
        if (isMark && !hasData) {
          out += `${text.slice(copied, start)}data\n`
          copied = start
        }
        isMark = false
        hasData = false
      } else if (line.startsWith('event')) isMark = MARK.test(line)
      else if (DATA.test(line)) hasData = true
      begun = ''
      start = end + 1
    }
    begun = (begun + text.slice(start, start + LONGEST)).slice(0, LONGEST)
    return out + text.slice(copied)
  }
}
