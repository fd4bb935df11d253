/** DRAFT-2026-v1: the form of 2025-11-25, with rounds. */

import type { SessionCodec } from '../../protocol/codec.ts'
import { REV_2025_11_25 } from '../../protocol/rev-2025-11-25/codec.ts'
import { decodeResponse, encodeRequest, methodOf } from './client.ts'
import { decode } from './decode.ts'
import { encodeReply } from './encode.ts'

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
    encodeReply: (id, reply) => encodeReply(id, reply, version),
  }),
  client: { methodOf, encodeRequest, decodeResponse },
}
