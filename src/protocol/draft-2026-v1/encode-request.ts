/**
 * A call of our client in the draft: the form of 2025-11-25, and rounds. What may be asked in this call is said with the
 * call, which counts more than what was said at `initialize`.
 */

import type { Call } from '../call.ts'
import {
  encodeMessage,
  headersOf,
  metaOf,
  encodeRequest as olderRequest,
  withMeta,
} from '../rev-2025-11-25/encode-request.ts'
import { type EncodedRequest, methodOf, paramsOf } from '../rev-2026-07-28/encode-request.ts'
import { CLIENT_CAPABILITIES } from '../rev-2026-07-28/meta-key.ts'

export function encodeRequest(call: Call): EncodedRequest {
  if (call.kind !== 'flow') return olderRequest(call)
  // The extension for tasks belongs to the revision after this one.
  const { extensions: _, ...capabilities } = call.capabilities
  const meta = { ...metaOf(call), [CLIENT_CAPABILITIES]: capabilities }
  return {
    body: encodeMessage(call.id, methodOf(call), withMeta(paramsOf(call), meta)),
    headers: headersOf(call.protocolVersion),
  }
}
