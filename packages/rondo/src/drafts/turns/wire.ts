/**
 * The wire format of the two drafts, both negotiated by `initialize` as experimental capabilities:
 *
 *   multi-turn-sse   questions end the stream of a call; their responses come in one POST, and the reply to that POST is
 *                    what would have followed on the stream; any number of times
 *   request-state    a question has a `state` beside its `id`, and its response echoes it
 *
 * A stream that asks:            id: T_0   event: buffer_input
 *                                id: T_1   event: message   data: the first question, its id T_1
 *                                id: T_2   event: message   data: the second, its id T_2
 *                                id: T_3   event: input_required
 * The POST that responds:        Last-Event-ID: T_3, and [ response to T_1, response to T_2 ]
 *
 * T is the turn: short, random, and useless without the state, or the memory of the instance that drew it. The events
 * around the questions have an id and no data, as in the draft. Text of tools and clients gets into an event only through
 * JSON.stringify, which leaves no line break (T15).
 */

import type { PortableQuestion } from '../../carry/push.ts'
import { RondoError } from '../../errors.ts'
import { isRecord } from '../../lib/json.ts'
import type { PeerAnswer } from '../../protocol/call.ts'
import { ANSWER_LIMITS } from '../../protocol/common/request.ts'
import { readAnswer } from '../../protocol/rev-2025-11-25/decode.ts'
import { encodeRequest } from '../../protocol/rev-2025-11-25/encode.ts'
import type { ClientCapabilities, InputRequest } from '../../protocol/wire.ts'
import type { WholeEvent } from '../../session/stream.ts'

/** The state that a client echoes unchanged: a string or an object, opaque to it. */
export type State = string | Readonly<Record<string, unknown>>

/** A ping carries the state if there is nothing to ask and the call is to continue elsewhere. */
export type TurnRequest = InputRequest | { readonly method: 'ping' }

export interface TurnRequests {
  readonly id: string
  readonly requests: readonly { readonly request: TurnRequest; readonly state?: State }[]
}

export interface TurnAnswer {
  /** The index of the turn's request that it responds to. */
  readonly index: number
  readonly state?: State
  readonly answer: PeerAnswer
}

export interface TurnAnswers {
  readonly turn: string
  readonly answers: readonly TurnAnswer[]
}

const EVENT_ID = /^([A-Za-z0-9_-]{1,60})_(\d{1,3})$/

/** The id of event `number` of a turn, and of the request in it. */
export function toEventId(turn: string, number: number): string {
  return `${turn}_${number}`
}

/** Undefined for an id that this server did not issue. */
export function readEventId(id: unknown): { readonly turn: string; readonly number: number } | undefined {
  const match = typeof id === 'string' ? EVENT_ID.exec(id) : null
  return match ? { turn: match[1] as string, number: Number(match[2]) } : undefined
}

export type StateForm = 'string' | 'object'

export function toState(sealed: string, form: StateForm): State {
  return form === 'string' ? sealed : { sealed }
}

/** The sealed text; undefined for a state that this server did not issue, such as an object with an additional member. */
export function fromState(state: State): string | undefined {
  if (!isRecord(state)) return state
  const { sealed, ...rest } = state
  return typeof sealed === 'string' && Object.keys(rest).length === 0 ? sealed : undefined
}

const MULTI_TURN = 'multi-turn-sse'
const REQUEST_STATE = 'request-state'
/** The names of both drafts among the experimental capabilities, of clients and servers. */
export const EXPERIMENTAL: readonly string[] = [MULTI_TURN, REQUEST_STATE]

/** True if the client buffers its responses and sends them together. */
export function takesTurns(capabilities: ClientCapabilities): boolean {
  return declares(capabilities, MULTI_TURN)
}

/** True if the client echoes `state`. */
export function echoesState(capabilities: ClientCapabilities): boolean {
  return declares(capabilities, REQUEST_STATE)
}

/** The declaration of a client that echoes `state` and, with `turns`, takes questions in turns. */
export function experimentalOf(turns: boolean): Readonly<Record<string, object>> {
  return { ...(turns && { [MULTI_TURN]: {} }), [REQUEST_STATE]: {} }
}

function declares({ experimental }: ClientCapabilities, name: string): boolean {
  return isRecord(experimental) && isRecord(experimental[name])
}

/**
 * Reads the responses to a turn: a JSON array, and the id of the event that ended the turn. Throws what is wrong. Only
 * shape and size are checked here; whose responses they are, and to what, is in the state.
 */
export function decodeAnswers(message: unknown, lastEventId: string | undefined): TurnAnswers {
  const messages = Array.isArray(message) ? message : [message]
  if (messages.length > ANSWER_LIMITS.count) {
    throw new RondoError('INPUT_MALFORMED', `The array has more than ${ANSWER_LIMITS.count} responses`)
  }
  if (lastEventId === undefined)
    throw invalid('The Last-Event-ID header is missing: it names the turn that these responses belong to')
  const event = readEventId(lastEventId)
  // An id that was never issued looks the same as one that has expired.
  if (event === undefined) throw new RondoError('STATE_INVALID')
  const answers = messages.map((one) => readOne(one, event.turn))
  if (new Set(answers.map(({ index }) => index)).size < answers.length) {
    throw invalid('Two responses have the same id')
  }
  return { turn: event.turn, answers }
}

function readOne(message: unknown, turn: string): TurnAnswer {
  if (!isRecord(message) || message.jsonrpc !== '2.0' || message.method !== undefined) {
    throw invalid('An element of the array is not a JSON-RPC response')
  }
  const { id, state } = message
  if (state !== undefined && typeof state !== 'string' && !isRecord(state)) {
    throw invalid('state must be a string or an object')
  }
  const event = readEventId(id)
  // A response to a question of another turn.
  if (event?.turn !== turn || event.number === 0) throw new RondoError('STATE_INVALID')
  const answer = readAnswer(message)
  return {
    index: event.number - 1,
    ...(state === undefined ? {} : { state: state as State }),
    answer,
  }
}

function invalid(detail: string): RondoError {
  return new RondoError('PEER_REQUEST', detail)
}

/** The events that end a stream with questions. */
export function encodeTurn({ id, requests }: TurnRequests, protocolVersion: string): readonly WholeEvent[] {
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

function mark(event: string, id: string): WholeEvent {
  return { id, text: `event: ${event}\nid: ${id}\n\n` }
}

function requestText(id: string, request: TurnRequest, protocolVersion: string): string {
  if (request.method === 'ping') return JSON.stringify({ jsonrpc: '2.0', id, method: 'ping' })
  return encodeRequest(id, request, protocolVersion, id)
}

/** A question that is pushed with its state, which its response echoes. */
export function toHanded(id: string, state: State): PortableQuestion {
  return {
    id,
    attach: (json) => withState(json, state),
    accepts: (other) => fromState(other as State) === fromState(state),
  }
}

/** Puts the state beside the id, where a ping has room for it too: it has no params. */
function withState(json: string, state: State | undefined): string {
  return state === undefined ? json : `${json.slice(0, -1)},"state":${JSON.stringify(state)}}`
}
