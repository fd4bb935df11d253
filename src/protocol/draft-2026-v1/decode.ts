/**
 * A parsed message of the draft: the form of 2025-11-25, and rounds. `inputResponses` and `requestState` stand in
 * `params` of the three methods that may ask (A5, A6); on any other request they mean nothing.
 */

import type { Envelope, TaskCall } from '../call.ts'
import { type Decoded, decode as decodeOlder, type Reader } from '../rev-2025-11-25/decode.ts'
import { readTask, readTaskId, withTaskWish } from '../rev-2025-11-25/task-params.ts'
import { relatedTaskOf } from '../rev-2025-11-25/task-result.ts'
import { ANSWER_LIMITS, readAnswers } from '../rev-2026-07-28/answers.ts'
import { readFlow, readTarget } from '../rev-2026-07-28/params.ts'
import type { PeerFacts } from '../session-call.ts'
import { readEnvelope } from './envelope.ts'

const READER: Reader = {
  envelope: readEnvelope,
  flow: (envelope, method, params) =>
    withTaskWish(readFlow(envelope, method, readTarget(method, params), params, ANSWER_LIMITS), params),
  task: (envelope, method, params) =>
    method === 'tasks/input_response'
      ? readInputResponse(envelope, params)
      : readTask(envelope, method, params),
}

/** The answers to a task's questions; which task, `_meta` says (D4). */
function readInputResponse(envelope: Envelope, params: Readonly<Record<string, unknown>>): TaskCall {
  return {
    kind: 'task',
    action: 'respond',
    taskId: readTaskId(relatedTaskOf(params)),
    inputResponses: readAnswers(params.inputResponses, ANSWER_LIMITS),
    ...envelope,
  }
}

export function decode(message: unknown, peer: PeerFacts): Decoded {
  return decodeOlder(message, peer, READER)
}
