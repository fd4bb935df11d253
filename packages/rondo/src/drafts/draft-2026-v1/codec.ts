/**
 * DRAFT-2026-v1 on a server: the form of 2025-11-25, with rounds. `inputResponses` and `requestState` are in the `params`
 * of the three methods that may ask (A5, A6) and ignored on any other request. A request may declare what its client can be
 * asked, which overrides what was said at `initialize`. Every result has a `resultType` (A4).
 */

import { RondoError } from '../../errors.ts'
import { isRecord } from '../../lib/json.ts'
import type { Envelope, PeerFacts, RequestId, TaskCall } from '../../protocol/call.ts'
import type { SessionCodec, SessionMessage } from '../../protocol/codec.ts'
import { CLIENT_CAPABILITIES } from '../../protocol/common/json-rpc.ts'
import { ANSWER_LIMITS, readAnswers, readFlow, readTarget } from '../../protocol/common/request.ts'
import { type OlderReply, relatedTaskOf } from '../../protocol/reply.ts'
import {
  decode as decodeOlder,
  type ParamsReader,
  readEnvelope as readOlderEnvelope,
  readTask,
  readTaskId,
  withTaskWish,
} from '../../protocol/rev-2025-11-25/decode.ts'
import {
  completeText,
  encodeError,
  encodeWireError,
  REV_2025_11_25,
} from '../../protocol/rev-2025-11-25/encode.ts'
import type { ClientCapabilities } from '../../protocol/wire.ts'

/** The label of the accepted proposal for multi round-trip requests before it was published. */
export const DRAFT_VERSION = 'DRAFT-2026-v1'

export const DRAFT_2026_V1: SessionCodec = {
  kind: 'session',
  versions: [DRAFT_VERSION],
  draft: true,
  dialect: (version) => ({
    ...REV_2025_11_25.dialect(version),
    rounds: true,
    decode,
    encodeReply,
  }),
}

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

function decode(message: unknown, peer: PeerFacts): SessionMessage {
  return decodeOlder(message, peer, READER)
}

function readEnvelope(id: RequestId, params: Readonly<Record<string, unknown>>, peer: PeerFacts): Envelope {
  const envelope = readOlderEnvelope(id, params, peer)
  const said = isRecord(params._meta) ? params._meta[CLIENT_CAPABILITIES] : undefined
  return isRecord(said)
    ? { ...envelope, capabilities: { ...(said as ClientCapabilities), extensions: undefined } }
    : envelope
}

/** The whole response. A reply that cannot be written as JSON becomes an internal error. */
function encodeReply(id: RequestId, reply: OlderReply): string {
  if (reply.kind === 'error') return encodeError(id, reply.error)
  if (reply.kind === 'task_failed') return encodeWireError(id, reply.error)
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
