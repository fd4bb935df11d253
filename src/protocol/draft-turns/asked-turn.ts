/**
 * A turn as a client has it: the requests as they came between the two marks of the stream, and the id of the last event.
 *
 * `AskedTurn` stands where a response would. No text of a server can be taken for one.
 *
 * Between two legs of a call a turn is kept as a note, a text in the place of `requestState`: what to answer to, what to
 * echo, and under which id the call began. So a call in turns can be written down and taken up like any other.
 */

import { RondoError } from '../../errors.ts'
import { isRecord } from '../../lib/is-record.ts'
import type { RequestId } from '../call.ts'

type Message = Readonly<Record<string, unknown>>

const ASKED: unique symbol = Symbol('asked in a turn')

export interface AskedTurn {
  readonly [ASKED]: true
  readonly requests: readonly Message[]
  readonly last: string
}

export function askedTurn(requests: readonly Message[], last: string): AskedTurn {
  return { [ASKED]: true, requests, last }
}

export function isAskedTurn(message: unknown): message is AskedTurn {
  return typeof message === 'object' && message !== null && ASKED in message
}

export interface TurnNote {
  /** The id of the request that began the call: its result will have it. */
  readonly id: RequestId
  /** What `Last-Event-ID` will be. */
  readonly last: string
  readonly requests: readonly {
    readonly id: RequestId
    /** Exactly what the request had; absent where it had none. */
    readonly state?: unknown
    /** Answered without asking anybody. */
    readonly ping?: true
  }[]
}

export function toNote(note: TurnNote): string {
  return JSON.stringify(note)
}

/** Throws if the text is no note of ours. */
export function readNote(text: string): TurnNote {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    value = undefined
  }
  if (isRecord(value) && typeof value.last === 'string' && Array.isArray(value.requests)) {
    return value as unknown as TurnNote
  }
  throw new RondoError('INPUT_PENDING', 'The call was not made in turns, which this server takes')
}
