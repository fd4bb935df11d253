/**
 * A call of our client as a 2026-07-28 message, and the headers that repeat parts of it over HTTP.
 *
 * Every request says who asks and in which dialect; nothing is left to a connection. Answers and state stand beside
 * the original parameters, as they are: the state is not looked at, let alone parsed.
 */

import type { Call, Envelope, FlowCall, Listing } from '../call.ts'
import { encodeHeaderValue, type ParamHeader, paramHeaderValues } from '../common/headers.ts'
import { CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL, PROTOCOL_VERSION } from '../common/meta-key.ts'

export interface EncodedRequest {
  /** One JSON-RPC message. */
  readonly body: string
  readonly headers: Readonly<Record<string, string>>
}

const LIST_METHODS: Readonly<Record<Listing, string>> = {
  tools: 'tools/list',
  prompts: 'prompts/list',
  resources: 'resources/list',
  templates: 'resources/templates/list',
}

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

/** `notifications/cancelled`, for transports that cannot simply hang up. */
export function encodeCancel(requestId: string | number, reason?: string): string {
  const params = reason === undefined ? { requestId } : { requestId, reason }
  return JSON.stringify({ jsonrpc: '2.0', method: 'notifications/cancelled', params })
}

export function methodOf(call: Call): string {
  switch (call.kind) {
    case 'flow':
      return call.method
    case 'list':
      return LIST_METHODS[call.listing]
    case 'discover':
      return 'server/discover'
    case 'complete':
      return 'completion/complete'
    case 'listen':
      return 'subscriptions/listen'
    case 'task':
      return `tasks/${call.action}`
  }
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

/** What a call says beside `_meta`. */
export function paramsOf(call: Call): Record<string, unknown> {
  switch (call.kind) {
    case 'flow':
      return flowParams(call)
    case 'list':
      return call.cursor === undefined ? {} : { cursor: call.cursor }
    case 'discover':
      return {}
    case 'complete':
      return {
        ref:
          call.ref.kind === 'prompt'
            ? { type: 'ref/prompt', name: call.ref.name }
            : { type: 'ref/resource', uri: call.ref.uri },
        argument: call.argument,
        ...(Object.keys(call.context).length > 0 && { context: { arguments: call.context } }),
      }
    case 'listen':
      return { notifications: call.filter }
    case 'task':
      return {
        taskId: call.taskId,
        ...(call.action === 'update' && { inputResponses: call.inputResponses ?? {} }),
      }
  }
}

function flowParams(call: FlowCall): Record<string, unknown> {
  return {
    ...(call.method === 'resources/read'
      ? { uri: call.target }
      : { name: call.target, arguments: call.args }),
    ...(call.inputResponses && { inputResponses: call.inputResponses }),
    ...(call.requestState !== undefined && { requestState: call.requestState }),
  }
}
