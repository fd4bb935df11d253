/**
 * A session that no instance has to remember: its id is what the client said in `initialize`, sealed.
 *
 *   "t." + the envelope (`envelope.ts`) of the JSON of { principal, facts }
 *
 * It grants nothing. The caller is authenticated on every request; the id only saves it from repeating its capabilities, and
 * is refused for any other principal. It expires with the key that sealed it.
 */

import { isRecord, isText } from '../lib/json.ts'
import type { PeerFacts } from '../protocol/call.ts'
import { openEnvelope, sealEnvelope } from './envelope.ts'
import type { KeyRing } from './key-ring.ts'

const PREFIX = 't.'
/** The headers of a request may have 16 KiB in total by default, and some clients refuse an id of more than 1024 bytes. */
const MAX_LENGTH = 1_024

export function isSealedSession(id: string | undefined): boolean {
  return id?.startsWith(PREFIX) === true
}

/** The caller ensures that the facts fit into a header. */
export function sealSession(ring: KeyRing, audience: string, principal: string, facts: PeerFacts): string {
  return PREFIX + sealEnvelope(ring, placeOf(audience), JSON.stringify({ principal, facts })).token
}

/** Undefined for an id that was not sealed for this principal. */
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

/** Separates sessions from everything else that is sealed with the ring. */
function placeOf(audience: string): string {
  return JSON.stringify(['session', audience])
}
