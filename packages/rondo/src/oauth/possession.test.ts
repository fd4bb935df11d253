/** The proof of a key: what is read, what each check compares, and which proofs are remembered for how long. */

import { createHash, generateKeyPairSync, type KeyObject, sign as signBytes } from 'node:crypto'
import { calculateJwkThumbprint, type JWK } from 'jose'
import { describe, expect, it } from 'vitest'
import { createMemoryStore } from '../store/memory/store.ts'
import type { OnceStore } from '../store/store.ts'
import { createPossession, hashOf, type PossessionSetup, type ProofStore } from './possession.ts'

const URL = 'https://mcp.example.com/mcp'
const NOW = 1_800_000_000_000
const SECONDS = NOW / 1_000
const TOKEN = 'token'
const DIGEST = createHash('sha256').update(TOKEN).digest('base64url')

interface Keys {
  readonly privateKey: KeyObject
  readonly jwk: JWK
  readonly jkt: string
}

const PAIRS = {
  ES256: () => generateKeyPairSync('ec', { namedCurve: 'P-256' }),
  ES384: () => generateKeyPairSync('ec', { namedCurve: 'P-384' }),
  EdDSA: () => generateKeyPairSync('ed25519'),
  Ed25519: () => generateKeyPairSync('ed25519'),
}
type Algorithm = keyof typeof PAIRS

async function createKeys(alg: Algorithm = 'ES256'): Promise<Keys> {
  const { privateKey, publicKey } = PAIRS[alg]()
  const jwk = publicKey.export({ format: 'jwk' }) as JWK
  return { privateKey, jwk, jkt: await calculateJwkThumbprint(jwk) }
}

const own = await createKeys()
const thief = await createKeys()

const part = (value: unknown) =>
  Buffer.from(typeof value === 'string' ? value : JSON.stringify(value)).toString('base64url')

let count = 0
const claimsOf = (changes: object = {}) => ({
  htm: 'POST',
  htu: URL,
  iat: SECONDS,
  jti: `proof ${count++}`,
  ath: DIGEST,
  ...changes,
})

/** Signs a proof, whatever its header and its claims are. */
function sign(claims: unknown, { jwk, privateKey }: Keys = own, header: object = {}): string {
  const { alg = 'ES256' } = header as { alg?: string }
  const text = `${part({ alg, typ: 'dpop+jwt', jwk, ...header })}.${part(claims)}`
  const hash = alg === 'ES384' ? 'sha384' : alg.startsWith('Ed') ? null : 'sha256'
  const bytes = signBytes(hash, Buffer.from(text), { key: privateKey, dsaEncoding: 'ieee-p1363' })
  return `${text}.${bytes.toString('base64url')}`
}

const prove = (changes: object = {}, keys?: Keys) => sign(claimsOf(changes), keys)

interface Sent {
  readonly scheme?: 'bearer' | 'dpop'
  readonly cnf?: unknown
  readonly proof?: string
  readonly certificate?: string
  readonly method?: string
}

function open(changes: Partial<PossessionSetup> = {}) {
  const clock = { now: NOW }
  const possession = createPossession({ dpop: {}, url: URL, now: () => clock.now, ...changes })
  const check = (sent: Sent) => {
    const { scheme = 'dpop', cnf = { jkt: own.jkt }, proof, certificate, method = 'POST' } = sent
    const headers = (name: string) =>
      name === 'dpop' ? proof : name === 'client-cert' ? certificate : undefined
    return possession.findProblem({ scheme, token: TOKEN, digest: DIGEST }, cnf, { headers, method })
  }
  return { clock, possession, check, use: (proof: string) => check({ proof }) }
}

const blamed = (blame: 'token' | 'proof' | 'none', problem: RegExp) => ({
  blame,
  problem: expect.stringMatching(problem),
})

describe('a proof', () => {
  it.each<Algorithm>(['ES256', 'ES384', 'EdDSA', 'Ed25519'])('H5 may be signed with %s', async (alg) => {
    const keys = await createKeys(alg)
    const { check } = open()
    for (let i = 0; i < 2; i++) {
      const proof = sign(claimsOf(), keys, { alg })
      expect(await check({ cnf: { jkt: keys.jkt }, proof })).toBeUndefined()
    }
    const proof = sign(claimsOf(), { ...keys, privateKey: (await createKeys(alg)).privateKey }, { alg })
    expect(await check({ cnf: { jkt: keys.jkt }, proof })).toEqual(blamed('proof', /signature of the proof/))
  })

  it.each<[string, object, RegExp]>([
    ['another token', { ath: hashOf('other') }, /another access token/],
    ['no token', { ath: undefined }, /another access token/],
    ['another method', { htm: 'GET' }, /another HTTP method/],
    ['the method in small letters', { htm: 'post' }, /another HTTP method/],
    [
      'another URL',
      { htu: 'https://evil.example/mcp' },
      /another URL \(htu\) than https:\/\/mcp\.example\.com\/mcp/,
    ],
    ['a list of URLs', { htu: [URL] }, /another URL/],
    ['no URL', { htu: 'mcp' }, /another URL/],
    ['a time in text', { iat: String(SECONDS) }, /no time/],
    ['no time', { iat: undefined }, /no time/],
    ['a time more than a minute ago', { iat: SECONDS - 60.001 }, /is 60 s old/],
    ['a time more than a minute ahead', { iat: SECONDS + 60.001 }, /is -60 s old/],
    ['no id', { jti: undefined }, /no id/],
    ['an empty id', { jti: '' }, /no id/],
    ['a number as its id', { jti: 1 }, /no id/],
    ['an id of 257 characters', { jti: 'x'.repeat(257) }, /no id/],
  ])('T35 is refused for %s', async (_what, claims, problem) => {
    expect(await open().use(prove(claims))).toEqual(blamed('proof', problem))
  })

  it.each<[string, object]>([
    ['a minute ago', { iat: SECONDS - 60 }],
    ['a minute ahead', { iat: SECONDS + 60 }],
    ['an id of 256 characters', { jti: 'x'.repeat(256) }],
    ['a query', { htu: `${URL}?a=b` }],
    ['a fragment', { htu: `${URL}#a` }],
    ['capitals in its host', { htu: 'HTTPS://MCP.example.com/mcp' }],
  ])('H5 is accepted for %s', async (_what, claims) => {
    expect(await open().use(prove(claims))).toBeUndefined()
  })

  it('H5 is for the URL without its query', async () => {
    expect(await open({ url: `${URL}?tenant=1` }).use(prove())).toBeUndefined()
  })

  it('T35 is for the window that the operator sets', async () => {
    const { use } = open({ dpop: { windowMs: 5_000 } })
    expect(await use(prove({ iat: SECONDS - 5 }))).toBeUndefined()
    expect(await use(prove({ iat: SECONDS - 6 }))).toEqual(blamed('proof', /6 s old/))
  })

  it('T35 is refused with another key than that of the token', async () => {
    expect(await open().use(prove({}, thief))).toEqual(blamed('proof', /another key/))
  })

  const text = sign(claimsOf()).split('.')
  it.each<[string, string | undefined, RegExp]>([
    ['is missing', undefined, /no proof/],
    ['has two parts', text.slice(0, 2).join('.'), /not a single signed/],
    ['has four parts', [...text, 'a'].join('.'), /not a single signed/],
    ['has no header', ['', text[1], text[2]].join('.'), /not a single signed/],
    ['has no claims', [text[0], '', text[2]].join('.'), /not a single signed/],
    ['has no signature', [text[0], text[1], ''].join('.'), /not a single signed/],
    ['begins with a blank', ` ${text.join('.')}`, /not a single signed/],
    ['ends with a blank', `${text.join('.')} `, /not a single signed/],
    ['is followed by another', `${text.join('.')},${text.join('.')}`, /not a single signed/],
    ['has claims that are a list', sign('[]'), /claims of the proof \(DPoP\) are not a JSON object/],
    ['has claims that are no JSON', sign('{'), /claims of the proof/],
    ['has claims with a member twice', sign('{"htm":"POST","htm":"GET"}'), /claims of the proof/],
    ['has deep claims', sign(`{"a":${'['.repeat(9)}${']'.repeat(9)}}`), /claims of the proof/],
    ['has a header that is a list', ['W10', text[1], text[2]].join('.'), /another type/],
    ['has the type JWT', sign(claimsOf(), own, { typ: 'JWT' }), /another type/],
    ['has critical extensions', sign(claimsOf(), own, { crit: [] }), /critical extensions/],
    ['has no algorithm', `${part({ typ: 'dpop+jwt', jwk: own.jwk })}.e30.e30`, /not accepted \(ES256, ES384/],
    ['has a list of algorithms', `${part({ typ: 'dpop+jwt', alg: ['ES256'] })}.e30.e30`, /not accepted/],
    [
      'has the algorithm constructor',
      `${part({ typ: 'dpop+jwt', alg: 'constructor' })}.e30.e30`,
      /not accepted/,
    ],
    ['has no key', sign(claimsOf(), own, { jwk: undefined }), /no public key/],
    ['has text for a key', sign(claimsOf(), own, { jwk: 'P-256' }), /no public key/],
    [
      'has a key of another curve',
      sign(claimsOf(), own, { jwk: { ...own.jwk, crv: 'P-384' } }),
      /no public key/,
    ],
    ['has a private key', sign(claimsOf(), own, { jwk: { ...own.jwk, d: '' } }), /no public key/],
    ['has a secret', sign(claimsOf(), own, { jwk: { ...own.jwk, k: '' } }), /no public key/],
    [
      'has a key that is no point',
      sign(claimsOf(), own, { jwk: { ...own.jwk, x: 'AA' } }),
      /key \(jwk\) .* not valid/,
    ],
  ])('T35 is refused if it %s', async (_what, proof, problem) => {
    expect(await open().check({ proof })).toEqual(blamed('proof', problem))
  })

  it('T35 is read up to 8,192 characters', async () => {
    const sized = (length: number) => {
      for (let pad = length; pad > 0; pad -= 1) {
        const proof = prove({ pad: 'x'.repeat(pad) })
        if (proof.length <= length) return proof
      }
      throw new Error('no proof is that short')
    }
    const longest = sized(8_192)
    expect(longest.length).toBeGreaterThan(8_190)
    expect(await open().use(longest)).toBeUndefined()
    expect(await open().use(prove({ pad: 'x'.repeat(6_000) }))).toEqual(
      blamed('proof', /not a single signed/),
    )
  })

  it('T35 has the thumbprint of its key alone, whatever else is in the header', async () => {
    const jwk = { ...own.jwk, kid: 'k', use: 'sig', alg: 'ES256' }
    const long = { ...jwk, kid: 'k'.repeat(2_000) }
    const { use } = open()
    for (const one of [jwk, long, long])
      expect(await use(sign(claimsOf(), own, { jwk: one }))).toBeUndefined()
  })
})

describe('a token', () => {
  const bound = { jkt: own.jkt }
  it.each<[string, PossessionSetup['dpop'], Sent, RegExp | undefined]>([
    [
      'bound to a key, presented without a proof',
      {},
      { scheme: 'bearer', cnf: bound },
      /presented as a bearer token/,
    ],
    ['bound to nothing, presented with a proof', {}, { cnf: null }, /but is not bound/],
    ['bound to a list, presented with a proof', {}, { cnf: { jkt: ['x'] } }, /but is not bound/],
    ['bound to nothing, presented without a proof', {}, { scheme: 'bearer', cnf: null }, undefined],
    [
      'bound to nothing where it has to be',
      { required: true },
      { scheme: 'bearer', cnf: null },
      /dpop: \{ required \}/,
    ],
  ])('T35 that is %s is judged by that', async (_what, dpop, sent, problem) => {
    const found = await open({ dpop }).check({ proof: prove(), ...sent })
    expect(found).toEqual(problem === undefined ? undefined : blamed('token', problem))
  })

  it('T35 that is bound needs a request', async () => {
    const { possession } = open()
    const presented = { scheme: 'dpop', token: TOKEN, digest: DIGEST } as const
    expect(await possession.findProblem(presented, bound, undefined)).toEqual(blamed('token', /no request/))
    const bearer = { ...presented, scheme: 'bearer' } as const
    expect(await possession.findProblem(bearer, undefined, undefined)).toBeUndefined()
  })

  it('H5 is bound to what can be checked', () => {
    const members = (setup: Partial<PossessionSetup>) => [...open(setup).possession.members]
    expect(members({})).toEqual(['jkt'])
    expect(members({ dpop: undefined })).toEqual([])
    expect(members({ dpop: undefined, certificateHeader: 'client-cert' })).toEqual(['x5t#S256'])
    expect(members({ certificateHeader: 'client-cert' })).toEqual(['jkt', 'x5t#S256'])
  })

  it('H5 is left to the check of the claims where nothing can be proven', async () => {
    const { check } = open({ dpop: undefined })
    expect(await check({ cnf: bound })).toBeUndefined()
  })

  it('H5 that is bound to a key alone may come with a certificate', async () => {
    const { check } = open({ certificateHeader: 'client-cert' })
    expect(await check({ proof: prove(), certificate: `:${CERTIFICATE}:` })).toBeUndefined()
  })

  it('T35 that is bound to a certificate needs that certificate, and no proof', async () => {
    const { check } = open({ dpop: undefined, certificateHeader: 'client-cert' })
    const raw = Buffer.from(CERTIFICATE, 'base64')
    const thumbprint = createHash('sha256').update(raw).digest('base64url')
    const pem = `-----BEGIN CERTIFICATE-----\n${CERTIFICATE}\n-----END CERTIFICATE-----\n`
    const present = (certificate: string | undefined) =>
      check({ scheme: 'bearer', cnf: { 'x5t#S256': thumbprint }, certificate })
    for (const good of [`:${CERTIFICATE}:`, pem, encodeURIComponent(pem), ` ${pem}`])
      expect(await present(good)).toBeUndefined()
    const bad = [
      undefined,
      '',
      CERTIFICATE,
      `:${CERTIFICATE}`,
      `x:${CERTIFICATE}:`,
      `:${CERTIFICATE}:x`,
      `x${pem}`,
      `:${CERTIFICATE}:,:${CERTIFICATE}:`,
      `${encodeURIComponent(pem)}%`,
      `${pem}${' '.repeat(65_536)}`,
      '::',
    ]
    for (const one of bad) expect(await present(one)).toEqual(blamed('token', /bound to a certificate/))
    expect(await check({ scheme: 'bearer', cnf: { 'x5t#S256': 1 }, certificate: pem })).toEqual(
      blamed('token', /bound to a certificate/),
    )
    expect(await present(`${pem}${' '.repeat(65_536 - pem.length)}`)).toBeUndefined()
  })
})

const CERTIFICATE =
  'MIIBczCCARmgAwIBAgIUEOSQqiWoCbC8KQae8ot7IOvmWpcwCgYIKoZIzj0EAwIwDzENMAsGA1UEAwwEbWluZTAeFw0yNjExMTgw' +
  'MjIyMDNaFw0zNjExMTUwMjIyMDNaMA8xDTALBgNVBAMMBG1pbmUwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAAQIbiwQpdezqGvU' +
  'OM+3MXGpim4hFECnD+q3yYrNW+qHr4nV+TAmc3t+dqzvpz4KexIpfT6vSNH2TUztS8D8anLvo1MwUTAdBgNVHQ4EFgQUCIXnpwFn' +
  'k1rvEHC7rzg3PbB9UMUwHwYDVR0jBBgwFoAUCIXnpwFnk1rvEHC7rzg3PbB9UMUwDwYDVR0TAQH/BAUwAwEB/zAKBggqhkjOPQQD' +
  'AgNIADBFAiAf+qCM4yKDFDO8VJJso5bjK5sza9RNu+505keTKJyCaQIhAJfN6d5NZlv2mWxlIDS0KUTMDUQI3GkXkWRLvYR1HdF5'

const AGAIN = blamed('proof', /used before/)

describe('the memory of proofs', () => {
  it('T35 knows a proof for as long as it is valid, whenever it came', async () => {
    for (const begin of [0, 1, 60_000, 119_999, 120_000, 200_000]) {
      const { clock, use } = open()
      clock.now = NOW + begin
      const iat = clock.now / 1_000 + 60
      const [short, long] = [prove({ iat }), prove({ iat, jti: 'x'.repeat(44) })]
      for (const proof of [short, long]) expect(await use(proof)).toBeUndefined()
      for (const ms of [0, 60_000, 119_999, 120_000]) {
        clock.now = NOW + begin + ms
        for (const proof of [short, long]) expect(await use(proof)).toEqual(AGAIN)
      }
    }
  })

  it('forgets proofs that are too old anyway, and makes room for others', async () => {
    const { clock, use } = open({ dpop: { maxProofs: 1 } })
    const proof = (jti: string) => prove({ jti, iat: clock.now / 1_000 })
    expect(await use(proof('a'))).toBeUndefined()
    expect(await use(proof('b'))).toEqual(blamed('none', /Too many proofs \(DPoP\) are remembered/))
    clock.now += 119_999
    expect(await use(proof('b'))).toMatchObject({ blame: 'none' })
    clock.now += 1
    expect(await use(proof('a'))).toEqual(AGAIN)
    expect(await use(proof('b'))).toBeUndefined()
    clock.now += 240_000
    expect(await use(proof('a'))).toBeUndefined()
    expect(await use(proof('b'))).toMatchObject({ blame: 'none' })
    clock.now += 120_000
    expect(await use(proof('b'))).toBeUndefined()
    expect(await use(proof('a'))).toEqual(AGAIN)
  })

  it('T35 is shared by keys: one that sends too many proofs is refused alone', async () => {
    const { check } = open({ dpop: { maxProofs: 3, maxProofsPerKey: 2 } })
    const by = (keys: Keys, jti: string) => check({ cnf: { jkt: keys.jkt }, proof: prove({ jti }, keys) })
    expect(await by(thief, 'a')).toBeUndefined()
    expect(await by(thief, 'b')).toBeUndefined()
    expect(await by(thief, 'c')).toEqual(blamed('none', /proofs \(DPoP\) of this key/))
    expect(await by(thief, 'a')).toEqual(AGAIN)
    expect(await by(own, 'a')).toBeUndefined()
    expect(await by(own, 'b')).toEqual(blamed('none', /Too many proofs \(DPoP\) are remembered/))
  })
})

describe('a store of proofs', () => {
  it('T35 is asked about each proof, and knows those that other instances saw', async () => {
    const store = createMemoryStore({ now: () => NOW })
    const [first, second] = [open({ dpop: { store } }), open({ dpop: { store } })]
    const proof = prove()
    expect(await first.use(proof)).toBeUndefined()
    expect(await second.use(proof)).toEqual(AGAIN)
    const other = { cnf: { jkt: thief.jkt }, proof: prove({ jti: 'same' }, thief) }
    expect(await second.use(prove({ jti: 'same' }))).toBeUndefined()
    expect(await second.check(other)).toBeUndefined()
  })

  it('T35 keeps a proof for three windows, and holds it for as long', async () => {
    const claims: Parameters<OnceStore['claim']>[] = []
    const memory = createMemoryStore({ now: () => NOW })
    const once: OnceStore = {
      ...memory.once,
      claim(...given) {
        claims.push(given)
        return memory.once.claim(...given)
      },
    }
    const { use } = open({ dpop: { store: { once }, windowMs: 10_000 } })
    await use(prove())
    await use(prove())
    const [[slot, attempt] = [], [other] = []] = claims
    expect(slot).toMatchObject({
      flow: expect.stringMatching(/^dpop-[\w-]{43}$/),
      round: 0,
      expiresAt: NOW + 30_000,
    })
    expect(attempt).toMatchObject({ holdMs: 30_000 })
    expect(other?.flow).not.toBe(slot?.flow)
    const short = open({ dpop: { store: { once }, windowMs: 0 } })
    await short.use(prove())
    expect(claims.at(-1)?.[1]).toMatchObject({ holdMs: 1_000 })
  })

  it('T35 is asked again once its epoch has changed', async () => {
    const store = createMemoryStore({ now: () => NOW })
    const { use } = open({ dpop: { store } })
    expect(await use(prove())).toBeUndefined()
    await store.once.renewEpoch()
    const proof = prove()
    expect(await use(proof)).toBeUndefined()
    expect(await use(proof)).toEqual(AGAIN)
  })

  it('T35 reads its epoch once, and again after a failure', async () => {
    const memory = createMemoryStore({ now: () => NOW })
    let epochs = 0
    let fails = false
    const once: OnceStore = {
      ...memory.once,
      epoch() {
        epochs += 1
        return memory.once.epoch()
      },
      claim: (...given) => (fails ? Promise.reject(new Error('away')) : memory.once.claim(...given)),
    }
    const { use } = open({ dpop: { store: { once } } })
    await use(prove())
    await use(prove())
    expect(epochs).toBe(1)
    fails = true
    await expect(use(prove())).rejects.toThrow('away')
    fails = false
    expect(await use(prove())).toBeUndefined()
    expect(epochs).toBe(2)
  })

  it('T35 is asked once about a proof, whatever it says', async () => {
    const { once } = createMemoryStore({ now: () => NOW })
    let claims = 0
    let fails = false
    const counted: OnceStore = {
      ...once,
      async claim(...given) {
        claims += 1
        const outcome = await once.claim(...given)
        if (!fails) return outcome
        fails = false
        throw new Error('the response is lost')
      },
    }
    const { use } = open({ dpop: { store: { once: counted } } })
    const proof = prove()
    for (const [outcome, asked] of [
      [undefined, 1],
      [AGAIN, 2],
    ] as const) {
      expect(await use(proof)).toEqual(outcome)
      expect(claims).toBe(asked)
    }
    fails = true
    await expect(use(prove())).rejects.toThrow('lost')
    expect(claims).toBe(3)
  })

  it('is swept once per window, until less than a batch is left, and works on if that fails', async () => {
    const { once } = createMemoryStore({ now: () => NOW })
    const swept: number[] = []
    const left = [1_000, 1_000, 999]
    let fails = false
    const store: ProofStore = {
      once,
      async sweep(limit) {
        swept.push(limit)
        if (fails) throw new Error('away')
        return left.shift() ?? 0
      },
    }
    const { clock, use } = open({ dpop: { store } })
    const now = () => prove({ iat: clock.now / 1_000 })
    clock.now += 59_999
    await use(now())
    expect(swept).toEqual([])
    clock.now += 1
    await use(now())
    await new Promise((resolve) => setImmediate(resolve))
    expect(swept).toEqual([1_000, 1_000, 1_000])
    clock.now += 59_999
    await use(now())
    expect(swept).toHaveLength(3)
    fails = true
    clock.now += 1
    expect(await use(now())).toBeUndefined()
    expect(swept).toHaveLength(4)
  })
})
