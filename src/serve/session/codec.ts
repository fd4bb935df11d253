/** Which codec speaks a version that a session can have. */

import type { RequestId } from '../../protocol/call.ts'
import { decode as decodeDraft } from '../../protocol/draft-2026-v1/decode.ts'
import { encodeReply as encodeDraftReply } from '../../protocol/draft-2026-v1/encode.ts'
import { DRAFT_VERSION } from '../../protocol/draft-2026-v1/version.ts'
import type { OlderReply } from '../../protocol/older-reply.ts'
import { type Decoded, decode } from '../../protocol/rev-2025-11-25/decode.ts'
import { encodeReply } from '../../protocol/rev-2025-11-25/encode.ts'
import type { PeerFacts } from '../../protocol/session-call.ts'

export interface Codec {
  decode(message: unknown, peer: PeerFacts): Decoded
  encodeReply(id: RequestId, reply: OlderReply): string
}

const DRAFT: Codec = { decode: decodeDraft, encodeReply: encodeDraftReply }

export function codecOf(protocolVersion: string): Codec {
  if (protocolVersion === DRAFT_VERSION) return DRAFT
  return { decode, encodeReply: (id, reply) => encodeReply(id, reply, protocolVersion) }
}
