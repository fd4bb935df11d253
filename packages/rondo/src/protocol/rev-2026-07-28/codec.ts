/** The revision 2026-07-28: requests that stand alone, and rounds. */

import type { RequestCodec } from '../codec.ts'
import { methodOf } from '../common/json-rpc.ts'
import { decodeResponse, encodeRequest } from './client.ts'
import { decode } from './decode.ts'
import { encodeReply } from './encode.ts'

/** Newest first. */
export const VERSIONS = ['2026-07-28'] as const

export const REV_2026_07_28: RequestCodec = {
  kind: 'request',
  versions: VERSIONS,
  decode,
  encodeReply,
  client: { methodOf, encodeRequest, decodeResponse },
}
