/**
 * The checks between an access token and a principal, whoever verified its signature: a JSON Web Token, an introspection
 * response, or the author's function. Each check is one row: what it is called, and the sentence for the operator if it
 * fails. The client gets one error for all of them.
 *
 * claims 1: Nothing of a token is quoted in a sentence but what its issuer says in public: issuer, audience, type, algorithm.
 * claims 2: A check that cannot be made fails.
 */

import { isRecord } from '../lib/json.ts'
import type { Principal } from '../protocol/call.ts'

/** The claims of a token, verified or not yet. */
export type TokenClaims = Readonly<Record<string, unknown>>

export interface ClaimRules {
  readonly issuers: readonly string[]
  /** The audiences, of which a token must name one. */
  readonly audiences: readonly string[]
  /** How far clocks may differ, in seconds. */
  readonly skew: number
  readonly client: (claims: TokenClaims) => string | undefined
  readonly granted: (claims: TokenClaims) => readonly string[]
  /** The members of `cnf` whose keys a request can prove here. */
  readonly bindings: ReadonlySet<string>
}

export interface ClaimCheck {
  readonly name: string
  /** Returns what is wrong, for the operator. `now` is in seconds. */
  problem(claims: TokenClaims, rules: ClaimRules, now: number): string | undefined
}

export const CLAIM_CHECKS: readonly ClaimCheck[] = [
  { name: 'issuer', problem: ({ iss }, { issuers }) => issuerProblem(iss, issuers) },
  { name: 'audience', problem: ({ aud }, { audiences }) => audienceProblem(aud, audiences) },
  {
    name: 'expiry',
    problem({ exp }, { skew }, now) {
      if (!isTime(exp)) return 'The token has no expiry (exp) that is a number of seconds.'
      if (exp > now - skew) return undefined
      return `The token expired ${Math.round(now - exp)} s ago. If that is not so, compare the clocks.`
    },
  },
  {
    name: 'not-before',
    problem({ nbf }, { skew }, now) {
      if (nbf === undefined) return undefined
      if (!isTime(nbf)) return 'The time from which the token is valid (nbf) is not a number of seconds.'
      if (nbf <= now + skew) return undefined
      return `The token is valid from ${Math.round(nbf - now)} s in the future on (nbf). Compare the clocks.`
    },
  },
  {
    name: 'issued-at',
    problem({ iat }, { skew }, now) {
      if (iat === undefined) return undefined
      if (!isTime(iat)) return 'The time at which the token was issued (iat) is not a number of seconds.'
      if (iat <= now + skew) return undefined
      return `The token was issued ${Math.round(iat - now)} s in the future (iat). Compare the clocks.`
    },
  },
  {
    name: 'subject',
    problem: ({ sub }) =>
      isText(sub)
        ? undefined
        : 'The token names no subject (sub). Have the authorization server issue access tokens as RFC 9068 says, with sub.',
  },
  {
    name: 'client',
    problem(claims, { client }) {
      const known = client(claims)
      if (known === undefined || isText(known)) return undefined
      return 'The token names no client (client_id, azp or appid). Add one of these claims, or set oauthResource({ client }).'
    },
  },
  {
    name: 'binding',
    // A token that is bound to a key is worth nothing without proof of that key, which a bearer does not bring (RFC 9449, 7.1).
    problem({ cnf }, { bindings }) {
      if (cnf === undefined) return undefined
      const members = Object.entries(isRecord(cnf) ? cnf : {})
      if (members.length > 0 && members.every(([name, value]) => bindings.has(name) && isText(value)))
        return undefined
      return 'The token is bound to a key (cnf: DPoP or mutual TLS), which this server does not check. Set oauthResource({ dpop }) or oauthResource({ certificateHeader }), or issue bearer tokens for it.'
    },
  },
  {
    name: 'scope',
    problem: ({ scope, scp }) =>
      [scope, scp].every((value) => value === undefined || typeof value === 'string' || isTexts(value))
        ? undefined
        : 'The scopes of the token (scope or scp) are neither a string nor a list of strings.',
  },
]

function issuerProblem(iss: unknown, issuers: readonly string[]): string | undefined {
  if (!isText(iss)) return 'The token names no issuer (iss).'
  if (issuers.includes(iss)) return undefined
  const near = issuers.find((issuer) => withoutSlash(issuer) === withoutSlash(iss))
  if (near !== undefined) {
    return `The token's issuer (iss) is "${shown(iss)}", and oauthResource({ issuers }) has "${near}": they differ in the slash at the end. Write it as the token does.`
  }
  return `The token's issuer (iss) is "${shown(iss)}", which oauthResource({ issuers }) does not name.`
}

function audienceProblem(aud: unknown, audiences: readonly string[]): string | undefined {
  const [wanted] = audiences
  const fix =
    `Have the authorization server put "${wanted}" into the tokens for this server (Keycloak: an audience mapper in a client ` +
    'scope; Auth0: an API with this identifier; Entra: the Application ID URI), or name what it does put there: ' +
    'oauthResource({ audience }).'
  if (aud === undefined) return `The token names no audience (aud). ${fix}`
  const named = typeof aud === 'string' ? [aud] : isTexts(aud) ? aud : undefined
  if (named === undefined) return 'The audience (aud) is neither a string nor a list of strings.'
  if (named.some((one) => audiences.includes(one))) return undefined
  return `The token is for somebody else: its audience (aud) is ${named.map((one) => `"${shown(one)}"`).join(', ')}. ${fix}`
}

/** Returns the first problem. */
export function findProblem(
  checks: readonly ClaimCheck[],
  claims: TokenClaims,
  rules: ClaimRules,
  now: number,
): string | undefined {
  if (!isRecord(claims)) return 'The claims of the token are not an object.'
  for (const check of checks) {
    const problem = check.problem(claims, rules, now)
    if (problem !== undefined) return problem
  }
  return undefined
}

/** The principal is issuer, subject and client: all users of one host share its client, and two clients share a user. */
export function toPrincipal(claims: TokenClaims, { client, granted }: ClaimRules): Principal {
  const known = client(claims)
  return {
    issuer: String(claims.iss),
    subject: String(claims.sub),
    ...(known === undefined ? {} : { client: known }),
    claims,
    scopes: granted(claims),
  }
}

/** `client_id` is that of RFC 9068; `azp` is that of Keycloak, Auth0 and Entra, `appid` that of Entra's first version. */
export function clientOf({ client_id, azp, appid }: TokenClaims): string {
  const named = [client_id, azp, appid].find((one) => one !== undefined)
  return isText(named) ? named : ''
}

/** `scope` is that of RFC 9068; `scp` that of Entra, as a string, and of Okta, as a list. */
export function grantedBy({ scope, scp }: TokenClaims): readonly string[] {
  const value = scope ?? scp
  const words = typeof value === 'string' ? value.split(' ') : isTexts(value) ? value : []
  return words.filter((word) => word !== '')
}

/** Part of a claim, for the log: short, and without characters that could forge a line. */
export function shown(text: string): string {
  const clean = text.replace(/[^\x20-\x7e]|["\\]/g, '?')
  return clean.length > 200 ? `${clean.slice(0, 200)}…` : clean
}

function withoutSlash(url: string): string {
  return url.endsWith('/') ? url.slice(0, -1) : url
}

function isText(value: unknown): value is string {
  return typeof value === 'string' && value !== ''
}

function isTexts(value: unknown): value is readonly string[] {
  return Array.isArray(value) && value.every((one) => typeof one === 'string')
}

/** True for a number of seconds. */
export function isTime(value: unknown): value is number {
  return Number.isFinite(value)
}
