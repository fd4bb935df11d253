/**
 * The `requestState`: claims, sealed; and the checks that stand between a string from the network and a journal.
 *
 * R1 A round runs only on a journal sealed by this service, for this principal, this request, in time. In order: size,
 * encoding, key, commitment, tag, shape, time, principal, method, request, protocol version. The audience needs no
 * check of its own, it is part of every key. Single use is the store's matter and comes after all of these. Where the
 * client comes back with answers alone, the request is in the state and the name of the turn is compared instead.
 *
 * Clocks differ. `issuedAt` may lie ahead by `clockSkewMs`; an expiry is taken as it stands, so a state never lives
 * longer than it should on an instance whose clock is right.
 *
 * The client hears one sentence whatever failed (`refusalError`); the word for the reason is for the log.
 */

import { misuse, RondoError } from '../errors.ts'
import { type Journal, narrowJournal } from '../journal/journal.ts'
import { canonicalJson, digest } from '../lib/canonical-json.ts'
import { isCount, isRecord, isText, isTime, toMap } from '../lib/json.ts'
import type { Principal } from '../protocol/call.ts'
import { type EnvelopeRefusal, envelopeLength, openEnvelope, type Random, sealEnvelope } from './envelope.ts'
import type { KeyRing } from './key-ring.ts'

export interface StateLimits {
  /** The longest token, sealed or opened. */
  readonly maxBytes: number
  /** Past this the caller should warn: proxies and clients begin to refuse. */
  readonly warnBytes: number
  /** How far ahead another instance's clock may be. */
  readonly clockSkewMs: number
}

export const STATE_LIMITS: StateLimits = {
  maxBytes: 64 * 1024,
  warnBytes: 8 * 1024,
  clockSkewMs: 5 * 60_000,
}

/** What the request at hand says; a state must say the same. */
export interface Expected {
  readonly now: number
  readonly principal: string
  readonly method: string
  readonly request: string
  readonly protocolVersion: string
}

/** The same for a client that does not repeat its request. */
export interface ExpectedTurn extends Pick<Expected, 'now' | 'principal' | 'protocolVersion'> {
  readonly turn: string
}

export type StateRefusal =
  | EnvelopeRefusal
  | 'early'
  | 'expired'
  | 'flow-expired'
  | 'principal'
  | 'method'
  | 'request'
  | 'turn'
  | 'protocol'

export type SealedState =
  | { readonly kind: 'sealed'; readonly token: string; readonly bytes: number; readonly keyId: string }
  | { readonly kind: 'too-large'; readonly bytes: number }

export type RefusedState = {
  readonly kind: 'refused'
  readonly reason: StateRefusal
  readonly keyId?: string
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
  expected: Expected | ExpectedTurn,
  limits: StateLimits = STATE_LIMITS,
): OpenedState {
  const envelope = openEnvelope(ring, audience, token, limits.maxBytes)
  if (envelope.kind === 'refused') return envelope
  const { keyId } = envelope
  const claims = decodeClaims(envelope.plaintext.toString('utf8'))
  if (claims === undefined) return { kind: 'refused', reason: 'shape', keyId }
  const reason = claimsRefusal(claims, expected, limits)
  return reason === undefined ? { kind: 'open', claims, keyId } : { kind: 'refused', reason, keyId }
}

/** The one error a client sees. The reason and the key's name are for the log. */
export function refusalError({ reason, keyId }: RefusedState): RondoError {
  const key = keyId === undefined ? '' : `, key ${keyId}`
  return new RondoError('STATE_INVALID', `requestState refused: ${reason}${key}`)
}

/** Why these claims do not belong to the request at hand, if so. */
function claimsRefusal(
  claims: Claims,
  expected: Expected | ExpectedTurn,
  limits: StateLimits,
): StateRefusal | undefined {
  return timeRefusal(claims, expected.now, limits) ?? bindingRefusal(claims, expected)
}

/** Written so that a clock that gives NaN refuses everything. */
function timeRefusal(claims: Claims, now: number, limits: StateLimits): StateRefusal | undefined {
  if (!(claims.issuedAt <= now + limits.clockSkewMs)) return 'early'
  if (!(now < claims.flowExpires)) return 'flow-expired'
  if (!(now < claims.roundExpires)) return 'expired'
  return undefined
}

function bindingRefusal(claims: Claims, expected: Expected | ExpectedTurn): StateRefusal | undefined {
  if (claims.principal !== expected.principal) return 'principal'
  const reason = 'turn' in expected ? turnRefusal(claims, expected.turn) : requestRefusal(claims, expected)
  if (reason !== undefined) return reason
  if (claims.protocolVersion !== expected.protocolVersion) return 'protocol'
  return undefined
}

function requestRefusal(claims: Claims, expected: Expected): StateRefusal | undefined {
  if (claims.method !== expected.method) return 'method'
  if (claims.request !== expected.request) return 'request'
  return claims.turn === undefined ? undefined : 'turn'
}

function turnRefusal(claims: Claims, turn: string): StateRefusal | undefined {
  return claims.turn?.id === turn ? undefined : 'turn'
}

/*
 * What is inside a `requestState`, and its JSON form.
 *
 * Decoding trusts nothing: the bytes are authentic, but they may come from another version of this package. A member
 * of the claims that is not known is refused, since it may be a binding this version would not check. Maps that are
 * keyed by names from elsewhere come back without a prototype.
 */

export interface Claims {
  /** When this state was sealed, ms since the epoch. */
  readonly issuedAt: number
  /** From this moment on, ms since the epoch, the round is refused. */
  readonly roundExpires: number
  /** From this moment on the whole flow is refused, whatever its rounds say. */
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
  /** Only in a state that does not come back with its request. */
  readonly turn?: TurnClaims
}

const MEMBERS: ReadonlySet<string> = new Set<keyof Claims>([
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
  'turn',
])

export function encodeClaims(claims: Claims): string {
  return JSON.stringify(claims)
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
  const turn = value.turn === undefined ? undefined : narrowTurn(value.turn)
  if (value.turn !== undefined && turn === undefined) return undefined
  return {
    issuedAt,
    roundExpires,
    flowExpires,
    flow,
    round,
    principal,
    method,
    request,
    ...(toolVersion === undefined ? {} : { toolVersion }),
    protocolVersion,
    asked,
    journal,
    ...(turn === undefined ? {} : { turn }),
  }
}

/*
 * What a state is bound to, as short texts that are equal exactly when the things are equal.
 *
 * Both are digests of canonical JSON arrays: the brackets and quotes keep the parts apart, so no subject can be chosen
 * that looks like another issuer's. `claims` of a principal are not part of its tag: they may change between rounds.
 */

/** Shorter than any digest, so that nobody's tag equals it. */
const ANONYMOUS = 'anonymous'

/**
 * Names the caller. Absent is a caller of its own: what was sealed for it opens for nobody else, and the reverse.
 * A principal without a subject is refused here: everybody behind one OAuth client would share it.
 */
export function principalTag(principal: Principal | undefined): string {
  if (principal === undefined) return ANONYMOUS
  const { issuer, subject, client } = principal
  if (typeof subject !== 'string' || subject === '') {
    throw misuse(
      'A principal needs a subject. Give the user or service the request acts for, or undefined for anonymous',
    )
  }
  return digest(canonicalJson([issuer ?? null, subject, client ?? null]))
}

/** Names the request. Absent arguments are the same as none. */
export function requestDigest(
  method: string,
  target: string,
  args: Readonly<Record<string, unknown>> | undefined,
): string {
  return digest(canonicalJson([method, target, args ?? {}]))
}

/*
 * What a state carries besides its claims where the client comes back with answers alone: the request they are for.
 */

export interface TurnClaims {
  /** Names the turn; what the client brings back beside the state names the same. */
  readonly id: string
  readonly requestId: string | number
  readonly target: string
  readonly args: Readonly<Record<string, unknown>>
  readonly progressToken?: string | number
  /** The last progress that was told under that token. */
  readonly told?: number
  /** The questions of the turn in the order in which they went out; those of `asked` are among them. */
  readonly keys: readonly string[]
}

function narrowTurn(value: unknown): TurnClaims | undefined {
  if (!isRecord(value)) return undefined
  const { id, requestId, target, args, progressToken, told, keys } = value
  if (!isText(id) || !isId(requestId) || !isText(target) || !isRecord(args)) return undefined
  if (progressToken !== undefined && !isId(progressToken)) return undefined
  if (told !== undefined && !Number.isFinite(told)) return undefined
  if (!Array.isArray(keys) || !keys.every(isText)) return undefined
  return {
    id,
    requestId,
    target,
    args,
    ...(progressToken === undefined ? {} : { progressToken }),
    ...(told === undefined ? {} : { told: told as number }),
    keys,
  }
}

function isId(value: unknown): value is string | number {
  return isText(value) || Number.isSafeInteger(value)
}
