/** The checks between a token and a principal, one by one: what each of them accepts, up to its last value, and what it refuses. */

import { describe, expect, it } from 'vitest'
import {
  CLAIM_CHECKS,
  type ClaimRules,
  clientOf,
  findProblem,
  grantedBy,
  shown,
  type TokenClaims,
  toPrincipal,
} from './claims.ts'

const NOW = 1_800_000_000
const ISSUER = 'https://id.example.com'
const RULES: ClaimRules = {
  issuers: [ISSUER, 'https://slash.example.com/'],
  audiences: ['https://mcp.example.com/mcp', 'api://desk'],
  skew: 60,
  client: clientOf,
  granted: grantedBy,
  bindings: new Set(['jkt']),
}
const CLAIMS = {
  iss: ISSUER,
  aud: 'https://mcp.example.com/mcp',
  sub: 'alice',
  client_id: 'desk',
  exp: NOW + 600,
}

const problemOf = (claims: object, rules: Partial<ClaimRules> = {}) =>
  findProblem(CLAIM_CHECKS, { ...CLAIMS, ...claims }, { ...RULES, ...rules }, NOW)

describe('claims', () => {
  it.each<[string, object]>([
    ['no more than is needed', {}],
    ['an expiry that is not longer ago than clocks may differ', { exp: NOW - 59 }],
    ['a start that is not further ahead than clocks may differ', { nbf: NOW + 60 }],
    ['an issue that is not further ahead than clocks may differ', { iat: NOW + 60 }],
    ['one of the audiences, by itself', { aud: 'api://desk' }],
    ['one of the audiences, among others', { aud: ['https://other.example', 'api://desk'] }],
    ['a key whose proof is checked here', { cnf: { jkt: 'key' } }],
    ['scopes as a string', { scope: 'a b' }],
    ['scopes as a list', { scp: ['a', 'b'] }],
  ])('H1 are accepted with %s', (_what, claims) => {
    expect(problemOf(claims)).toBeUndefined()
  })

  it.each<[string, object, RegExp]>([
    ['an empty issuer', { iss: '' }, /names no issuer/],
    ['a list for an issuer', { iss: [ISSUER] }, /names no issuer/],
    ['another issuer', { iss: 'https://evil.example' }, /"https:\/\/evil\.example", which .* does not name/],
    ['a slash too many', { iss: `${ISSUER}/` }, /has "https:\/\/id\.example\.com": they differ in the slash/],
    [
      'a slash too few',
      { iss: 'https://slash.example.com' },
      /has "https:\/\/slash\.example\.com\/": they differ/,
    ],
    ['two slashes too many', { iss: `${ISSUER}//` }, /does not name/],
    [
      'no audience',
      { aud: undefined },
      /^The token names no audience \(aud\)\. Have .*mcp\.example\.com\/mcp/,
    ],
    ['an empty list of audiences', { aud: [] }, /is for somebody else/],
    [
      'other audiences',
      { aud: ['https://a.example', 'https://b.example'] },
      /is "https:\/\/a\.example", "https:\/\/b\.example"\. Have .*oauthResource\(\{ audience \}\)\.$/,
    ],
    ['a part of an audience', { aud: 'https://mcp.example.com/mc' }, /is for somebody else/],
    ['a number among its audiences', { aud: ['api://desk', 1] }, /neither a string nor a list/],
    ['an object for an audience', { aud: { 0: 'api://desk' } }, /neither a string nor a list/],
    ['no expiry', { exp: undefined }, /no expiry/],
    ['an expiry in text', { exp: String(NOW + 600) }, /no expiry/],
    ['an endless expiry', { exp: Number.POSITIVE_INFINITY }, /no expiry/],
    ['an expiry that is no number', { exp: Number.NaN }, /no expiry/],
    ['an expiry as long ago as clocks may differ', { exp: NOW - 60 }, /expired 60 s ago/],
    ['a start in text', { nbf: '0' }, /\(nbf\) is not a number/],
    ['an endless start', { nbf: Number.NEGATIVE_INFINITY }, /\(nbf\) is not a number/],
    ['a start that clocks do not explain', { nbf: NOW + 61 }, /valid from 61 s in the future/],
    ['an issue in text', { iat: '0' }, /\(iat\) is not a number/],
    ['an endless issue', { iat: Number.NEGATIVE_INFINITY }, /\(iat\) is not a number/],
    ['an issue that clocks do not explain', { iat: NOW + 61 }, /issued 61 s in the future/],
    ['no subject', { sub: undefined }, /names no subject/],
    ['an empty subject', { sub: '' }, /names no subject/],
    ['no client', { client_id: undefined }, /names no client/],
    ['an empty client', { client_id: '' }, /names no client/],
    ['a key of another kind', { cnf: { kid: 'x' } }, /bound to a key/],
    ['a key of another kind beside one that is checked', { cnf: { jkt: 'x', kid: 'x' } }, /bound to a key/],
    ['an empty key', { cnf: { jkt: '' } }, /bound to a key/],
    ['a list for a key', { cnf: { jkt: ['x'] } }, /bound to a key/],
    ['no key to be bound to', { cnf: {} }, /bound to a key/],
    ['text to be bound to', { cnf: 'jkt' }, /bound to a key/],
    ['nothing to be bound to', { cnf: null }, /bound to a key/],
    ['a number as its scopes', { scope: 1 }, /scopes of the token/],
    ['a number among its scopes', { scp: ['a', 1] }, /scopes of the token/],
    ['good scopes and bad ones', { scope: 'a', scp: { b: true } }, /scopes of the token/],
  ])('H1 T32 are refused with %s', (_what, claims, problem) => {
    expect(problemOf(claims)).toMatch(problem)
  })

  it('H1 are refused if they are not an object', () => {
    for (const claims of [undefined, null, [], 'claims', 1])
      expect(findProblem([], claims as never, RULES, NOW)).toMatch(/not an object/)
  })

  it('H1 are compared without quoting what could forge a line of the log', () => {
    expect(shown('https://id.example\n"a\\b"é')).toBe('https://id.example??a?b??')
    expect(shown(' ~')).toBe(' ~')
    expect(shown('x'.repeat(200))).toBe('x'.repeat(200))
    expect(shown('x'.repeat(201))).toBe(`${'x'.repeat(200)}…`)
    expect(problemOf({ iss: 'https://a\nb' })).toContain('"https://a?b"')
  })
})

describe('a principal', () => {
  it('H3 has issuer, subject, client, scopes and claims', () => {
    const claims = { ...CLAIMS, scope: 'read write' }
    expect(toPrincipal(claims, RULES)).toEqual({
      issuer: ISSUER,
      subject: 'alice',
      client: 'desk',
      claims,
      scopes: ['read', 'write'],
    })
  })

  it('H3 has no client if the author says so', () => {
    const principal = toPrincipal(CLAIMS, { ...RULES, client: () => undefined })
    expect(principal).not.toHaveProperty('client')
    expect(problemOf({ client_id: undefined }, { client: () => undefined })).toBeUndefined()
  })

  it.each<[TokenClaims, string]>([
    [{ client_id: 'a', azp: 'b', appid: 'c' }, 'a'],
    [{ azp: 'b', appid: 'c' }, 'b'],
    [{ appid: 'c' }, 'c'],
    [{ client_id: 1, azp: 'b' }, ''],
    [{ client_id: '', azp: 'b' }, ''],
    [{}, ''],
  ])('H3 has the client of %j', (claims, client) => {
    expect(clientOf(claims)).toBe(client)
  })

  it.each<[TokenClaims, readonly string[]]>([
    [{}, []],
    [{ scope: '' }, []],
    [{ scope: ' a  b ' }, ['a', 'b']],
    [{ scope: 'a', scp: 'b' }, ['a']],
    [{ scp: 'a b' }, ['a', 'b']],
    [{ scp: ['a', '', 'b c'] }, ['a', 'b c']],
    [{ scope: ['a', 1] }, []],
    [{ scope: 1 }, []],
  ])('H2 has the scopes of %j', (claims, scopes) => {
    expect(grantedBy(claims)).toEqual(scopes)
  })
})
