/**
 * A turn becomes the events that end a stream.
 *
 * The two events around the questions have an id and no data, as the draft has them. Nothing that a tool or a client
 * wrote gets into a field of an event but by JSON.stringify, which leaves no line break (T15).
 */

import { encodeRequest } from '../rev-2025-11-25/encode.ts'
import { type State, type Turn, type TurnRequest, toEventId } from './turn.ts'

export interface TurnEvent {
  readonly id: string
  /** The whole event. */
  readonly text: string
}

export function encodeTurn({ id, requests }: Turn, protocolVersion: string): readonly TurnEvent[] {
  const questions = requests.map(({ request, state }, index) => {
    const requestId = toEventId(id, index + 1)
    const json = withState(requestText(requestId, request, protocolVersion), state)
    return { id: requestId, text: `id: ${requestId}\nevent: message\ndata: ${json}\n\n` }
  })
  return [
    mark('buffer_input', toEventId(id, 0)),
    ...questions,
    mark('input_required', toEventId(id, requests.length + 1)),
  ]
}

function mark(event: string, id: string): TurnEvent {
  return { id, text: `event: ${event}\nid: ${id}\n\n` }
}

function requestText(id: string, request: TurnRequest, protocolVersion: string): string {
  if (request.method === 'ping') return JSON.stringify({ jsonrpc: '2.0', id, method: 'ping' })
  return encodeRequest(id, request, protocolVersion, id)
}

/** Beside the id, where every request has room for it: a ping has no params. */
export function withState(json: string, state: State | undefined): string {
  return state === undefined ? json : `${json.slice(0, -1)},"state":${JSON.stringify(state)}}`
}
