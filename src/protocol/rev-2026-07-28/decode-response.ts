/**
 * A JSON-RPC response to our client as `Received`, or the reason why it is none.
 *
 * A4: a result without `resultType` is complete. A6: `input_required` is valid for calls, prompts and resources only;
 * elsewhere, and with any type this client does not know, the response is invalid. A3: at least one of questions and
 * state, and the state is a string. A task is valid for tool calls that said they can follow one, and nowhere else.
 */

import { isRecord } from '../../lib/json.ts'
import type { Call } from '../call.ts'
import {
  type DecodedResponse,
  decodeComplete,
  decodeError,
  decodeQuestions,
  decodeTask,
  invalid,
} from '../common/decode-result.ts'
import { followsTasks } from '../common/request.ts'

export function decodeResponse(call: Call, message: unknown): DecodedResponse {
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
    case 'task':
      return decodeCreated(call, result)
    default:
      return invalid(`its resultType ${JSON.stringify(result.resultType)} is not known`)
  }
}

function decodeCreated(call: Call, result: Readonly<Record<string, unknown>>): DecodedResponse {
  if (call.kind !== 'flow' || call.method !== 'tools/call') return invalid('only tool calls may become tasks')
  if (!followsTasks(call.capabilities)) return invalid('it is a task, which this request did not allow')
  const task = decodeTask(result, 'head')
  return task === undefined ? invalid('it lacks what a task has') : { kind: 'task', task }
}

function decodeInputRequired(result: Readonly<Record<string, unknown>>): DecodedResponse {
  const questions = decodeQuestions(result.inputRequests)
  const state = result.requestState
  if (questions === undefined) return invalid('inputRequests is not a map of requests a client knows')
  if (state !== undefined && typeof state !== 'string') return invalid('requestState is not a string')
  if (state === undefined && Object.keys(questions).length === 0) {
    return invalid('it has neither inputRequests nor requestState')
  }
  return { kind: 'input_required', questions, ...(state !== undefined && { state }) }
}
