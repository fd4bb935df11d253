/**
 * A session that no instance has to remember: its id is what the client said in `initialize`, sealed.
 *
 *   prefix + the envelope (`envelope.ts`) of the JSON of { principal, facts, until, secret }
 *
 * The prefix is "s." for a session whose questions are pushed, and "t." for one of the drafts, whose client echoes states.
 *
 * It grants nothing. The caller is authenticated on every request; the id only saves it from repeating its capabilities, and
 * is refused for any other principal. It expires at `until`, and with the key that sealed it.
 *
 * The secret authenticates the names of the session's streams. Every instance that opens the id has it, and the client does
 * not, so a name that no instance gave is recognised without a look into the store.
 */

import { timingSafeEqual } from 'node:crypto'

import { isRecord, isText, isTime } from '../lib/json.ts'
import type { PeerFacts } from '../protocol/call.ts'
import { rememberedCapabilities } from '../protocol/common/request.ts'
import { deriveBytes, envelopeLength, openEnvelope, sealEnvelope } from './envelope.ts'
import type { KeyRing } from './key-ring.ts'

const PREFIXES = { pushed: 's.', turns: 't.' } as const
/** The headers of a request may have 16 KiB in total by default, and some clients refuse an id of more than 1024 bytes. */
const MAX_LENGTH = 1_024

export interface SealedSession {
  readonly facts: PeerFacts
  /** The session ends at this time, ms since the epoch. */
  readonly until: number
  /** Absent from the ids of earlier releases. */
  readonly secret?: string
}

/** The audience of session ids. */
interface SessionPlace {
  readonly ring: KeyRing
  readonly audience: string
  readonly principal: string
}

export function isSealedSession(id: string | undefined): boolean {
  return kindOf(id) !== undefined
}

/** True for a session of the drafts. */
export function isTurnsSession(id: string | undefined): boolean {
  return kindOf(id) === 'turns'
}

function kindOf(id: string | undefined): keyof typeof PREFIXES | undefined {
  if (id?.startsWith(PREFIXES.pushed)) return 'pushed'
  return id?.startsWith(PREFIXES.turns) ? 'turns' : undefined
}

/** Returns the id and the facts that are sealed in it: if they are too long for a header, only what decides how the client is served. */
export function sealSession(
  kind: keyof typeof PREFIXES,
  { ring, audience, principal }: SessionPlace,
  { facts, until, secret }: SealedSession,
): { readonly id: string; readonly facts: PeerFacts } {
  const forms = shorter(facts)
  const texts = forms.map((form) => JSON.stringify({ principal, facts: form, until, secret }))
  const room = MAX_LENGTH - PREFIXES[kind].length
  const found = texts.findIndex((text) => envelopeLength(Buffer.byteLength(text)) <= room)
  const index = found === -1 ? forms.length - 1 : found
  const { token } = sealEnvelope(ring, placeOf(kind, audience), texts[index] ?? '')
  return { id: PREFIXES[kind] + token, facts: forms[index] ?? facts }
}

/** The client's name is for logs and handlers only, so it goes first; then what no question depends on. */
function shorter(facts: PeerFacts): readonly PeerFacts[] {
  const { capabilities, clientInfo } = facts
  const info = clientInfo && { name: clientInfo.name.slice(0, 48), version: clientInfo.version.slice(0, 24) }
  const experimental = isRecord(capabilities.experimental) ? Object.keys(capabilities.experimental) : []
  const least = rememberedCapabilities(capabilities, experimental.length > 8 ? [] : experimental)
  return [
    facts,
    { ...facts, clientInfo: info },
    { ...facts, clientInfo: undefined },
    { ...facts, capabilities: least, clientInfo: info },
    { ...facts, capabilities: rememberedCapabilities(capabilities), clientInfo: undefined },
  ]
}

/** Undefined for an id that was not sealed for this principal, or has expired. */
export function openSession(
  { ring, audience, principal }: SessionPlace,
  id: string,
  now: number,
): SealedSession | undefined {
  const kind = kindOf(id)
  if (kind === undefined) return undefined
  const opened = openEnvelope(ring, placeOf(kind, audience), id.slice(PREFIXES[kind].length), MAX_LENGTH)
  if (opened.kind === 'refused') return undefined
  const value: unknown = JSON.parse(opened.plaintext.toString('utf8'))
  if (!isRecord(value) || value.principal !== principal || !isRecord(value.facts)) return undefined
  const { protocolVersion, capabilities } = value.facts
  if (!isText(protocolVersion) || !isRecord(capabilities)) return undefined
  if (!isTime(value.until) || !(now < value.until)) return undefined
  const secret = isText(value.secret) ? { secret: value.secret } : {}
  return { facts: value.facts as unknown as PeerFacts, until: value.until, ...secret }
}

/** Characters of the code that ends the name of a stream: 96 bits. */
const CODE_LENGTH = 16

/** The name of a stream of the session that has the secret. */
export function nameStream(secret: string, name: string): string {
  return name + codeOf(secret, name)
}

/** True if `nameStream` made the name with this secret. */
export function isStreamName(secret: string, name: string): boolean {
  const code = Buffer.from(codeOf(secret, name.slice(0, -CODE_LENGTH)))
  const given = Buffer.from(name.slice(-CODE_LENGTH))
  return given.length === code.length && timingSafeEqual(given, code)
}

function codeOf(secret: string, name: string): string {
  return Buffer.from(deriveBytes(secret, `stream ${name}`))
    .toString('base64url')
    .slice(0, CODE_LENGTH)
}

/** Separates sessions from everything else that is sealed with the ring. */
function placeOf(kind: keyof typeof PREFIXES, audience: string): string {
  return JSON.stringify([kind === 'turns' ? 'session' : 'pushed session', audience])
}
