/**
 * JSON-RPC messages as text, as far as they have the same form in every revision: ids, errors, notifications, the keys of
 * `_meta`, and the method and parameters of a call. The rest of a request (`_meta`, headers) is up to the revision.
 */

import type { RondoError } from '../../errors.ts'
import type { Call, FlowCall, Listing, RequestId, TaskListCall } from '../call.ts'
import type { WireError } from '../reply.ts'

// The keys of `_meta` that the specification reserves.
export const PROTOCOL_VERSION = 'io.modelcontextprotocol/protocolVersion'
export const CLIENT_CAPABILITIES = 'io.modelcontextprotocol/clientCapabilities'
export const CLIENT_INFO = 'io.modelcontextprotocol/clientInfo'
export const LOG_LEVEL = 'io.modelcontextprotocol/logLevel'
export const SERVER_INFO = 'io.modelcontextprotocol/serverInfo'
/** Of the tasks extension, as drafted. */
export const RELATED_TASK_IDS = 'io.modelcontextprotocol/relatedTaskIds'
export const SUBSCRIPTION_ID = 'io.modelcontextprotocol/subscriptionId'

/** `result` is JSON text. */
export function responseText(id: RequestId, result: string): string {
  return `{"jsonrpc":"2.0","id":${idText(id)},"result":${result}}`
}

export function errorText(id: RequestId | null, { code, message, data }: WireError): string {
  return `{"jsonrpc":"2.0","id":${idText(id)},"error":${JSON.stringify({ code, message, data })}}`
}

export function encodeError(id: RequestId | null, error: RondoError): string {
  return errorText(id, { code: error.rpc, message: error.sentence, data: error.data })
}

export function encodeNotification(method: string, params: Readonly<Record<string, unknown>>): string {
  return `{"jsonrpc":"2.0","method":${JSON.stringify(method)},"params":${JSON.stringify(params)}}`
}

/** A request of any method; without an id, a notification. Empty params are left out. */
export function encodeMessage(
  id: RequestId | undefined,
  method: string,
  params: Readonly<Record<string, unknown>> = {},
): string {
  const empty = Object.keys(params).length === 0
  return JSON.stringify({
    jsonrpc: '2.0',
    ...(id !== undefined && { id }),
    method,
    ...(!empty && { params }),
  })
}

/** `notifications/cancelled`, for transports that cannot hang up. */
export function encodeCancel(requestId: RequestId): string {
  return encodeMessage(undefined, 'notifications/cancelled', { requestId })
}

function idText(id: RequestId | null): string {
  return typeof id === 'string' ? JSON.stringify(id) : String(id)
}

const LIST_METHODS: Readonly<Record<Listing, string>> = {
  tools: 'tools/list',
  prompts: 'prompts/list',
  resources: 'resources/list',
  templates: 'resources/templates/list',
}

export function methodOf(call: Call | TaskListCall): string {
  switch (call.kind) {
    case 'flow':
    case 'custom':
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
    case 'tasks':
      return 'tasks/list'
  }
}

/** The parameters of a call besides `_meta`. */
export function paramsOf(call: Call): Record<string, unknown> {
  switch (call.kind) {
    case 'flow':
      return flowParams(call)
    case 'list':
      return call.cursor === undefined ? {} : { cursor: call.cursor }
    case 'discover':
      return {}
    case 'custom':
      return { ...call.args }
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
