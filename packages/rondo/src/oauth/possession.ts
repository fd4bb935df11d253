/**
 * Access tokens that are bound to a key (`cnf`): whoever presents one proves that it holds the key. With DPoP (RFC 9449)
 * every request has a signed proof. With mutual TLS (RFC 8705) the proxy that ends the connection passes the certificate on.
 *
 * possession 1: A bound token is never accepted as a bearer token, and a bearer token never with a proof.
 * possession 2: A proof is for one method, one URL, one token and one moment, and counts once. Instances that share a store
 *   refuse a proof that another one has seen. Memory is shared by key: whoever sends too many proofs is refused alone.
 * possession 3: Every member of `cnf` must be proven; one that is unknown here is a refusal.
 */

import crypto, { createPublicKey, type KeyObject, verify, X509Certificate } from 'node:crypto'
import type { JWK } from 'jose'
import { isRecord, parseGuarded } from '../lib/json.ts'
import { drawId } from '../lib/random.ts'
import type { AuthRequest } from '../serve/http/authenticate.ts'
import type { OnceStore } from '../store/store.ts'
import { isTime, type TokenClaims } from './claims.ts'

/** The part of a store that remembers proofs. */
export interface ProofStore {
  readonly once: OnceStore
  /** Deletes up to `limit` expired rows of each kind; returns how many were deleted. */
  sweep?(limit: number): Promise<number>
}

export interface DpopOptions {
  /** Refuses tokens that are not bound. Default: `false`. */
  required?: boolean
  /**
   * Remembers proofs, so no instance accepts one that another has seen: a store of `rondo/sqlite` or `rondo/postgres`. Default:
   * the memory of this instance.
   */
  store?: ProofStore
  /** How old a proof may be, and how far in the future. Default: 60 s. */
  windowMs?: number
  /** Proofs that memory holds; beyond it requests with proofs get 503 until some expire. Default: 1,000,000. */
  maxProofs?: number
  /** Proofs of one key that memory holds; beyond it requests with that key get 503 until some expire. Default: 100,000. */
  maxProofsPerKey?: number
}

/** The algorithms of proofs. Clients choose the key, and RSA would let them choose how long a check takes. */
export const PROOF_ALGORITHMS: readonly string[] = ['ES256', 'ES384', 'EdDSA', 'Ed25519']

const CURVES: Readonly<Record<string, { readonly crv: string; readonly hash: string | null }>> = {
  ES256: { crv: 'P-256', hash: 'sha256' },
  ES384: { crv: 'P-384', hash: 'sha384' },
  EdDSA: { crv: 'Ed25519', hash: null },
  Ed25519: { crv: 'Ed25519', hash: null },
}

/** A proof whose signature was verified, and what it has to be for. */
interface ReadProof {
  readonly thumbprint: string
  readonly claims: TokenClaims
}

interface Expected {
  readonly jkt: string
  readonly digest: string
  readonly method: string
  readonly url: string
  readonly now: number
  readonly windowMs: number
}

interface ProofCheck {
  readonly name: string
  /** Returns a sentence for the operator if the proof fails the check. */
  problem(proof: ReadProof, expected: Expected): string | undefined
}

/** The checks of a proof, in a list so that a test can leave out one at a time. */
export const PROOF_CHECKS: readonly ProofCheck[] = [
  {
    name: 'key',
    problem: ({ thumbprint }, { jkt }) =>
      thumbprint === jkt ? undefined : 'The proof (DPoP) is signed with another key than that of the token.',
  },
  {
    name: 'token',
    problem: ({ claims: { ath } }, { digest }) =>
      ath === digest ? undefined : 'The proof (DPoP) is for another access token (ath).',
  },
  {
    name: 'method',
    problem: ({ claims: { htm } }, { method }) =>
      htm === method ? undefined : 'The proof (DPoP) is for another HTTP method (htm).',
  },
  {
    name: 'url',
    problem: ({ claims: { htu } }, { url }) =>
      isSameUrl(htu, url)
        ? undefined
        : `The proof (DPoP) is for another URL (htu) than ${url}. If clients use another one, correct oauthResource({ resource }).`,
  },
  {
    name: 'time',
    problem({ claims: { iat } }, { now, windowMs }) {
      if (!isTime(iat)) return 'The proof (DPoP) has no time (iat).'
      const age = now - iat * 1_000
      if (Math.abs(age) <= windowMs) return undefined
      return `The proof (DPoP) is ${Math.round(age / 1_000)} s old (iat). If that is not so, compare the clocks.`
    },
  },
]

export interface PossessionSetup {
  readonly dpop?: DpopOptions
  /** The header in which a proxy passes the certificate of the client. */
  readonly certificateHeader?: string
  /** The URL of the endpoint, as clients know it. */
  readonly url: string
  readonly now: () => number
  readonly checks?: readonly ProofCheck[]
}

/** A token as a request presents it. */
export interface Presented {
  readonly scheme: 'bearer' | 'dpop'
  readonly token: string
  /** The SHA-256 of the token, base64url. */
  readonly digest: string
}

export interface Possession {
  /** The members of `cnf` that can be checked here. */
  readonly members: ReadonlySet<string>
  /** Returns a sentence for the operator if the request does not prove possession of the keys in `cnf`. */
  findProblem(
    presented: Presented,
    cnf: unknown,
    request: AuthRequest | undefined,
  ): Promise<Unproven | undefined>
}

export interface Unproven {
  readonly problem: string
  /** The part of the request that is to blame; `none` if memory is full, and the request may be repeated with another proof. */
  readonly blame: 'token' | 'proof' | 'none'
}

const DEFAULT_WINDOW_MS = 60_000
export const DEFAULT_PROOFS = { maxProofs: 1_000_000, maxProofsPerKey: 100_000 }

export function createPossession(setup: PossessionSetup): Possession {
  const { dpop, certificateHeader, url, now, checks = PROOF_CHECKS } = setup
  const { windowMs = DEFAULT_WINDOW_MS, store, required = false } = dpop ?? {}
  const use = store
    ? storedProofs(store, windowMs, now)
    : rememberedProofs(2 * windowMs, { ...DEFAULT_PROOFS, ...dpop }, now)
  const readKey = createKeyReader()
  const members = new Set([...(dpop ? ['jkt'] : []), ...(certificateHeader ? ['x5t#S256'] : [])])
  const endpoint = withoutQuery(url)

  const checkProof = async (
    digest: string,
    jkt: string,
    { headers, method }: AuthRequest,
  ): Promise<Unproven | undefined> => {
    const proof = await readProof(headers('dpop'), readKey)
    if (typeof proof === 'string') return ofProof(proof)
    const expected = { jkt, digest, method, url: endpoint, now: now(), windowMs }
    for (const check of checks) {
      const problem = check.problem(proof, expected)
      if (problem !== undefined) return ofProof(problem)
    }
    const { jti } = proof.claims
    if (typeof jti !== 'string' || jti === '' || jti.length > MAX_JTI)
      return ofProof('The proof (DPoP) has no id (jti).')
    // A proof is valid for two windows at most. The third is for instances whose clocks differ.
    const used = await use(jkt, jti, now() + 3 * windowMs)
    if (used === 'first') return undefined
    if (used === 'again') return ofProof('The proof (DPoP) was used before (jti).')
    return { problem: FULL[used], blame: 'none' }
  }

  return {
    members,
    async findProblem({ scheme, digest }, cnf, request) {
      // Where no binding can be proven, the check of the claims has refused every bound token.
      if (members.size === 0) return undefined
      const { jkt, 'x5t#S256': certificate } = isRecord(cnf) ? cnf : {}
      const isBound = typeof jkt === 'string'
      if (scheme === 'dpop' && !isBound)
        return ofToken('The token is presented with a proof (DPoP), but is not bound to a key (cnf.jkt).')
      if (scheme === 'bearer' && isBound)
        return ofToken(
          'The token is bound to a key (cnf.jkt), and is presented as a bearer token, without a proof.',
        )
      if (required && !isBound)
        return ofToken(
          'The token is not bound to a key, which oauthResource({ dpop: { required } }) demands.',
        )
      if (!isBound && certificate === undefined) return undefined
      if (request === undefined)
        return ofToken(
          'The token is bound to a key, and there is no request that could prove its possession.',
        )
      if (certificate !== undefined && certificate !== thumbprintOf(request.headers(certificateHeader ?? '')))
        return ofToken(
          'The token is bound to a certificate (cnf.x5t#S256) that the connection of the caller does not have.',
        )
      return isBound ? checkProof(digest, jkt, request) : undefined
    },
  }
}

function ofToken(problem: string): Unproven {
  return { problem, blame: 'token' }
}

function ofProof(problem: string): Unproven {
  return { problem, blame: 'proof' }
}

const MAX_PROOF = 8_192
const MAX_JTI = 256
const PART = /^[A-Za-z0-9_-]+$/

interface ProofKey {
  readonly key: KeyObject
  readonly hash: string | null
  readonly thumbprint: string
}

type KeyReader = (header: string) => Promise<ProofKey | string>

/** Reads a proof and verifies its signature. Returns a sentence for the operator if that fails. */
async function readProof(proof: string | undefined, readKey: KeyReader): Promise<ReadProof | string> {
  if (proof === undefined) return 'The request has no proof (DPoP header).'
  const [header = '', payload = '', signature = '', ...more] = proof.split('.')
  if (
    proof.length > MAX_PROOF ||
    more.length > 0 ||
    ![header, payload, signature].every((one) => PART.test(one))
  )
    return 'The proof (DPoP) is not a single signed JSON Web Token.'
  const known = await readKey(header)
  if (typeof known === 'string') return known
  const { key, hash, thumbprint } = known
  const input = Buffer.from(`${header}.${payload}`)
  const isSigned = verify(
    hash,
    input,
    { key, dsaEncoding: 'ieee-p1363' },
    Buffer.from(signature, 'base64url'),
  )
  if (!isSigned) return 'The signature of the proof (DPoP) is not that of its key.'
  const claims = parsePart(payload)
  return claims === undefined
    ? 'The claims of the proof (DPoP) are not a JSON object.'
    : { thumbprint, claims }
}

const MAX_KEYS = 10_000
const MAX_KEPT_HEADER = 1_024

/** All proofs of one client have the same header, so its key is read once. The oldest key is evicted first. */
function createKeyReader(): KeyReader {
  const keys = new Map<string, ProofKey>()
  return async (header) => {
    const known = keys.get(header)
    if (known !== undefined) return known
    const read = await readProofKey(parsePart(header))
    if (typeof read === 'string') return read
    // Callers choose the header: a long one would let them choose how much memory it takes.
    if (header.length > MAX_KEPT_HEADER) return read
    const [oldest] = keys.keys()
    if (keys.size >= MAX_KEYS && oldest !== undefined) keys.delete(oldest)
    keys.set(header, read)
    return read
  }
}

async function readProofKey(header: TokenClaims | undefined): Promise<ProofKey | string> {
  const { typ, alg, jwk, crit } = header ?? {}
  if (typ !== 'dpop+jwt') return 'The proof (DPoP) is of another type (typ) than dpop+jwt.'
  if (crit !== undefined)
    return 'The proof (DPoP) has critical extensions (crit), none of which is known here.'
  const curve = typeof alg === 'string' && Object.hasOwn(CURVES, alg) ? CURVES[alg] : undefined
  if (curve === undefined)
    return `The proof (DPoP) is signed with an algorithm that is not accepted (${PROOF_ALGORITHMS.join(', ')}).`
  if (!isRecord(jwk) || jwk.crv !== curve.crv || 'd' in jwk || 'k' in jwk)
    return 'The proof (DPoP) has no public key (jwk) for its algorithm.'
  try {
    const { calculateJwkThumbprint } = await import('jose')
    const { kty, crv, x, y } = jwk as JWK
    const bare: JWK = { kty, crv, x, y }
    const key = createPublicKey({ key: { ...bare }, format: 'jwk' })
    return { key, hash: curve.hash, thumbprint: await calculateJwkThumbprint(bare) }
  } catch {
    return 'The key (jwk) of the proof (DPoP) is not valid.'
  }
}

function parsePart(part: string): TokenClaims | undefined {
  const parsed = parseGuarded(Buffer.from(part, 'base64url').toString('utf8'), { depth: 4 })
  return parsed.kind === 'ok' && isRecord(parsed.value) ? parsed.value : undefined
}

/** Uses the proof `jti` of a key: the first time, again, or not at all, because there is no more room. */
type UseProof = (
  jkt: string,
  jti: string,
  expiresAt: number,
) => Promise<'first' | 'again' | keyof typeof FULL>

const FULL = {
  'key full': 'Too many proofs (DPoP) of this key are remembered: dpop.maxProofsPerKey.',
  full: 'Too many proofs (DPoP) are remembered: dpop.maxProofs, or a store.',
}

/** Two generations, each as long as a proof can be valid: an id is remembered for that long at least. */
function rememberedProofs(
  lifeMs: number,
  { maxProofs, maxProofsPerKey }: typeof DEFAULT_PROOFS,
  now: () => number,
): UseProof {
  /** The ids by key. */
  let young = new Map<string, Set<string>>()
  let old = new Map<string, Set<string>>()
  let size = 0
  let begun = now()
  return async (jkt, jti) => {
    // A short id, such as a UUID, takes no more room than its hash.
    const id = jti.length <= HASH_LENGTH ? jti : hashOf(jti)
    if (now() - begun >= lifeMs) {
      old = now() - begun >= 2 * lifeMs ? new Map() : young
      young = new Map()
      size = 0
      begun = now()
    }
    const ids = young.get(jkt) ?? new Set()
    if (ids.has(id) || old.get(jkt)?.has(id)) return 'again'
    // A full memory refuses: forgetting an id would let its proof be used again.
    if (ids.size >= maxProofsPerKey) return 'key full'
    if (size >= maxProofs) return 'full'
    young.set(jkt, ids.add(id))
    size += 1
    return 'first'
  }
}

const HASH_LENGTH = 43

const HOLD_MS = 1_000

const SWEEP_ROWS = 1_000

/**
 * The first claim of an id wins. A claim whose response was lost is not repeated: the client sends another proof. The store need not
 * belong to a server that sweeps it, so expired ids are deleted here.
 */
function storedProofs(store: ProofStore, sweepMs: number, now: () => number): UseProof {
  const { once } = store
  let epoch: Promise<string> | undefined
  let sweptAt = now()
  /** Deletes expired ids, once per `sweepMs`. Failures are left to the next time: a claim meets the same store, and reports it. */
  const sweep = async (): Promise<void> => {
    if (now() - sweptAt < sweepMs) return
    sweptAt = now()
    while (((await store.sweep?.(SWEEP_ROWS)) ?? 0) >= SWEEP_ROWS);
  }
  const claim = async (id: string, expiresAt: number) => {
    epoch ??= once.epoch()
    const slot = { flow: `dpop-${id}`, round: 0, digest: drawId(), epoch: await epoch, expiresAt }
    return once.claim(slot, { claimant: drawId(), holdMs: Math.max(HOLD_MS, expiresAt - now()) })
  }
  return async (jkt, jti, expiresAt) => {
    const id = hashOf(`${jkt} ${jti}`)
    sweep().catch(() => {})
    try {
      const first = await claim(id, expiresAt)
      if (first.kind !== 'refused' || first.reason !== 'epoch') return toUse(first)
    } catch (error) {
      epoch = undefined
      throw error
    }
    // The store was emptied or restored.
    epoch = undefined
    return toUse(await claim(id, expiresAt))
  }
}

function toUse({ kind }: { readonly kind: string }): 'first' | 'again' {
  return kind === 'first' ? 'first' : 'again'
}

/** SHA-256, base64url. In one go where the runtime can, since every request pays for it. */
export const hashOf: (text: string) => string =
  typeof crypto.hash === 'function'
    ? (text) => crypto.hash('sha256', text, 'base64url')
    : (text) => crypto.createHash('sha256').update(text).digest('base64url')

function withoutQuery(url: string): string {
  const { origin, pathname } = new URL(url)
  return `${origin}${pathname}`
}

/** Compares after normalization (RFC 9449, 4.3). A query or a fragment is not allowed, and ignored. */
function isSameUrl(htu: unknown, url: string): boolean {
  return htu === url || (typeof htu === 'string' && URL.canParse(htu) && withoutQuery(htu) === url)
}

/**
 * The SHA-256 of a certificate in a header of the proxy: a byte sequence (`Client-Cert`, RFC 9440), or PEM, encoded for URLs
 * (nginx, AWS) or not.
 */
function thumbprintOf(header: string | undefined): string | undefined {
  // With a comma there are two headers, and one of them may be the client's.
  if (header === undefined || header.length > 65_536 || header.includes(',')) return undefined
  try {
    const text = decodeURIComponent(header)
    const base64 =
      /^:([^:]+):$/.exec(text)?.[1] ?? /^-----BEGIN CERTIFICATE-----([^-]+)/.exec(text.trim())?.[1]
    const { raw } = new X509Certificate(Buffer.from(base64 ?? '', 'base64'))
    return crypto.createHash('sha256').update(raw).digest('base64url')
  } catch {
    return undefined
  }
}
