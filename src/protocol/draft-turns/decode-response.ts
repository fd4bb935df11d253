/**
 * What ended a leg of a call in turns: a response of 2025-11-25, or a turn, which to the rest of the client is a round
 * like any other. Questions go by the ids of their requests; pings ask nobody.
 */

import type { Call } from '../call.ts'
import { decodeResponse as decodeOlder } from '../rev-2025-11-25/decode-response.ts'
import { decodeQuestion } from '../rev-2026-07-28/decode-question.ts'
import type { Decoded } from '../rev-2026-07-28/decode-response.ts'
import type { InputRequest } from '../wire.ts'
import { type AskedTurn, isAskedTurn, type TurnNote, toNote } from './asked-turn.ts'

/** It goes into a header. */
const EVENT_ID = /^[\x21-\x7e]{1,256}$/

export function decodeResponse(call: Call, message: unknown): Decoded {
  if (!isAskedTurn(message)) return decodeOlder(call, message)
  return call.kind === 'flow' ? decodeTurn(call, message) : invalid('only calls may ask for input')
}

function decodeTurn({ id }: Call, { requests, last }: AskedTurn): Decoded {
  if (!EVENT_ID.test(last)) return invalid('the id of its last event cannot stand in a header')
  const questions = new Map<string, InputRequest>()
  const noted: TurnNote['requests'][number][] = []
  for (const { id: requestId, method, params, state } of requests) {
    if (typeof requestId !== 'string' && !Number.isSafeInteger(requestId))
      return invalid('a question has no id')
    const ping = method === 'ping'
    const question = ping ? undefined : decodeQuestion({ method, params })
    if (question === undefined && !ping) return invalid('a question is none that a client knows')
    if (questions.has(String(requestId))) return invalid('two questions have one id')
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

function invalid(problem: string): Decoded {
  return { kind: 'invalid', problem }
}
