/** The revision 2026-07-28: requests that stand alone, and rounds. */

import type { RequestCodec } from '../codec.ts'
import { decode } from './decode.ts'
import { encodeReply } from './encode.ts'

export const REV_2026_07_28: RequestCodec = { kind: 'request', versions: ['2026-07-28'], decode, encodeReply }
