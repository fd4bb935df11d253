/**
 * Access tokens that are JSON Web Tokens (RFC 9068), verified with the published keys of their issuer.
 *
 * jwt 1: The algorithm is one of a list of asymmetric ones, never the token's own choice: no `none`, and no HMAC, for which
 *        the public key would be the secret.
 * jwt 2: The issuer must be a trusted one before anything is fetched, and only that issuer's keys are tried.
 * jwt 3: Keys and addresses in the token itself (`jwk`, `jku`, `x5u`) are never used.
 * jwt 4: The claims are checked after the signature, all of them.
 */

import type { importJWK, JWK } from 'jose'
import { misuse } from '../errors.ts'
import { isRecord, parseGuarded } from '../lib/json.ts'
import { isMissing } from '../lib/package.ts'
import { defineOptions, number, type OptionsOf, unchecked } from '../options.ts'
import {
  CLAIM_CHECKS,
  type ClaimCheck,
  type ClaimRules,
  findProblem,
  shown,
  type TokenClaims,
} from './claims.ts'
import type { PossessionSetup } from './possession.ts'
import {
  createKeySet,
  type Fetch,
  type KeySet,
  type PublishedKey,
  RemoteFault,
  type RemoteLimits,
} from './remote.ts'

export interface JwtOptions {
  /** Accepted signature algorithms. Default: RS, PS and ES with 256, 384 and 512 bits, EdDSA. */
  algorithms?: readonly string[]
  /** Accepted values of the header `typ`, where a token has one. Default: `at+jwt`, `JWT`. */
  types?: readonly string[]
  /** How long after a request for keys a token with an unknown `kid` causes no other. Default: 30 s. */
  cooldownMs?: number
  /** How long keys are used before they are fetched again; if that fails, they serve for another hour. Default: 10 minutes. */
  maxAgeMs?: number
}

/** The outcome of a verification: the claims of the token, or the problem with it or with its issuer, for the operator. */
export type Verified =
  | { readonly kind: 'claims'; readonly claims: TokenClaims }
  | { readonly kind: 'refused'; readonly problem: string }
  /** The token may well be valid: whether it is cannot be found out at the moment. */
  | { readonly kind: 'undecided'; readonly problem: string }

export interface Issuer {
  readonly issuer: string
  readonly jwks?: string | { readonly keys: readonly PublishedKey[] }
}

export interface JwtSetup {
  readonly issuers: readonly Issuer[]
  readonly rules: ClaimRules
  readonly fetch: Fetch
  readonly now: () => number
}

const ASYMMETRIC: readonly string[] = [
  'RS256',
  'RS384',
  'RS512',
  'PS256',
  'PS384',
  'PS512',
  'ES256',
  'ES384',
  'ES512',
  'EdDSA',
  'Ed25519',
]

/** Algorithms without a key, and with keys that an issuer cannot publish. */
const SHARED = /^(?:none|hs\d+)$/i

const OPTIONS = defineOptions('jwt', {
  algorithms: unchecked(ASYMMETRIC),
  types: unchecked<readonly string[]>(['at+jwt', 'JWT']),
  cooldownMs: number(30_000),
  maxAgeMs: number(600_000),
} satisfies OptionsOf<JwtOptions>)

export function assertJwtOptions(given: JwtOptions): void {
  const algorithms: unknown = OPTIONS.read(given).algorithms
  if (Array.isArray(algorithms) && algorithms.every((one) => typeof one === 'string' && !SHARED.test(one)))
    return
  throw misuse(
    `jwt: algorithms must be a list of algorithms with public keys, such as RS256; got ${JSON.stringify(algorithms)}.`,
  )
}

/** More than any issuer needs; Node limits all headers of a request to 16 KiB anyway. */
const MAX_TOKEN = 16_384

interface Header {
  readonly alg?: unknown
  readonly typ?: unknown
  readonly kid?: unknown
  readonly crit?: unknown
}

type Allowed = Required<Pick<JwtOptions, 'algorithms' | 'types'>>

/** One check of the header of a token. */
interface HeaderCheck {
  readonly name: string
  problem(header: Header, allowed: Allowed): string | undefined
}

/** One check of the key that a token names. */
interface KeyCheck {
  readonly name: string
  problem(key: PublishedKey, header: Header): string | undefined
}

/** Everything that can refuse a token, so that a test can leave out one at a time. */
export interface JwtChecks {
  readonly maxLength: number
  readonly header: readonly HeaderCheck[]
  readonly key: readonly KeyCheck[]
  readonly claims: readonly ClaimCheck[]
  /** Parses a part of the token; refuses what two parsers could read differently. */
  parse(text: string): unknown
  /** The issuers whose keys are tried. */
  trusted(iss: unknown, sets: ReadonlyMap<string, KeySet>): readonly KeySet[]
  /** True if the signature was made with this key. */
  verify(token: string, key: PublishedKey, alg: string): Promise<boolean>
  readonly remote?: RemoteLimits
  /** Default: all checks of a proof. */
  readonly proof?: PossessionSetup['checks']
}

export const JWT_CHECKS: JwtChecks = {
  maxLength: MAX_TOKEN,
  header: [
    {
      name: 'algorithm',
      problem: ({ alg }, { algorithms }) =>
        algorithms.some((one) => one === alg)
          ? undefined
          : `The token is signed with ${named(alg)}, which is not an accepted algorithm (${algorithms.join(', ')}).`,
    },
    {
      name: 'type',
      problem({ typ }, { types }) {
        if (typ === undefined) return undefined
        const plain = typeof typ === 'string' && typ.toLowerCase().replace(/^application\//, '')
        if (types.some((type) => type.toLowerCase() === plain)) return undefined
        return `The token is no access token: its type (typ) is ${named(typ)}. Accepted are ${types.join(', ')}.`
      },
    },
    {
      name: 'critical',
      problem: ({ crit }) =>
        crit === undefined
          ? undefined
          : 'The token has critical extensions (crit), none of which is known here.',
    },
    {
      name: 'key-id',
      problem: ({ kid }) =>
        kid === undefined || (typeof kid === 'string' && kid.length <= 1_024)
          ? undefined
          : 'The key id (kid) of the token is not a short string.',
    },
  ],
  key: [
    {
      name: 'private',
      problem: (key) =>
        ['d', 'p', 'q', 'dp', 'dq', 'qi', 'k', 'priv'].some((member) => Object.hasOwn(key, member))
          ? `The issuer publishes the private part of its key ${named(key.kid)}: whoever reads it can sign tokens. Replace that key at the issuer.`
          : undefined,
    },
    {
      name: 'use',
      problem: ({ use, key_ops: operations }) =>
        (use === undefined || use === 'sig') &&
        (operations === undefined || (Array.isArray(operations) && operations.includes('verify')))
          ? undefined
          : 'The key that the token names is not for signatures (use, key_ops).',
    },
    {
      name: 'key-algorithm',
      problem: (key, { alg }) =>
        (key.alg === undefined || key.alg === alg) && fits(key, alg)
          ? undefined
          : `The key that the token names is not for the algorithm ${named(alg)}.`,
    },
  ],
  claims: CLAIM_CHECKS,
  parse(text) {
    const parsed = parseGuarded(text, { depth: 16 })
    return parsed.kind === 'ok' ? parsed.value : undefined
  },
  trusted: (iss, sets) => [sets.get(String(iss))].filter((set) => set !== undefined),
  verify: verifySignature,
}

export function createJwtVerifier(
  options: JwtOptions,
  { issuers, rules, fetch, now }: JwtSetup,
  checks: JwtChecks = JWT_CHECKS,
): (token: string) => Promise<Verified> {
  if (isMissing('jose'))
    throw misuse('Access tokens that are JWTs need the package "jose": run npm install jose')
  const { cooldownMs, maxAgeMs, ...allowed } = OPTIONS.read(options)
  const sets = new Map(
    issuers.map((issuer) => {
      const set = createKeySet({ ...issuer, fetch, now, cooldownMs, maxAgeMs, limits: checks.remote })
      return [issuer.issuer, set] as const
    }),
  )
  const preChecks = checks.claims.filter(({ name }) => name === 'issuer')

  return async (token) => {
    const read = readToken(token, checks)
    if (typeof read === 'string') return refused(read)
    const { header, claims } = read
    for (const check of checks.header) {
      const problem = check.problem(header, allowed)
      if (problem !== undefined) return refused(problem)
    }
    const untrusted = findProblem(preChecks, claims, rules, now() / 1000)
    if (untrusted !== undefined) return refused(untrusted)
    const signed = await findSigner(token, header, checks.trusted(claims.iss, sets), checks)
    if (signed !== undefined) return signed
    // The keys may have taken a while: the token counts now, or not.
    const problem = findProblem(checks.claims, claims, rules, now() / 1000)
    return problem === undefined ? { kind: 'claims', claims } : refused(problem)
  }
}

function refused(problem: string): Verified {
  return { kind: 'refused', problem }
}

const PART = /^[A-Za-z0-9_-]+$/

/** The header and the claims of a token, not verified yet; or what is wrong with it. */
function readToken(
  token: string,
  { maxLength, parse }: JwtChecks,
): { header: Header; claims: TokenClaims } | string {
  if (token.length > maxLength)
    return `The token has ${token.length} characters; at most ${maxLength} are read.`
  const parts = token.split('.')
  if (parts.length === 5) return 'The token is encrypted. Issue signed access tokens for this server.'
  const [first = '', second = ''] = parts
  if (parts.length !== 3 || !PART.test(first) || !PART.test(second)) {
    return 'The token is not a JSON Web Token. If the issuer issues opaque tokens, use introspection({ … }), or have it issue JWTs for this audience.'
  }
  const [header, claims] = [first, second].map((part) =>
    parse(Buffer.from(part, 'base64url').toString('utf8')),
  )
  if (!isRecord(header) || !isRecord(claims)) {
    return 'The header or the claims of the token are not a JSON object, or have a member twice.'
  }
  return { header, claims }
}

/** Verifies the signature. Returns the problem with it, or with the keys of the issuer. */
async function findSigner(
  token: string,
  header: Header,
  sets: readonly KeySet[],
  { key: keyChecks, verify }: JwtChecks,
): Promise<Verified | undefined> {
  const { kid, alg } = header
  const isNamed = (key: PublishedKey): boolean => (kid === undefined ? fits(key, alg) : key.kid === kid)
  let problem = refused(
    `No key of the issuer has the key id ${named(kid)} of the token. After a rotation that is so until the keys are fetched again.`,
  )
  for (const set of sets) {
    let keys: readonly PublishedKey[]
    try {
      keys = await set.keys((known) => known.some(isNamed))
    } catch (error) {
      if (!(error instanceof RemoteFault)) throw error
      problem = { kind: 'undecided', problem: `The keys of the issuer cannot be fetched: ${error.message}.` }
      continue
    }
    const [key, ...others] = keys.filter(isNamed)
    if (key === undefined) continue
    if (others.length > 0) {
      problem = refused('Several keys of the issuer fit the token. Have it name its key (kid).')
      continue
    }
    const unfit = keyChecks.map((check) => check.problem(key, header)).find((found) => found !== undefined)
    if (unfit !== undefined) problem = refused(unfit)
    else if (await verify(token, key, String(alg))) return undefined
    else problem = refused(`The signature of the token is not that of the issuer's key ${named(kid)}.`)
  }
  return problem
}

const CURVES: Readonly<Record<string, string>> = {
  ES256: 'P-256',
  ES384: 'P-384',
  ES512: 'P-521',
  EdDSA: 'Ed25519',
  Ed25519: 'Ed25519',
}

/** True if keys of this type are used with the algorithm. */
function fits({ kty, crv }: PublishedKey, alg: unknown): boolean {
  const name = String(alg)
  if (name.startsWith('RS') || name.startsWith('PS')) return kty === 'RSA'
  return (kty === 'EC' || kty === 'OKP') && crv === CURVES[name]
}

const imported = new WeakMap<PublishedKey, Map<string, ReturnType<typeof importJWK>>>()

async function verifySignature(token: string, published: PublishedKey, alg: string): Promise<boolean> {
  const { compactVerify, importJWK } = await import('jose')
  let byAlgorithm = imported.get(published)
  if (byAlgorithm === undefined) {
    byAlgorithm = new Map()
    imported.set(published, byAlgorithm)
  }
  let importing = byAlgorithm.get(alg)
  if (importing === undefined) {
    importing = importJWK(published as JWK, alg)
    byAlgorithm.set(alg, importing)
  }
  try {
    await compactVerify(token, await importing, { algorithms: [alg] })
    return true
  } catch {
    return false
  }
}

function named(value: unknown): string {
  return typeof value === 'string' ? `"${shown(value)}"` : '(none)'
}
