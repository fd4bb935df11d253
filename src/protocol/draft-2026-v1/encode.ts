/**
 * A reply as a response of the draft: the form of 2025-11-25, and on every result its `resultType` (A4).
 */

import { RondoError } from '../../errors.ts'
import type { RequestId } from '../call.ts'
import type { Reply } from '../reply.ts'
import { encodeError, olderResult } from '../rev-2025-11-25/encode.ts'

/** The whole response. A reply that cannot be written as JSON becomes an internal error. */
export function encodeReply(id: RequestId, reply: Reply): string {
  if (reply.kind === 'error') return encodeError(id, reply.error)
  try {
    return `{"jsonrpc":"2.0","id":${JSON.stringify(id)},"result":${resultText(reply)}}`
  } catch (error) {
    return encodeError(id, new RondoError('SERVER_INTERNAL', 'The result is not JSON', { cause: error }))
  }
}

function resultText(reply: Exclude<Reply, { kind: 'error' }>): string {
  if (reply.kind === 'input_required') {
    const { inputRequests, requestState } = reply
    return JSON.stringify({ resultType: 'input_required', inputRequests, requestState })
  }
  if (reply.kind === 'task' || reply.kind === 'task_created') {
    throw new TypeError('tasks of this kind do not exist in the draft')
  }
  const text = reply.kind === 'serialized' ? reply.json : JSON.stringify(olderResult(reply.result))
  return text === '{}' ? '{"resultType":"complete"}' : `{"resultType":"complete",${text.slice(1)}`
}
