/**
 * A call of the client as a 2026-07-28 message, and the headers that repeat parts of it over HTTP.
 *
 * Every request says who sends it and in which dialect. `inputResponses` and `requestState` go beside the original
 * parameters; the state is opaque.
 */

import type { Call, Envelope } from '../call.ts'
import { type EncodedRequest, methodOf, paramsOf } from '../common/encode-call.ts'
import { encodeHeaderValue, type ParamHeader, paramHeaderValues } from '../common/headers.ts'
import { CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL, PROTOCOL_VERSION } from '../common/meta-key.ts'

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

/** `notifications/cancelled`, for transports that cannot hang up. */
export function encodeCancel(requestId: string | number, reason?: string): string {
  const params = reason === undefined ? { requestId } : { requestId, reason }
  return JSON.stringify({ jsonrpc: '2.0', method: 'notifications/cancelled', params })
}

function metaOf(call: Envelope): Record<string, unknown> {
  return {
    [PROTOCOL_VERSION]: call.protocolVersion,
    [CLIENT_CAPABILITIES]: call.capabilities,
    ...(call.clientInfo && { [CLIENT_INFO]: call.clientInfo }),
    ...(call.logLevel && { [LOG_LEVEL]: call.logLevel }),
    ...(call.progressToken !== undefined && { progressToken: call.progressToken }),
    ...call.trace,
  }
}
