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

import type { PeerAnswer } from '../session-call.ts'
import type { InputRequest } from '../wire.ts'

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
