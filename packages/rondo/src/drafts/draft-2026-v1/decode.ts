/**
 * A parsed message of DRAFT-2026-v1 becomes a call: the form of 2025-11-25, with rounds. `inputResponses` and `requestState`
 * are in the `params` of the three methods that may ask (A5, A6) and ignored on any other request. A request may declare
 * the questions that its client can answer, which overrides the declaration at `initialize`.
 */

import { isRecord } from '../../lib/json.ts'
import type { Envelope, PeerFacts, RequestId, TaskCall } from '../../protocol/call.ts'
import type { SessionMessage } from '../../protocol/codec.ts'
import { CLIENT_CAPABILITIES } from '../../protocol/common/json-rpc.ts'
import { ANSWER_LIMITS, readAnswers, readFlow, readTarget } from '../../protocol/common/request.ts'
import { relatedTaskOf } from '../../protocol/reply.ts'
import {
  decode as decodeOlder,
  type ParamsReader,
  readEnvelope as readOlderEnvelope,
  readTask,
  readTaskId,
  withTaskWish,
} from '../../protocol/rev-2025-11-25/decode.ts'
import type { ClientCapabilities } from '../../protocol/wire.ts'

const READER: ParamsReader = {
  envelope: readEnvelope,
  flow: (envelope, method, params) =>
    withTaskWish(readFlow(envelope, method, readTarget(method, params), params, ANSWER_LIMITS), params),
  task: (envelope, method, params) =>
    method === 'tasks/input_response'
      ? readInputResponse(envelope, params)
      : readTask(envelope, method, params),
}

/** The responses to a task's input requests; `_meta` names the task (D4). */
function readInputResponse(envelope: Envelope, params: Readonly<Record<string, unknown>>): TaskCall {
  return {
    kind: 'task',
    action: 'update',
    taskId: readTaskId(relatedTaskOf(params)),
    inputResponses: readAnswers(params.inputResponses, ANSWER_LIMITS),
    ...envelope,
  }
}

export function decode(message: unknown, peer: PeerFacts): SessionMessage {
  return decodeOlder(message, peer, READER)
}

function readEnvelope(id: RequestId, params: Readonly<Record<string, unknown>>, peer: PeerFacts): Envelope {
  const envelope = readOlderEnvelope(id, params, peer)
  const said = isRecord(params._meta) ? params._meta[CLIENT_CAPABILITIES] : undefined
  return isRecord(said)
    ? { ...envelope, capabilities: { ...(said as ClientCapabilities), extensions: undefined } }
    : envelope
}
