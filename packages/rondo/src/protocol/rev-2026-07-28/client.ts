/**
 * The client's side of 2026-07-28: a call becomes a message, with the headers that repeat parts of it over HTTP, and a
 * response is read.
 *
 * Every request says who sends it and in which dialect. `inputResponses` and `requestState` go beside the original
 * parameters; the state is opaque.
 */

import { isRecord } from '../../lib/json.ts'
import type { Call, Envelope } from '../call.ts'
import type { EncodedRequest } from '../codec.ts'
import { encodeHeaderValue, type ParamHeader, paramHeaderValues } from '../common/headers.ts'
import {
  CLIENT_CAPABILITIES,
  CLIENT_INFO,
  LOG_LEVEL,
  methodOf,
  PROTOCOL_VERSION,
  paramsOf,
} from '../common/json-rpc.ts'
import {
  type DecodedResponse,
  decodeComplete,
  decodeError,
  decodeQuestions,
  decodeTask,
  invalid,
} from '../common/received.ts'
import { followsTasks } from '../common/request.ts'

export function encodeRequest(call: Call, mirrored: readonly ParamHeader[] = []): EncodedRequest {
  const method = methodOf(call)
  const params = { ...paramsOf(call), _meta: metaOf(call) }
  const body = JSON.stringify({ jsonrpc: '2.0', id: call.id, method, params })
  const headers: Record<string, string> = {
    'Content-Type': 'application/json',
    Accept: 'application/json, text/event-stream',
    'MCP-Protocol-Version': call.protocolVersion,
    'Mcp-Method': method,
  }
  if (call.kind === 'task') headers['Mcp-Name'] = encodeHeaderValue(call.taskId)
  if (call.kind === 'flow') {
    headers['Mcp-Name'] = encodeHeaderValue(call.target)
    if (mirrored.length > 0) Object.assign(headers, paramHeaderValues(mirrored, call.args))
  }
  return { body, headers }
}

function metaOf(call: Envelope): Record<string, unknown> {
  return {
    ...call.meta,
    [PROTOCOL_VERSION]: call.protocolVersion,
    [CLIENT_CAPABILITIES]: call.capabilities,
    ...(call.clientInfo && { [CLIENT_INFO]: call.clientInfo }),
    ...(call.logLevel && { [LOG_LEVEL]: call.logLevel }),
    ...(call.progressToken !== undefined && { progressToken: call.progressToken }),
    ...call.trace,
  }
}

// A JSON-RPC response as `Received`, or the reason why it is invalid.
//
// A3 `input_required` has input requests, a state, or both; the state is a string.
// A4 A result without `resultType` is complete. A result of an unknown type is invalid.
// A6 `input_required` is valid for calls, prompts and resources only. A task is valid only for tool calls that declared
// that they can follow one.

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
      return invalid(`its resultType ${JSON.stringify(result.resultType)?.slice(0, 100)} is not known`)
  }
}

function decodeCreated(call: Call, result: Readonly<Record<string, unknown>>): DecodedResponse {
  if (call.kind !== 'flow' || call.method !== 'tools/call') return invalid('only tool calls may become tasks')
  if (!followsTasks(call.capabilities)) return invalid('it is a task, but the request did not declare tasks')
  const task = decodeTask(result, 'head')
  return task === undefined ? invalid('it lacks the fields of a task') : { kind: 'task', task }
}

function decodeInputRequired(result: Readonly<Record<string, unknown>>): DecodedResponse {
  const questions = decodeQuestions(result.inputRequests)
  const state = result.requestState
  if (questions === undefined) return invalid('inputRequests is not a map of requests that this client knows')
  if (state !== undefined && typeof state !== 'string') return invalid('requestState is not a string')
  if (state === undefined && Object.keys(questions).length === 0) {
    return invalid('it has neither inputRequests nor requestState')
  }
  return { kind: 'input_required', questions, ...(state !== undefined && { state }) }
}
