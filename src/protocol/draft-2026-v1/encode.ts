/**
 * A reply as a response of the draft: the form of 2025-11-25, and on every result its `resultType` (A4).
 */

import { RondoError } from '../../errors.ts'
import type { RequestId } from '../call.ts'
import type { OlderReply } from '../older-reply.ts'
import { completeText, encodeError, errorText } from '../rev-2025-11-25/encode.ts'
import { DRAFT_VERSION } from './version.ts'

/** The whole response. A reply that cannot be written as JSON becomes an internal error. */
export function encodeReply(id: RequestId, reply: OlderReply): string {
  if (reply.kind === 'error') return encodeError(id, reply.error)
  if (reply.kind === 'task_failed') return errorText(id, reply.error)
  try {
    return `{"jsonrpc":"2.0","id":${JSON.stringify(id)},"result":${resultText(reply)}}`
  } catch (error) {
    return encodeError(id, new RondoError('SERVER_INTERNAL', 'The result is not JSON', { cause: error }))
  }
}

function resultText(reply: Exclude<OlderReply, { kind: 'error' | 'task_failed' }>): string {
  if (reply.kind === 'input_required') {
    const { inputRequests, requestState, _meta } = reply
    return JSON.stringify({ resultType: 'input_required', inputRequests, requestState, _meta })
  }
  const text = completeText(reply, DRAFT_VERSION)
  return text === '{}' ? '{"resultType":"complete"}' : `{"resultType":"complete",${text.slice(1)}`
}
