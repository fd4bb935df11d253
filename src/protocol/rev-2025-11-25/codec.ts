/**
 * The revisions up to 2025-11-25: sessions, and input requests that are pushed. They share one form; `encode.ts` leaves out
 * what a version lacks.
 */

import type { SessionCodec } from '../codec.ts'
import { decode, hasTasks } from './decode.ts'
import { encodeError, encodeReply, encodeRequest, encodeTaskStatus } from './encode.ts'

/** Newest first. */
export const VERSIONS: readonly string[] = ['2025-11-25', '2025-06-18', '2025-03-26', '2024-11-05']

export const REV_2025_11_25: SessionCodec = {
  kind: 'session',
  versions: VERSIONS,
  dialect: (version) => ({
    rounds: false,
    tasks: hasTasks(version),
    primesStreams: version >= '2025-11-25',
    // 2025-06-18 removed batches.
    batches: version === '2025-03-26' || version === '2024-11-05',
    decode,
    encodeReply: (id, reply) => encodeReply(id, reply, version),
    encodeError,
    encodeRequest: (id, request, elicitationId, task) =>
      encodeRequest(id, request, version, elicitationId, task),
    encodeTaskStatus,
  }),
}
