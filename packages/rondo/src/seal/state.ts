/**
 * The `requestState`: claims, sealed; and the checks between a string from the network and a journal.
 *
 * R1 A round runs only on a journal sealed by this service, for this principal, this request, in time. In order: size,
 * encoding, key, commitment, tag, shape, time, principal, method, request, protocol version. The audience is part of every
 * key; single use is checked afterwards, by the store. The client gets one sentence whatever failed (`refusalError`).
 *
 * Decoding trusts nothing: the bytes are authentic, but another version of this package may have written them. Claims
 * with an unknown member are refused, since it may be a binding that this version would not check.
 */

import { misuse, RondoError } from '../errors.ts'
import { type Journal, narrowJournal } from '../journal/journal.ts'
import { canonicalJson, isCount, isRecord, isText, isTime, toMap } from '../lib/json.ts'
import type { Principal } from '../protocol/call.ts'
import {
  digest,
  type EnvelopeRefusal,
  envelopeLength,
  openEnvelope,
  type Random,
  sealEnvelope,
} from './envelope.ts'
import type { KeyRing } from './key-ring.ts'

export interface StateLimits {
  /** Bytes of a `requestState`, sealed; then `LIMIT_STATE_BYTES`, or `STATE_INVALID` for one that a client sends. Default: 64 KiB. */
  readonly maxBytes: number
  /** Bytes of a `requestState` beyond which the log warns: some proxies and clients refuse larger bodies. Default: 8 KiB. */
  readonly warnBytes: number
  /** How far ahead the clock of another instance may be; beyond it, its states are refused with `STATE_INVALID`. Default: 5 minutes. */
  readonly clockSkewMs: number
}

export const STATE_LIMITS: StateLimits = {
  maxBytes: 64 * 1024,
  warnBytes: 8 * 1024,
  clockSkewMs: 5 * 60_000,
}

export interface Claims {
  /** When this state was sealed, ms since the epoch. */
  readonly issuedAt: number
  /** The round is refused from this time on, ms since the epoch. */
  readonly roundExpires: number
  /** The whole flow is refused from this time on, whatever its rounds say. */
  readonly flowExpires: number
  readonly flow: string
  readonly round: number
  /** From `principalTag`. */
  readonly principal: string
  readonly method: string
  /** From `requestDigest`. */
  readonly request: string
  readonly toolVersion?: string
  readonly protocolVersion: string
  /** Digests of the questions asked in this round, by key. */
  readonly asked: Readonly<Record<string, string>>
  readonly journal: Journal
  /** Opaque here, and only in a state that does not come back with its request: whoever sealed it checks it. */
  readonly extension?: unknown
}

/** The member of the encoded claims that holds the extension, and the reason for refusing one. */
const EXTENSION = 'turn'

/** The claims that a state must contain to belong to the request at hand. */
export interface Expected {
  readonly now: number
  readonly principal: string
  readonly method: string
  readonly request: string
  readonly protocolVersion: string
}

/** Like `Expected`, for a client that does not repeat its request. */
export interface ExpectedExtension extends Pick<Expected, 'now' | 'principal' | 'protocolVersion'> {
  /** True if the extension is well formed and belongs to the request at hand. */
  accepts(extension: unknown): boolean
}

export type StateRefusal =
  | EnvelopeRefusal
  | 'early'
  | 'expired'
  | 'flow-expired'
  | 'principal'
  | 'method'
  | 'request'
  | typeof EXTENSION
  | 'protocol'

/** The facts about a sealed state that are logged. */
export interface SealFacts {
  readonly bytes: number
  readonly keyId: string
}

/** The claims do not fit a state. */
export interface TooLarge {
  readonly kind: 'too-large'
  readonly bytes: number
}

export type SealedState = ({ readonly kind: 'sealed'; readonly token: string } & SealFacts) | TooLarge

export type RefusedState = {
  readonly kind: 'refused'
  readonly reason: StateRefusal
  readonly keyId?: string
  /** The call, if the state is one of this service. */
  readonly flow?: string
  /** The round in which it was sealed. */
  readonly round?: number
}

export type OpenedState =
  | { readonly kind: 'open'; readonly claims: Claims; readonly keyId: string }
  | RefusedState

export function sealState(
  ring: KeyRing,
  audience: string,
  claims: Claims,
  limits: StateLimits = STATE_LIMITS,
  random?: Random,
): SealedState {
  const plaintext = Buffer.from(encodeClaims(claims))
  const bytes = envelopeLength(plaintext.byteLength)
  if (bytes > limits.maxBytes) return { kind: 'too-large', bytes }
  const { token, keyId } = sealEnvelope(ring, audience, plaintext, random)
  return { kind: 'sealed', token, bytes, keyId }
}

export function openState(
  ring: KeyRing,
  audience: string,
  token: unknown,
  expected: Expected | ExpectedExtension,
  limits: StateLimits = STATE_LIMITS,
): OpenedState {
  const envelope = openEnvelope(ring, audience, token, limits.maxBytes)
  if (envelope.kind === 'refused') return envelope
  const { keyId } = envelope
  const claims = decodeClaims(envelope.plaintext.toString('utf8'))
  if (claims === undefined) return { kind: 'refused', reason: 'shape', keyId }
  const reason = timeRefusal(claims, expected.now, limits) ?? bindingRefusal(claims, expected)
  if (reason === undefined) return { kind: 'open', claims, keyId }
  const { flow, round } = claims
  return { kind: 'refused', reason, keyId, flow, round }
}

/** The one error a client sees. The reason and the key's name are for the log. */
export function refusalError({ reason, keyId }: RefusedState): RondoError {
  const key = keyId === undefined ? '' : `, key ${keyId}`
  return new RondoError('STATE_INVALID', `requestState refused: ${reason}${key}`)
}

/**
 * Clocks differ: `issuedAt` may lie ahead by `clockSkewMs`. An expiry is taken as it stands, so a state never lives
 * longer than it should on an instance whose clock is right. A clock that returns NaN refuses everything.
 */
function timeRefusal(claims: Claims, now: number, limits: StateLimits): StateRefusal | undefined {
  if (!(claims.issuedAt <= now + limits.clockSkewMs)) return 'early'
  if (!(now < claims.flowExpires)) return 'flow-expired'
  if (!(now < claims.roundExpires)) return 'expired'
  return undefined
}

function bindingRefusal(claims: Claims, expected: Expected | ExpectedExtension): StateRefusal | undefined {
  if (claims.principal !== expected.principal) return 'principal'
  if ('accepts' in expected) {
    if (claims.extension === undefined || !expected.accepts(claims.extension)) return EXTENSION
  } else {
    if (claims.method !== expected.method) return 'method'
    if (claims.request !== expected.request) return 'request'
    if (claims.extension !== undefined) return EXTENSION
  }
  if (claims.protocolVersion !== expected.protocolVersion) return 'protocol'
  return undefined
}

const MEMBERS: ReadonlySet<string> = new Set<Exclude<keyof Claims, 'extension'> | typeof EXTENSION>([
  'issuedAt',
  'roundExpires',
  'flowExpires',
  'flow',
  'round',
  'principal',
  'method',
  'request',
  'toolVersion',
  'protocolVersion',
  'asked',
  'journal',
  EXTENSION,
])

export function encodeClaims(claims: Claims): string {
  if (claims.extension === undefined) return JSON.stringify(claims)
  const { extension, ...others } = claims
  return JSON.stringify({ ...others, [EXTENSION]: extension })
}

export function decodeClaims(text: string): Claims | undefined {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    return undefined
  }
  return isRecord(value) ? narrowClaims(value) : undefined
}

function narrowClaims(value: Record<string, unknown>): Claims | undefined {
  if (!Object.keys(value).every((member) => MEMBERS.has(member))) return undefined
  const { issuedAt, roundExpires, flowExpires, flow, round } = value
  const { principal, method, request, toolVersion, protocolVersion } = value
  if (!isTime(issuedAt) || !isTime(roundExpires) || !isTime(flowExpires)) return undefined
  if (!isText(flow) || !isCount(round)) return undefined
  if (!isText(principal) || !isText(method) || !isText(request)) return undefined
  if (!isText(protocolVersion)) return undefined
  if (toolVersion !== undefined && !isText(toolVersion)) return undefined
  const asked = toMap(value.asked, (digest) => (isText(digest) ? digest : undefined))
  const journal = narrowJournal(value.journal)
  if (asked === undefined || journal === undefined) return undefined
  const extension = value[EXTENSION]
  return {
    issuedAt,
    roundExpires,
    flowExpires,
    flow,
    round,
    principal,
    method,
    request,
    toolVersion,
    protocolVersion,
    asked,
    journal,
    extension,
  }
}

/** The tag of an anonymous caller: shorter than any digest, so no other tag equals it. */
const ANONYMOUS = 'anonymous'

/**
 * Names the caller. An anonymous one has a name too: what is sealed for it opens for no one else, and the reverse. The
 * brackets and quotes of JSON keep the parts apart, so no subject looks like another issuer's; `claims` may change between
 * rounds and are no part. A principal without a subject is refused: everybody behind one OAuth client would share it.
 */
export function principalTag(principal: Principal | undefined): string {
  if (principal === undefined) return ANONYMOUS
  const { issuer, subject, client } = principal
  if (typeof subject !== 'string' || subject === '') {
    throw misuse(
      'A principal needs a subject: the user or service that the request acts for. For an anonymous caller, return undefined',
    )
  }
  return digest(canonicalJson([issuer ?? null, subject, client ?? null]))
}

/** Names the request. Absent arguments equal empty ones. */
export function requestDigest(
  method: string,
  target: string,
  args: Readonly<Record<string, unknown>> | undefined,
): string {
  return digest(canonicalJson([method, target, args ?? {}]))
}
