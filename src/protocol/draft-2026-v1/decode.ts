/**
 * A parsed message of the draft: the form of 2025-11-25, and rounds. `inputResponses` and `requestState` stand in
 * `params` of the three methods that may ask (A5, A6); on any other request they mean nothing.
 */

import { type Decoded, decode as decodeOlder, type Reader } from '../rev-2025-11-25/decode.ts'
import { ANSWER_LIMITS } from '../rev-2026-07-28/answers.ts'
import { readFlow, readTarget } from '../rev-2026-07-28/params.ts'
import type { PeerFacts } from '../session-call.ts'
import { readEnvelope } from './envelope.ts'

const READER: Reader = {
  envelope: readEnvelope,
  flow: (envelope, method, params) =>
    readFlow(envelope, method, readTarget(method, params), params, ANSWER_LIMITS),
}

export function decode(message: unknown, peer: PeerFacts): Decoded {
  return decodeOlder(message, peer, READER)
}
