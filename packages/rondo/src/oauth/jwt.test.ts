/** Tokens that are signed with published keys: which keys are tried, and which are not. */

import { constants, createHmac, generateKeyPairSync, type KeyObject, sign as signBytes } from 'node:crypto'
import { describe, expect, it } from 'vitest'
import { type ClaimRules, clientOf, grantedBy } from './claims.ts'
import { assertJwtOptions, createJwtVerifier, type Issuer, JWT_CHECKS, type JwtOptions } from './jwt.ts'

const NOW = 1_800_000_000
const ISSUER = 'https://id.example.com'
const CLAIMS = { iss: ISSUER, aud: 'mcp', sub: 'alice', client_id: 'desk', exp: NOW + 600 }

const p256 = generateKeyPairSync('ec', { namedCurve: 'P-256' })
const p384 = generateKeyPairSync('ec', { namedCurve: 'P-384' })
const p521 = generateKeyPairSync('ec', { namedCurve: 'P-521' })
const ed25519 = generateKeyPairSync('ed25519')
const stranger = generateKeyPairSync('ec', { namedCurve: 'P-256' })

let made: ReturnType<typeof generateRsa> | undefined
const generateRsa = () => generateKeyPairSync('rsa', { modulusLength: 2048 })
/** A key pair for RSA, made once: it takes long. */
const rsa = () => {
  made ??= generateRsa()
  return made
}

const RULES: ClaimRules = {
  issuers: [ISSUER],
  audiences: ['mcp'],
  skew: 60,
  client: clientOf,
  granted: grantedBy,
  bindings: new Set(),
}

type Json = Readonly<Record<string, unknown>>
const jwkOf = (key: KeyObject, more: object = {}): Json => ({ ...key.export({ format: 'jwk' }), ...more })
const part = (value: unknown) =>
  Buffer.from(typeof value === 'string' ? value : JSON.stringify(value)).toString('base64url')

const HASHES: Readonly<Record<string, string>> = { 256: 'sha256', 384: 'sha384', 512: 'sha512' }

function sign(claims: object, header: Json, key: KeyObject = p256.privateKey): string {
  const input = `${part({ ...CLAIMS, ...claims })}`
  const text = `${part({ alg: 'ES256', ...header })}.${input}`
  const alg = String(header.alg ?? 'ES256')
  const hash = HASHES[alg.slice(2)] ?? null
  const pss = {
    padding: constants.RSA_PKCS1_PSS_PADDING,
    saltLength: constants.RSA_PSS_SALTLEN_DIGEST,
  }
  const bytes = signBytes(hash, Buffer.from(text), {
    key,
    dsaEncoding: 'ieee-p1363',
    ...(alg.startsWith('PS') && pss),
  })
  return `${text}.${bytes.toString('base64url')}`
}

/** A verifier for one issuer with these keys. */
function verifier(keys: readonly Json[], options: JwtOptions = {}, more: readonly Issuer[] = []) {
  const issuers = [{ issuer: ISSUER, jwks: { keys } }, ...more]
  return createJwtVerifier(options, {
    issuers,
    rules: { ...RULES, issuers: issuers.map(({ issuer }) => issuer) },
    fetch: () => Promise.reject(new Error('no network')),
    now: () => NOW * 1_000,
  })
}

const EC = jwkOf(p256.publicKey, { kid: 'ec' })
const problem = (text: RegExp) => ({ kind: 'refused', problem: expect.stringMatching(text) })

describe('a signed token', () => {
  it.each<[string, () => { privateKey: KeyObject; publicKey: KeyObject }]>([
    ['ES256', () => p256],
    ['ES384', () => p384],
    ['ES512', () => p521],
    ['EdDSA', () => ed25519],
    ['Ed25519', () => ed25519],
    ...['RS256', 'RS384', 'RS512', 'PS256', 'PS384', 'PS512'].map((alg): [string, typeof rsa] => [alg, rsa]),
  ] as const)(
    'H1 is accepted with %s, with the key that it names or the only one that fits',
    async (alg, pair) => {
      const { privateKey, publicKey } = pair()
      const { kty, crv } = jwkOf(publicKey)
      const others = [p256, p384, p521, ed25519]
        .map((one, at) => jwkOf(one.publicKey, { kid: `key ${at}` }))
        .filter((one) => one.kty !== kty || one.crv !== crv)
      const verify = verifier([...others, jwkOf(publicKey, { kid: 'own' })])
      const accepted = { kind: 'claims', claims: CLAIMS }
      expect(await verify(sign({}, { alg, kid: 'own' }, privateKey))).toEqual(accepted)
      expect(await verify(sign({}, { alg }, privateKey))).toEqual(accepted)
      // Another token meets the key that the first one imported.
      expect(await verify(sign({ sub: 'bob' }, { alg }, privateKey))).toMatchObject({ kind: 'claims' })
      const [first, second] = sign({}, { alg }, privateKey).split('.')
      const [, , third] = sign({ sub: 'bob' }, { alg }, privateKey).split('.')
      expect(await verify(`${first}.${second}.${third}`)).toEqual(problem(/signature of the token is not/))
    },
  )

  it('H1 is refused if it expires while the keys are fetched', async () => {
    let time = NOW
    const verify = createJwtVerifier(
      {},
      {
        issuers: [{ issuer: ISSUER, jwks: `${ISSUER}/keys` }],
        rules: RULES,
        fetch: async () => {
          time += 5
          return Response.json({ keys: [EC] })
        },
        now: () => time * 1_000,
      },
    )
    const token = sign({ exp: NOW + 1 - RULES.skew }, { kid: 'ec' })
    expect(await verify(token)).toEqual(problem(/expired/))
  })

  it('H1 is refused with an algorithm that the operator leaves out', async () => {
    const verify = verifier([jwkOf(rsa().publicKey)], { algorithms: ['ES256'] })
    expect(await verify(sign({}, { alg: 'RS256' }, rsa().privateKey))).toEqual(
      problem(/signed with "RS256", which is not an accepted algorithm \(ES256\)/),
    )
  })

  it('H1 is refused with HMAC, whatever the operator publishes', async () => {
    const text = `${part({ alg: 'HS256', kid: 'oct' })}.${part(CLAIMS)}`
    const token = `${text}.${createHmac('sha256', 'secret').update(text).digest('base64url')}`
    const verify = verifier([{ kty: 'oct', kid: 'oct', k: part('secret') }])
    expect(await verify(token)).toEqual(problem(/"HS256", which is not an accepted/))
  })

  it.each<[string, Json, RegExp | undefined]>([
    ['the type at+jwt', { typ: 'at+jwt' }, undefined],
    ['the type application/at+jwt', { typ: 'application/at+jwt' }, undefined],
    ['the type JWT', { typ: 'jwt' }, undefined],
    [
      'the type of a proof',
      { typ: 'dpop+jwt' },
      /its type \(typ\) is "dpop\+jwt"\. Accepted are at\+jwt, JWT/,
    ],
    ['a type that only ends like one', { typ: 'x/application/jwt' }, /no access token/],
    ['a type with application/ in its middle', { typ: 'at+application/jwt' }, /no access token/],
    ['a number as its type', { typ: 1 }, /its type \(typ\) is \(none\)/],
    ['critical extensions', { crit: [] }, /critical extensions/],
    ['a key id of 1,025 characters', { kid: 'k'.repeat(1_025) }, /not a short string/],
    ['a key id of 1,024 characters', { kid: 'k'.repeat(1_024) }, /No key of the issuer has the key id/],
    ['a list for a key id', { kid: ['ec'] }, /not a short string/],
    ['a key id that the issuer does not have', { kid: 'new' }, /the key id "new" of the token/],
  ])('H1 with %s is judged by it', async (_what, header, log) => {
    const verified = await verifier([EC])(sign({}, { ...header }))
    expect(verified).toEqual(log === undefined ? { kind: 'claims', claims: CLAIMS } : problem(log))
  })

  it('H1 may have types of which the operator knows', async () => {
    const verify = verifier([EC], { types: ['Desk+JWT'] })
    expect(await verify(sign({}, { typ: 'desk+jwt' }))).toMatchObject({ kind: 'claims' })
    expect(await verify(sign({}, { typ: 'at+jwt' }))).toEqual(problem(/Accepted are Desk\+JWT/))
  })

  it.each<[string, string, RegExp]>([
    ['one part', part({}), /not a JSON Web Token/],
    ['two parts', 'e30.e30', /not a JSON Web Token/],
    ['four parts', 'e30.e30.e30.e30', /not a JSON Web Token/],
    ['five parts', 'a.b.c.d.e', /is encrypted/],
    ['an empty header', '.e30.e30', /not a JSON Web Token/],
    ['empty claims', 'e30..e30', /not a JSON Web Token/],
    ['a blank in its header', 'e30 .e30.e30', /not a JSON Web Token/],
    ['a blank in its claims', 'e30. e30.e30', /not a JSON Web Token/],
    ['a list for a header', `${part('[]')}.e30.e30`, /not a JSON object/],
    ['text for claims', `e30.${part('"text"')}.e30`, /not a JSON object/],
    ['16,385 characters', 'x'.repeat(16_385), /has 16385 characters; at most 16384 are read/],
    ['16,384 characters', 'x'.repeat(16_384), /not a JSON Web Token/],
    [
      'deep claims',
      `${part({ alg: 'ES256' })}.${part(`{"a":${'['.repeat(16)}${']'.repeat(16)}}`)}.e30`,
      /not a JSON object/,
    ],
    ['no algorithm', sign({}, { alg: undefined }), /signed with \(none\)/],
  ])('H1 T32 is refused with %s', async (_what, token, log) => {
    expect(await verifier([EC])(token)).toEqual(problem(log))
  })

  it('H1 is refused for its claims, of which the issuer comes first', async () => {
    const verify = verifier([EC])
    expect(await verify(sign({ iss: 'https://evil.example' }, {}, stranger.privateKey))).toEqual(
      problem(/does not name/),
    )
    expect(await verify(sign({ aud: 'other' }, {}, stranger.privateKey))).toEqual(problem(/signature/))
    expect(await verify(sign({ aud: 'other' }, {}))).toEqual(problem(/somebody else/))
  })
})

describe('a published key', () => {
  it.each<[string, object, RegExp | undefined]>([
    ['for signatures', { use: 'sig' }, undefined],
    ['for encryption', { use: 'enc' }, /not for signatures/],
    ['that may verify', { key_ops: ['verify'] }, undefined],
    ['that may do something else', { key_ops: ['sign'] }, /not for signatures/],
    ['that may do something in text', { key_ops: 'verify' }, /not for signatures/],
    ['for its algorithm', { alg: 'ES256' }, undefined],
    ['for another algorithm', { alg: 'ES384' }, /not for the algorithm "ES256"/],
    ['of another curve', { crv: 'P-384' }, /not for the algorithm "ES256"/],
    ['of another type', { kty: 'RSA' }, /not for the algorithm "ES256"/],
    [
      'that is no point of its curve',
      { x: 'AA' },
      /signature of the token is not that of the issuer's key "ec"/,
    ],
    ...['d', 'p', 'q', 'dp', 'dq', 'qi', 'k', 'priv'].map((member): [string, object, RegExp] => [
      `with its private part ${member}`,
      { [member]: 'secret' },
      /publishes the private part of its key "ec"/,
    ]),
  ])('H1 %s is judged by that', async (_what, changes, log) => {
    const verified = await verifier([{ ...EC, ...changes }])(sign({}, { kid: 'ec' }))
    expect(verified).toEqual(log === undefined ? { kind: 'claims', claims: CLAIMS } : problem(log))
  })

  it('H1 for RSA is not for a token that is signed with an elliptic curve, and the other way round', async () => {
    const [ec, own] = [{ ...EC, kid: 'a' }, jwkOf(rsa().publicKey, { kid: 'a' })]
    expect(await verifier([own])(sign({}, { kid: 'a' }))).toEqual(problem(/not for the algorithm "ES256"/))
    expect(await verifier([ec])(sign({}, { kid: 'a', alg: 'RS256' }, rsa().privateKey))).toEqual(
      problem(/not for the algorithm "RS256"/),
    )
  })

  it('H1 must be the only one that fits: none is tried if there are several', async () => {
    const two = [EC, jwkOf(stranger.publicKey, { kid: 'other' })]
    expect(await verifier(two)(sign({}, {}))).toEqual(problem(/Several keys/))
    expect(await verifier([EC, EC])(sign({}, { kid: 'ec' }))).toEqual(problem(/Several keys/))
  })

  it('H1 is tried only for tokens of its own issuer', async () => {
    const other = {
      issuer: 'https://other.example',
      jwks: { keys: [jwkOf(stranger.publicKey, { kid: 'theirs' })] },
    }
    const verify = verifier([EC], {}, [other])
    expect(await verify(sign({}, { kid: 'theirs' }, stranger.privateKey))).toEqual(
      problem(/No key of the issuer/),
    )
    const own = await verify(sign({ iss: other.issuer }, { kid: 'theirs' }, stranger.privateKey))
    expect(own).toMatchObject({ kind: 'claims' })
  })

  it('H1 leaves a token undecided as long as the keys cannot be fetched', async () => {
    const verify = verifier([], {}, [{ issuer: 'https://other.example' }])
    expect(await verify(sign({ iss: 'https://other.example' }, {}))).toEqual({
      kind: 'undecided',
      problem: expect.stringMatching(/^The keys of the issuer cannot be fetched: .* cannot be reached/),
    })
  })

  it('H1 is fetched once for all tokens that name it', async () => {
    const clock = { now: NOW * 1_000 }
    let fetched = 0
    const verify = createJwtVerifier(
      {},
      {
        issuers: [{ issuer: ISSUER, jwks: 'https://id.example.com/jwks' }],
        rules: RULES,
        async fetch() {
          fetched += 1
          return Response.json({ keys: [EC] })
        },
        now: () => clock.now,
      },
    )
    for (let i = 0; i < 3; i++) {
      expect(await verify(sign({}, { kid: 'ec' }))).toMatchObject({ kind: 'claims' })
      clock.now += 30_000
    }
    expect(fetched).toBe(1)
    expect(await verify(sign({}, { kid: 'new' }))).toMatchObject({ kind: 'refused' })
    expect(fetched).toBe(2)
  })

  it('R11 reports a fault of its own as what it is', async () => {
    const set = { keys: () => Promise.reject(new RangeError('ours')) }
    const setup = {
      issuers: [],
      rules: RULES,
      fetch: () => Promise.reject(new Error('no network')),
      now: () => NOW * 1_000,
    }
    const verify = createJwtVerifier({}, setup, { ...JWT_CHECKS, trusted: () => [set] })
    await expect(verify(sign({}, {}))).rejects.toThrow('ours')
  })
})

describe('jwt', () => {
  it.each([
    ['HMAC', ['RS256', 'HS256']],
    ['HMAC in small letters', ['hs512']],
    ['no signature', ['none']],
    ['no signature in capitals', ['NONE', 'RS256']],
    ['a number', ['RS256', 256]],
    ['text', 'RS256'],
  ])('H1 refuses to accept %s as an algorithm', (_what, algorithms) => {
    expect(() => assertJwtOptions({ algorithms: algorithms as never })).toThrow(
      /algorithms must be a list of algorithms with public keys/,
    )
  })

  it('H1 accepts any other algorithms', () => {
    for (const algorithms of [['RS256'], ['XHS256'], ['HS256x', 'nonesuch']])
      expect(() => assertJwtOptions({ algorithms })).not.toThrow()
    expect(() => assertJwtOptions({})).not.toThrow()
    expect(() => assertJwtOptions({ algorithm: ['RS256'] } as never)).toThrow(TypeError)
  })
})
