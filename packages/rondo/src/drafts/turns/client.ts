/**
 * The client side of turns. A turn is the requests between the two marks of a stream, and the id of the last event. To the
 * rest of the client it is a round like any other: `AskedTurn` takes the place of a response, and no text of a server can
 * be mistaken for one.
 *
 * Between two legs of a call, a turn is kept as a note in the place of `requestState`: the ids of the requests, the states
 * to echo, and the id under which the call began. So a call in turns can be stored and resumed like any other.
 *
 * The first leg is a request of 2025-11-25. Each later one is a JSON array of responses, each with exactly the state of its
 * request, and the id of the last event. Pings ask nobody and are answered here.
 */

import type { Dialect } from '../../client/port.ts'
import type { RequestBuffer } from '../../client/transport/transport.ts'
import { RondoError } from '../../errors.ts'
import { isRecord, measureJson } from '../../lib/json.ts'
import type { Call, FlowCall, RequestId } from '../../protocol/call.ts'
import type { EncodedRequest } from '../../protocol/codec.ts'
import { type DecodedResponse, decodeQuestion } from '../../protocol/common/received.ts'
import {
  decodeResponse as decodeOlder,
  headersOf,
  encodeRequest as olderRequest,
} from '../../protocol/rev-2025-11-25/client.ts'
import type { InputRequest } from '../../protocol/wire.ts'

type Message = Readonly<Record<string, unknown>>

const ASKED: unique symbol = Symbol('asked in a turn')

interface AskedTurn {
  readonly [ASKED]: true
  readonly requests: readonly Message[]
  readonly last: string
}

export function askedTurn(requests: readonly Message[], last: string): AskedTurn {
  return { [ASKED]: true, requests, last }
}

function isAskedTurn(message: unknown): message is AskedTurn {
  return typeof message === 'object' && message !== null && ASKED in message
}

interface TurnNote {
  /** The id of the request that began the call: its result will have it. */
  readonly id: RequestId
  /** The next `Last-Event-ID`. */
  readonly last: string
  readonly requests: readonly {
    readonly id: RequestId
    /** Exactly what the request had; absent if it had none. */
    readonly state?: unknown
    /** True for a `ping`, which the client answers without asking anybody. */
    readonly ping?: true
  }[]
}

function toNote(note: TurnNote): string {
  return JSON.stringify(note)
}

/** Throws if the text is not a note. */
function readNote(text: string): TurnNote {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    value = undefined
  }
  if (isRecord(value) && typeof value.last === 'string' && Array.isArray(value.requests)) {
    return value as unknown as TurnNote
  }
  throw new RondoError(
    'INPUT_PENDING',
    'The pending call was not made in turns, but this server asks in turns',
  )
}

function encodeRequest(call: Call): EncodedRequest {
  if (call.kind !== 'flow' || call.requestState === undefined) return olderRequest(call)
  const { last, requests } = readNote(call.requestState)
  const { inputResponses = {} } = call
  const responses = requests.map(({ id, state, ping }) => ({
    jsonrpc: '2.0',
    id,
    ...(state !== undefined && { state }),
    result: ping ? {} : inputResponses[String(id)],
  }))
  const headers = { ...headersOf(call.protocolVersion), 'Last-Event-ID': last }
  return { body: JSON.stringify(responses), headers }
}

/** The id that the response will have, if it is not the leg's own. */
function legId(call: Pick<Call, 'kind'> & Partial<Pick<FlowCall, 'requestState'>>): RequestId | undefined {
  return call.kind === 'flow' && call.requestState !== undefined ? readNote(call.requestState).id : undefined
}

/** An event id that can be sent as a header. */
const EVENT_ID = /^[\x21-\x7e]{1,256}$/

function decodeResponse(call: Call, message: unknown): DecodedResponse {
  if (!isAskedTurn(message)) return decodeOlder(call, message)
  return call.kind === 'flow' ? decodeTurn(call, message) : invalid('only calls may ask for input')
}

function decodeTurn({ id }: Call, { requests, last }: AskedTurn): DecodedResponse {
  if (!EVENT_ID.test(last)) return invalid('the id of its last event is not a valid header value')
  const questions = new Map<string, InputRequest>()
  const noted: TurnNote['requests'][number][] = []
  for (const { id: requestId, method, params, state } of requests) {
    if (typeof requestId !== 'string' && !Number.isSafeInteger(requestId))
      return invalid('a question has no id')
    const ping = method === 'ping'
    const question = ping ? undefined : decodeQuestion({ method, params })
    if (question === undefined && !ping)
      return invalid('a question has a method or parameters that this client does not know')
    if (questions.has(String(requestId))) return invalid('two questions have the same id')
    if (question !== undefined) questions.set(String(requestId), question)
    noted.push({
      id: requestId as string | number,
      ...(state !== undefined && { state }),
      ...(ping && { ping: true as const }),
    })
  }
  const state = toNote({ id, last, requests: noted })
  return { kind: 'input_required', questions: Object.fromEntries(questions), state }
}

function invalid(problem: string): DecodedResponse {
  return { kind: 'invalid', problem }
}

function createBuffer(maxSize: number): RequestBuffer {
  let held: Map<unknown, Message> | undefined
  let left = maxSize
  return {
    createFilter: createMarkFilter,
    look({ event, id = '', data }) {
      if (data !== '') return undefined
      if (event === 'buffer_input') held ??= new Map()
      return event === 'input_required' && held ? askedTurn([...held.values()], id) : undefined
    },
    take(request) {
      // A resumed stream may repeat a request.
      if (held !== undefined && !held.has(request.id)) {
        // A stream that is resumed again and again has no other limit.
        left -= measureJson(request, left)
        if (left < 0)
          throw new RondoError('LIMIT_CLIENT_QUESTIONS', `The server asks more in one turn than ${maxSize}`)
        held.set(request.id, request)
      }
      return held !== undefined
    },
  }
}

/** The members of a 2025-11-25 dialect that differ in a client that takes questions in turns. */
export const TURNS: Pick<Dialect, 'encodeRequest' | 'decodeResponse'> &
  Required<Pick<Dialect, 'legId' | 'createBuffer'>> = { encodeRequest, decodeResponse, legId, createBuffer }

const MARK = /^event: ?(?:buffer_input|input_required)$/
const DATA = /^data(?::|$)/
/** Longer than any line that matters here. */
const LONGEST = 32

/**
 * Parsers drop events without data, as the HTML standard requires, and both marks are such events. So each mark gets an
 * empty data line before the text is parsed. Reads each character once and keeps at most the beginning of a line.
 */
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
