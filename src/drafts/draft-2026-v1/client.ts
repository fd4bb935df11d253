/**
 * A call of our client in the draft: the form of 2025-11-25, and rounds. What may be asked in this call is said with the
 * call, which counts more than what was said at `initialize`.
 */

import type { Call, Envelope, TaskCall } from '../../protocol/call.ts'
import type { DecodedResponse } from '../../protocol/common/decode-result.ts'
import { type EncodedRequest, methodOf as laterMethod, paramsOf } from '../../protocol/common/encode-call.ts'
import { encodeMessage } from '../../protocol/common/json-rpc.ts'
import { CLIENT_CAPABILITIES } from '../../protocol/common/meta-key.ts'
import { decodeWithTasks } from '../../protocol/rev-2025-11-25/decode-response.ts'
import {
  headersOf,
  metaOf,
  encodeRequest as olderRequest,
  taskWishOf,
  withMeta,
} from '../../protocol/rev-2025-11-25/encode-request.ts'
import { decodeResponse as decodeLater } from '../../protocol/rev-2026-07-28/decode-response.ts'
import { RELATED_TASK } from '../../protocol/task.ts'

export function encodeRequest(call: Call): EncodedRequest {
  if (call.kind === 'task') return encodeTask(call)
  if (call.kind !== 'flow') return olderRequest(call)
  const params = { ...paramsOf(call), ...taskWishOf(call) }
  return {
    body: encodeMessage(call.id, methodOf(call), withMeta(params, declaringMeta(call))),
    headers: headersOf(call.protocolVersion),
  }
}

/** The extension for tasks belongs to the revision after this one. */
function declaringMeta(call: Envelope): Readonly<Record<string, unknown>> {
  const { extensions: _, ...capabilities } = call.capabilities
  return { ...metaOf(call), [CLIENT_CAPABILITIES]: capabilities }
}

/** Answers have a method of their own, and name their task in `_meta` (D4). */
export function methodOf(call: Call): string {
  return call.kind === 'task' && call.action === 'respond' ? 'tasks/input_response' : laterMethod(call)
}

function encodeTask(call: TaskCall): EncodedRequest {
  const { taskId, inputResponses = {}, requestState } = call
  const params =
    call.action === 'respond'
      ? withMeta(
          { inputResponses, ...(requestState !== undefined && { requestState }) },
          { ...metaOf(call), [RELATED_TASK]: { taskId } },
        )
      : withMeta({ taskId }, declaringMeta(call))
  return {
    body: encodeMessage(call.id, methodOf(call), params),
    headers: headersOf(call.protocolVersion),
  }
}

/*
 * A response to our client in the draft: rounds as at 2026-07-28, tasks as at 2025-11-25, but for `tasks/result`, which
 * brings the questions of a task too (D3).
 */

export function decodeResponse(call: Call, message: unknown): DecodedResponse {
  return decodeWithTasks(call, message, decodeLater)
}
