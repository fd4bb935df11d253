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

import { RondoError } from '../errors.ts'
import { type Claims, decodeClaims, encodeClaims } from './claims.ts'
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
