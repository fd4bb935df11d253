/**
 * A session that no instance has to remember: its id is what the client said when it came, sealed.
 *
 *   "t." + the envelope (`envelope.ts`) of the JSON of { principal, facts }
 *
 * It grants nothing. The caller is authenticated on every request; the id only spares it to repeat its capabilities, and
 * is refused to anybody but the principal it was made for. It ends with the key that sealed it.
 */

import { isRecord, isText } from '../lib/json.ts'
import type { PeerFacts } from '../protocol/call.ts'
import { openEnvelope, sealEnvelope } from './envelope.ts'
import type { KeyRing } from './key-ring.ts'

const PREFIX = 't.'
/** All headers of a request together have 16 KiB by default, and some clients take no id beyond 1024. */
const MAX_LENGTH = 1_024

export function isSealedSession(id: string | undefined): boolean {
  return id?.startsWith(PREFIX) === true
}

/** The caller sees to it that the facts fit a header. */
export function sealSession(ring: KeyRing, audience: string, principal: string, facts: PeerFacts): string {
  return PREFIX + sealEnvelope(ring, placeOf(audience), JSON.stringify({ principal, facts })).token
}

/** Undefined for an id that we did not make for this principal. */
export function openSession(
  ring: KeyRing,
  audience: string,
  principal: string,
  id: string,
): PeerFacts | undefined {
  const opened = openEnvelope(ring, placeOf(audience), id.slice(PREFIX.length), MAX_LENGTH)
  if (!isSealedSession(id) || opened.kind === 'refused') return undefined
  const value: unknown = JSON.parse(opened.plaintext.toString('utf8'))
  if (!isRecord(value) || value.principal !== principal || !isRecord(value.facts)) return undefined
  const { protocolVersion, capabilities } = value.facts
  return isText(protocolVersion) && isRecord(capabilities) ? (value.facts as unknown as PeerFacts) : undefined
}

/** Apart from everything else that is sealed with the ring. */
function placeOf(audience: string): string {
  return JSON.stringify(['session', audience])
}
