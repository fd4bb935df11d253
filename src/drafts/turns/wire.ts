/**
 * The shapes of the two drafts that this folder speaks, both negotiated by `initialize` as experimental capabilities:
 *
 *   multi-turn-sse   questions end the stream of a call, their answers come in one POST, and that POST is answered
 *                    with what would have come on the stream; as often as it takes
 *   request-state    a question has a `state` beside its `id`, and its answer brings the same back
 *
 * A stream that asks:            id: T_0   event: buffer_input
 *                                id: T_1   event: message   data: the first question, its id T_1
 *                                id: T_2   event: message   data: the second, its id T_2
 *                                id: T_3   event: input_required
 * The POST that answers:         Last-Event-ID: T_3, and [ response to T_1, response to T_2 ]
 *
 * T is the turn: short, random, and of no use without the state, or without the memory of the instance that drew it.
 */

import type { Handed } from '../../carry/push.ts'
import { RondoError } from '../../errors.ts'
import { isRecord } from '../../lib/json.ts'
import type { PeerAnswer } from '../../protocol/call.ts'
import { ANSWER_LIMITS } from '../../protocol/common/request.ts'
import { readAnswer } from '../../protocol/rev-2025-11-25/decode.ts'
import { encodeRequest } from '../../protocol/rev-2025-11-25/encode.ts'
import type { ClientCapabilities, InputRequest } from '../../protocol/wire.ts'
import type { WholeEvent } from '../../serve/session/stream.ts'

/** What a client echoes exactly as it came. */
export type State = string | Readonly<Record<string, unknown>>

/** Where there is nothing to ask and the call is to go on elsewhere, a ping carries the state. */
export type TurnRequest = InputRequest | { readonly method: 'ping' }

export interface Turn {
  readonly id: string
  readonly requests: readonly { readonly request: TurnRequest; readonly state?: State }[]
}

export interface TurnAnswer {
  /** Which of the turn's requests it answers, from 0. */
  readonly index: number
  readonly state?: State
  readonly answer: PeerAnswer
}

export interface TurnAnswers {
  readonly turn: string
  readonly answers: readonly TurnAnswer[]
}

const EVENT_ID = /^([A-Za-z0-9_-]{1,60})_(\d{1,3})$/

/** Event `number` of a turn; the request of that number has the same id. */
export function toEventId(turn: string, number: number): string {
  return `${turn}_${number}`
}

/** Undefined for an id that is none of ours. */
export function readEventId(id: unknown): { readonly turn: string; readonly number: number } | undefined {
  const match = typeof id === 'string' ? EVENT_ID.exec(id) : null
  return match ? { turn: match[1] as string, number: Number(match[2]) } : undefined
}

/*
 * The sealed state as the drafts let it travel: a string, or an object. To a client it is opaque either way, and it
 * comes back exactly as it went: an object with a member more is not the one we gave.
 */

export type StateForm = 'string' | 'object'

export function toState(sealed: string, form: StateForm): State {
  return form === 'string' ? sealed : { sealed }
}

/** What was sealed; undefined for a state that is none of ours. */
export function fromState(state: State): string | undefined {
  if (!isRecord(state)) return state
  const { sealed, ...rest } = state
  return typeof sealed === 'string' && Object.keys(rest).length === 0 ? sealed : undefined
}

/* What a client declares to take part in the drafts, and what a server declares back. */

const MULTI_TURN = 'multi-turn-sse'
const REQUEST_STATE = 'request-state'
/** The names of both drafts among the experimental capabilities. */
export const EXPERIMENTAL: readonly string[] = [MULTI_TURN, REQUEST_STATE]

/** Whoever declares it, client or server: answers are buffered and come together. */
export function takesTurns(capabilities: ClientCapabilities): boolean {
  return declares(capabilities, MULTI_TURN)
}

/** The client echoes `state`. */
export function echoesState(capabilities: ClientCapabilities): boolean {
  return declares(capabilities, REQUEST_STATE)
}

/** What a client declares that echoes `state`, and that takes questions in turns if it says so. */
export function experimentalOf(turns: boolean): Readonly<Record<string, object>> {
  return { ...(turns && { [MULTI_TURN]: {} }), [REQUEST_STATE]: {} }
}

function declares({ experimental }: ClientCapabilities, name: string): boolean {
  return isRecord(experimental) && isRecord(experimental[name])
}

/*
 * The POST that answers a turn: a JSON array of responses, and the id of the event that ended the turn. Shape and size
 * count here; whose answers they are, and to what, the state tells.
 */

/** Throws what is wrong with it. */
export function decodeAnswers(message: unknown, lastEventId: string | undefined): TurnAnswers {
  const messages = Array.isArray(message) ? message : [message]
  if (messages.length > ANSWER_LIMITS.count) {
    throw new RondoError('INPUT_MALFORMED', `There are more than ${ANSWER_LIMITS.count} answers`)
  }
  if (lastEventId === undefined) throw invalid('Answers need the Last-Event-ID header')
  const event = readEventId(lastEventId)
  // An id we never gave is as good as one that is over: nothing tells the two apart.
  if (event === undefined) throw new RondoError('STATE_INVALID')
  const answers = messages.map((one) => readOne(one, event.turn))
  if (new Set(answers.map(({ index }) => index)).size < answers.length) {
    throw invalid('Two responses have the same id')
  }
  return { turn: event.turn, answers }
}

function readOne(message: unknown, turn: string): TurnAnswer {
  if (!isRecord(message) || message.jsonrpc !== '2.0' || message.method !== undefined) {
    throw invalid('A response of the array is none')
  }
  const { id, state } = message
  if (state !== undefined && typeof state !== 'string' && !isRecord(state)) {
    throw invalid('state is a string or an object')
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

/*
 * A turn becomes the events that end a stream.
 *
 * The two events around the questions have an id and no data, as the draft has them. Nothing that a tool or a client
 * wrote gets into a field of an event but by JSON.stringify, which leaves no line break (T15).
 */

export function encodeTurn({ id, requests }: Turn, protocolVersion: string): readonly WholeEvent[] {
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

/** A question that goes out with its state, which its response brings back. */
export function toHanded(id: string, state: State): Handed {
  return {
    id,
    attach: (json) => withState(json, state),
    accepts: (other) => fromState(other as State) === fromState(state),
  }
}

/** Beside the id, where every request has room for it: a ping has no params. */
function withState(json: string, state: State | undefined): string {
  return state === undefined ? json : `${json.slice(0, -1)},"state":${JSON.stringify(state)}}`
}
