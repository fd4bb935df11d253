/**
 * The POST that answers a turn: a JSON array of responses, and the id of the event that ended the turn. Shape and size
 * count here; whose answers they are, and to what, the state tells.
 */

import { RondoError } from '../../errors.ts'
import { isRecord } from '../../lib/is-record.ts'
import { readAnswer } from '../rev-2025-11-25/answers.ts'
import { ANSWER_LIMITS } from '../rev-2026-07-28/answers.ts'
import { readEventId, type State, type TurnAnswer, type TurnAnswers } from './turn.ts'

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
