/**
 * In the draft a request may say by itself what its client can be asked; where it does not, the session's word counts.
 */

import { isRecord } from '../../lib/is-record.ts'
import type { Envelope, RequestId } from '../call.ts'
import { readEnvelope as readOlderEnvelope } from '../rev-2025-11-25/envelope.ts'
import { CLIENT_CAPABILITIES } from '../rev-2026-07-28/meta-key.ts'
import type { PeerFacts } from '../session-call.ts'
import type { ClientCapabilities } from '../wire.ts'

export function readEnvelope(
  id: RequestId,
  params: Readonly<Record<string, unknown>>,
  peer: PeerFacts,
): Envelope {
  const envelope = readOlderEnvelope(id, params, peer)
  const said = isRecord(params._meta) ? params._meta[CLIENT_CAPABILITIES] : undefined
  return isRecord(said)
    ? { ...envelope, capabilities: { ...(said as ClientCapabilities), extensions: undefined } }
    : envelope
}
