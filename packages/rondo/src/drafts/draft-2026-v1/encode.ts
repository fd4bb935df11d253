/** A reply becomes a JSON-RPC response of DRAFT-2026-v1: that of 2025-11-25, with a `resultType` in every result (A4). */

import { RondoError } from '../../errors.ts'
import type { RequestId } from '../../protocol/call.ts'
import type { OlderReply } from '../../protocol/reply.ts'
import { completeText, encodeError, encodeWireError } from '../../protocol/rev-2025-11-25/encode.ts'

/** The whole response. A reply that cannot be written as JSON becomes an internal error. */
export function encodeReply(id: RequestId, reply: OlderReply, version: string): string {
  if (reply.kind === 'error') return encodeError(id, reply.error)
  if (reply.kind === 'task_failed') return encodeWireError(id, reply.error)
  try {
    return `{"jsonrpc":"2.0","id":${JSON.stringify(id)},"result":${resultText(reply, version)}}`
  } catch (error) {
    return encodeError(id, new RondoError('SERVER_INTERNAL', 'The result is not JSON', { cause: error }))
  }
}

function resultText(reply: Exclude<OlderReply, { kind: 'error' | 'task_failed' }>, version: string): string {
  if (reply.kind === 'input_required') {
    const { inputRequests, requestState, _meta } = reply
    return JSON.stringify({ resultType: 'input_required', inputRequests, requestState, _meta })
  }
  const text = completeText(reply, version)
  return text === '{}' ? '{"resultType":"complete"}' : `{"resultType":"complete",${text.slice(1)}`
}
