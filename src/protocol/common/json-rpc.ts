/**
 * JSON-RPC messages as text. Ids, errors and notifications have the same form in every revision.
 */

import type { RondoError } from '../../errors.ts'
import type { RequestId } from '../call.ts'
import type { WireError } from '../reply.ts'

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

function idText(id: RequestId | null): string {
  return typeof id === 'string' ? JSON.stringify(id) : String(id)
}
