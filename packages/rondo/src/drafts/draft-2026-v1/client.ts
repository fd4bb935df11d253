/**
 * The client side of DRAFT-2026-v1: the form of 2025-11-25, with rounds. A call says what may be asked in it, which
 * overrides what was said at `initialize`.
 *
 * Rounds are read as at 2026-07-28 and tasks as at 2025-11-25, except that `tasks/result` also returns the questions of a
 * task (D3), with a state to echo. Responses to them have a method of their own and name the task in `_meta` (D4).
 */

import type { Call, Envelope, TaskCall } from '../../protocol/call.ts'
import type { EncodedRequest } from '../../protocol/codec.ts'
import {
  CLIENT_CAPABILITIES,
  encodeMessage,
  methodOf as laterMethod,
  paramsOf,
} from '../../protocol/common/json-rpc.ts'
import type { DecodedResponse } from '../../protocol/common/received.ts'
import { relatedTask } from '../../protocol/reply.ts'
import {
  decodeWithTasks,
  headersOf,
  metaOf,
  encodeRequest as olderRequest,
  taskWishOf,
  withMeta,
} from '../../protocol/rev-2025-11-25/client.ts'
import { decodeResponse as decodeLater } from '../../protocol/rev-2026-07-28/client.ts'

interface DraftTaskCall extends TaskCall {
  /** The state that came with the questions. */
  readonly requestState?: string
}

export function encodeRequest(call: Call): EncodedRequest {
  if (call.kind === 'task') return encodeTask(call)
  if (call.kind !== 'flow') return olderRequest(call)
  const params = { ...paramsOf(call), ...taskWishOf(call) }
  return {
    body: encodeMessage(call.id, methodOf(call), withMeta(params, declaringMeta(call))),
    headers: headersOf(call.protocolVersion),
  }
}

/** The `_meta` of a request, whose capabilities have no extensions: the one for tasks came with the next revision. */
function declaringMeta(call: Envelope): Readonly<Record<string, unknown>> {
  const { extensions: _, ...capabilities } = call.capabilities
  return { ...metaOf(call), [CLIENT_CAPABILITIES]: capabilities }
}

export function methodOf(call: Call): string {
  return call.kind === 'task' && call.action === 'update' ? 'tasks/input_response' : laterMethod(call)
}

function encodeTask(call: DraftTaskCall): EncodedRequest {
  const { taskId, inputResponses = {}, requestState } = call
  const params =
    call.action === 'update'
      ? withMeta(
          { inputResponses, ...(requestState !== undefined && { requestState }) },
          { ...metaOf(call), ...relatedTask(taskId) },
        )
      : withMeta({ taskId }, declaringMeta(call))
  return {
    body: encodeMessage(call.id, methodOf(call), params),
    headers: headersOf(call.protocolVersion),
  }
}

export function decodeResponse(call: Call, message: unknown): DecodedResponse {
  return decodeWithTasks(call, message, decodeLater)
}
