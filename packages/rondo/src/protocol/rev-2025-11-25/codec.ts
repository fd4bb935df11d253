/**
 * The revisions up to 2025-11-25: sessions, and input requests that are pushed. They share one form; encoding leaves out
 * what a version lacks.
 */

import type { SessionCodec } from '../codec.ts'
import { methodOf } from '../common/json-rpc.ts'
import { decodeResponse, encodeRequest as encodeCall } from './client.ts'
import { decode, hasTasks } from './decode.ts'
import { encodeError, encodeReply, encodeRequest, encodeTaskStatus } from './encode.ts'

/** Newest first. */
export const VERSIONS = ['2025-11-25', '2025-06-18', '2025-03-26', '2024-11-05'] as const

/** The version of a request that states none, as clients up to this version do. */
export const UNSTATED: string = '2025-03-26'

export const REV_2025_11_25: SessionCodec = {
  kind: 'session',
  versions: VERSIONS,
  dialect: (version) => ({
    rounds: false,
    tasks: hasTasks(version),
    primesStreams: version >= '2025-11-25',
    // 2025-06-18 removed batches.
    batches: version < '2025-06-18',
    decode,
    encodeReply: (id, reply) => encodeReply(id, reply, version),
    encodeError,
    encodeRequest: (id, request, elicitationId, origin) =>
      encodeRequest(id, request, version, elicitationId, origin),
    encodeTaskStatus,
  }),
  client: { methodOf, encodeRequest: encodeCall, decodeResponse },
}
