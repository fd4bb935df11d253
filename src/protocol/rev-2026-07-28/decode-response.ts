/**
 * A JSON-RPC response to our client as `Received`, or the reason why it is none.
 *
 * A4: a result without `resultType` is complete. A6: `input_required` is valid for calls, prompts and resources only;
 * elsewhere, and with any type this client does not know, the response is invalid. A3: at least one of questions and
 * state, and the state is a string.
 */

import { isRecord } from '../../lib/is-record.ts'
import type { Call } from '../call.ts'
import type { Received } from '../received.ts'
import { decodeQuestions } from './decode-question.ts'
import { decodeFlowResult } from './decode-result.ts'

export type Decoded = Received | { readonly kind: 'invalid'; readonly problem: string }

export function decodeResponse(call: Call, message: unknown): Decoded {
  if (!isRecord(message) || message.jsonrpc !== '2.0') return invalid('it is not a JSON-RPC message')
  if (message.error !== undefined) return decodeError(message.error)
  if (!isRecord(message.result)) return invalid('it has neither a result nor an error')
  const { result } = message
  switch (result.resultType) {
    case undefined:
    case 'complete':
      return decodeComplete(call, result)
    case 'input_required':
      return call.kind === 'flow' ? decodeInputRequired(result) : invalid('only calls may ask for input')
    default:
      return invalid(`its resultType ${JSON.stringify(result.resultType)} is not known`)
  }
}

function decodeComplete(call: Call, result: Readonly<Record<string, unknown>>): Decoded {
  if (call.kind !== 'flow') return { kind: 'complete', result }
  const checked = decodeFlowResult(call.method, result)
  return checked === undefined
    ? invalid(`it lacks what ${call.method} gives`)
    : { kind: 'complete', result: checked }
}

function decodeInputRequired(result: Readonly<Record<string, unknown>>): Decoded {
  const questions = decodeQuestions(result.inputRequests)
  const state = result.requestState
  if (questions === undefined) return invalid('inputRequests is not a map of requests a client knows')
  if (state !== undefined && typeof state !== 'string') return invalid('requestState is not a string')
  if (state === undefined && Object.keys(questions).length === 0) {
    return invalid('it has neither inputRequests nor requestState')
  }
  return { kind: 'input_required', questions, ...(state !== undefined && { state }) }
}

function decodeError(error: unknown): Decoded {
  if (!isRecord(error) || !Number.isInteger(error.code) || typeof error.message !== 'string') {
    return invalid('its error has no integer code or no message')
  }
  const { code, message, data } = error
  return { kind: 'error', error: { code: Number(code), message, ...(data !== undefined && { data }) } }
}

function invalid(problem: string): Decoded {
  return { kind: 'invalid', problem }
}
