/**
 * Tokens that are bound to a key, in the hands of somebody who does not have the key. Each attack is refused with a sentence in
 * the log; and each has a control, in which the check that stops it is left out and the request gets in.
 */

import { createHash, randomUUID, X509Certificate } from 'node:crypto'
import { calculateJwkThumbprint, exportJWK, generateKeyPair, type JWK, SignJWT } from 'jose'
import { createServer, generateKey, type LogEvent, type Server } from 'rondo'
import type { OAuthResourceOptions } from 'rondo/oauth'
import { beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { JWT_CHECKS, type JwtChecks } from '../../packages/rondo/src/oauth/jwt.ts'
import { PROOF_CHECKS } from '../../packages/rondo/src/oauth/possession.ts'
import { createResource } from '../../packages/rondo/src/oauth/resource.ts'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import { describePostgres } from '../support/postgres.ts'
import { startPostgres } from '../support/postgres-server.ts'
import { createPostgresDatabase } from '../support/store/postgres-database.ts'
import { createSqliteDatabase } from '../support/store/sqlite-database.ts'
import type { Database } from '../support/store/store-harness.ts'

const RESOURCE = 'https://mcp.example.com/mcp'
const ISSUER = 'https://id.example.com'
const NOW = Date.UTC(2027, 0, 31)
const SECONDS = NOW / 1000

interface Keys {
  readonly privateKey: CryptoKey
  readonly jwk: JWK
  readonly jkt: string
}

async function createKeys(alg = 'ES256'): Promise<Keys> {
  const { privateKey, publicKey } = await generateKeyPair(alg, { extractable: true })
  const jwk = await exportJWK(publicKey)
  return { privateKey, jwk, jkt: await calculateJwkThumbprint(jwk) }
}

let issuer: Keys
let own: Keys
let thief: Keys
let bound = ''
let plain = ''

beforeAll(async () => {
  ;[issuer, own, thief] = await Promise.all([createKeys(), createKeys(), createKeys()])
  bound = await sign({ cnf: { jkt: own.jkt } })
  plain = await sign({})
})

function sign(claims: object): Promise<string> {
  return new SignJWT({ aud: RESOURCE, sub: 'alice', client_id: 'desk', ...claims })
    .setProtectedHeader({ alg: 'ES256', typ: 'at+jwt', kid: 'k' })
    .setIssuer(ISSUER)
    .setIssuedAt(SECONDS)
    .setExpirationTime(SECONDS + 600)
    .sign(issuer.privateKey)
}

const hash = (text: string) => createHash('sha256').update(text).digest('base64url')

function prove(token: string, claims: object = {}, { privateKey, jwk }: Keys = own, header: object = {}) {
  const proof = { htm: 'POST', htu: RESOURCE, iat: SECONDS, jti: randomUUID(), ath: hash(token), ...claims }
  return new SignJWT(proof)
    .setProtectedHeader({ alg: 'ES256', typ: 'dpop+jwt', jwk, ...header })
    .sign(privateKey)
}

/** A proof of the own key with another header, which keeps the signature of the true one. */
function forge(header: object): string {
  const part = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url')
  const head = part({ alg: 'ES256', typ: 'dpop+jwt', jwk: own.jwk, ...header })
  const claims = { htm: 'POST', htu: RESOURCE, iat: SECONDS, jti: randomUUID(), ath: hash(bound) }
  return `${head}.${part(claims)}.${Buffer.alloc(64, 1).toString('base64url')}`
}

interface Opened {
  readonly reasons: string[]
  /** Returns the status, and the challenge if there is one. */
  send(headers: Readonly<Record<string, string>>): Promise<{ status: number; challenge: string | null }>
}

function open(options: Partial<OAuthResourceOptions> = {}, checks: JwtChecks = JWT_CHECKS): Opened {
  const reasons: string[] = []
  const authenticate = createResource(
    {
      resource: RESOURCE,
      issuers: [{ issuer: ISSUER, jwks: { keys: [{ ...issuer.jwk, kid: 'k' }] } }],
      dpop: true,
      now: () => NOW,
      ...options,
    },
    checks,
  )
  const log = (event: LogEvent): void => {
    if (event.event === 'caller_refused') reasons.push(event.reason)
  }
  const server: Server = createServer({
    name: 'bound',
    version: '1.0.0',
    keys: generateKey('bound'),
    authenticate,
    log,
  })
  server.tool('hello', {}, () => 'in')
  const body = JSON.stringify({
    jsonrpc: '2.0',
    id: 1,
    method: 'tools/call',
    params: {
      name: 'hello',
      arguments: {},
      _meta: {
        'io.modelcontextprotocol/protocolVersion': '2026-07-28',
        'io.modelcontextprotocol/clientCapabilities': {},
      },
    },
  })
  return {
    reasons,
    async send(headers) {
      const response = await server.fetch(
        new Request('http://127.0.0.1/mcp', {
          method: 'POST',
          headers: {
            'Content-Type': 'application/json',
            Accept: 'application/json, text/event-stream',
            'MCP-Protocol-Version': '2026-07-28',
            'Mcp-Method': 'tools/call',
            'Mcp-Name': 'hello',
            ...headers,
          },
          body,
        }),
      )
      return { status: response.status, challenge: response.headers.get('www-authenticate') }
    },
  }
}

const certificate = (base64: string) => new X509Certificate(Buffer.from(base64, 'base64'))
const withProof = (token: string, proof: string) => ({ Authorization: `DPoP ${token}`, DPoP: proof })
const without = (name: string): JwtChecks => ({
  ...JWT_CHECKS,
  proof: PROOF_CHECKS.filter((check) => check.name !== name),
})

describe('a token that is bound to a key', () => {
  it('H5 is accepted with a proof of the key', async () => {
    const { send, reasons } = open()
    expect(await send(withProof(bound, await prove(bound)))).toMatchObject({ status: 200 })
    expect(reasons).toEqual([])
  })

  it.each(['ES384', 'EdDSA'])('is accepted with a proof of a key for %s', async (alg) => {
    const keys = await createKeys(alg)
    const token = await sign({ cnf: { jkt: keys.jkt } })
    const proof = await prove(token, {}, keys, { alg })
    expect(await open().send(withProof(token, proof))).toMatchObject({ status: 200 })
  })

  interface Attack {
    readonly what: string
    readonly check: string
    readonly log: RegExp
    readonly proof: () => Promise<string>
  }
  const attacks: readonly Attack[] = [
    {
      what: 'a thief signs with a key of its own',
      check: 'key',
      log: /another key/,
      proof: () => prove(bound, {}, thief),
    },
    {
      what: 'a proof for another server is presented here',
      check: 'url',
      log: /another URL.*https:\/\/mcp\.example\.com\/mcp/,
      proof: () => prove(bound, { htu: 'https://evil.example/mcp' }),
    },
    {
      what: 'a proof for another method is presented',
      check: 'method',
      log: /another HTTP method/,
      proof: () => prove(bound, { htm: 'GET' }),
    },
    {
      what: 'a proof for another token of the same key is presented',
      check: 'token',
      log: /another access token/,
      proof: () => prove('another'),
    },
    {
      what: 'an old proof is presented',
      check: 'time',
      log: /61 s old/,
      proof: () => prove(bound, { iat: SECONDS - 61 }),
    },
    {
      what: 'a proof from the future is presented',
      check: 'time',
      log: /-61 s old/,
      proof: () => prove(bound, { iat: SECONDS + 61 }),
    },
  ]
  it.each(attacks)('T35 is refused if $what', async ({ log, proof, check }) => {
    const { send, reasons } = open()
    const { status, challenge } = await send(withProof(bound, await proof()))
    expect(status).toBe(401)
    expect(challenge).toMatch(/^DPoP error="invalid_dpop_proof", algs="ES256 /)
    expect(reasons).toEqual([expect.stringMatching(log)])
    // The control: without its check, the attack succeeds.
    expect(await open({}, without(check)).send(withProof(bound, await proof()))).toMatchObject({
      status: 200,
    })
  })

  const malformed: readonly [string, RegExp, () => Promise<Readonly<Record<string, string>>>][] = [
    ['there is no proof', /no proof/, async () => ({ Authorization: `DPoP ${bound}` })],
    ['the proof is not signed', /not a single signed/, async () => withProof(bound, 'a.b')],
    [
      'the signature is that of another proof',
      /signature/,
      async () => {
        const [first, second] = await Promise.all([prove(bound), prove(bound)])
        return withProof(bound, `${first.split('.').slice(0, 2).join('.')}.${second.split('.')[2]}`)
      },
    ],
    [
      'the proof is of another type',
      /of another type/,
      async () => withProof(bound, await prove(bound, {}, own, { typ: 'JWT' })),
    ],
    [
      'the proof contains a private key',
      /no public key/,
      async () => {
        const jwk = await exportJWK(own.privateKey)
        return withProof(bound, await prove(bound, {}, { ...own, jwk }))
      },
    ],
    [
      'the proof contains a symmetric key',
      /no public key/,
      async () => withProof(bound, await prove(bound, {}, { ...own, jwk: { ...own.jwk, k: 'c2VjcmV0' } })),
    ],
    [
      'the proof has critical extensions',
      /critical extensions/,
      async () => withProof(bound, forge({ crit: ['b64'] })),
    ],
    [
      'the proof is not signed with a key',
      /not accepted/,
      async () => withProof(bound, forge({ alg: 'none' })),
    ],
    [
      'the proof is signed with a secret',
      /not accepted/,
      async () => withProof(bound, forge({ alg: 'HS256', jwk: { kty: 'oct', k: 'c2VjcmV0' } })),
    ],
    [
      'the proof is signed with RSA',
      /not accepted/,
      async () => {
        const keys = await createKeys('RS256')
        const token = await sign({ cnf: { jkt: keys.jkt } })
        return withProof(token, await prove(token, {}, keys, { alg: 'RS256' }))
      },
    ],
    [
      'the algorithm of the proof is a member of every object',
      /not accepted/,
      async () => withProof(bound, forge({ alg: 'constructor' })),
    ],
    [
      'the algorithm of the proof is for another curve than its key',
      /no public key/,
      async () => withProof(bound, forge({ alg: 'ES384' })),
    ],
    [
      'there are two proofs',
      /not a single signed/,
      async () => withProof(bound, `${await prove(bound)}, ${await prove(bound)}`),
    ],
    [
      'the proof is longer than any is',
      /not a single signed/,
      async () => withProof(bound, await prove(bound, { pad: 'x'.repeat(8_192) })),
    ],
    [
      'the proof has no token',
      /another access token/,
      async () => withProof(bound, await prove(bound, { ath: undefined })),
    ],
    ['the proof has no time', /no time/, async () => withProof(bound, await prove(bound, { iat: 'now' }))],
    [
      'the id of the proof is long',
      /no id/,
      async () => withProof(bound, await prove(bound, { jti: 'x'.repeat(257) })),
    ],
    ['the proof has no id', /no id/, async () => withProof(bound, await prove(bound, { jti: undefined }))],
  ]
  it.each(malformed)('is refused if %s', async (_what, log, headers) => {
    const { send, reasons } = open()
    expect(await send(await headers())).toMatchObject({ status: 401 })
    expect(reasons).toEqual([expect.stringMatching(log)])
  })

  it.each([
    ['a query', `${RESOURCE}?tenant=1`, 200],
    ['capitals in the host', 'https://MCP.example.com/mcp', 200],
    ['the default port', 'https://mcp.example.com:443/mcp', 200],
    ['capitals in the path', 'https://mcp.example.com/MCP', 401],
    ['a slash at the end', `${RESOURCE}/`, 401],
    ['another port', 'https://mcp.example.com:8443/mcp', 401],
    ['another scheme', 'http://mcp.example.com/mcp', 401],
    ['the host behind the proxy', 'http://127.0.0.1/mcp', 401],
    ['the host in the credentials', 'https://mcp.example.com@evil.example/mcp', 401],
    ['no URL', '/mcp', 401],
  ])('T35 is compared with the URL of the resource if htu has %s', async (_what, htu, status) => {
    expect(await open().send(withProof(bound, await prove(bound, { htu })))).toMatchObject({ status })
  })

  it.each([{}, [], null, 'x', { jkt: '' }, { jkt: 1 }, { jkt: [] }, { jwk: {} }, { kid: 'k' }])(
    'T35 is refused if its cnf is %j',
    async (cnf) => {
      const token = await sign({ cnf })
      const { send, reasons } = open({ certificateHeader: 'client-cert' })
      expect(await send({ Authorization: `Bearer ${token}` })).toMatchObject({ status: 401 })
      expect(await send(withProof(token, await prove(token)))).toMatchObject({ status: 401 })
      expect(reasons).toEqual([
        expect.stringMatching(/bound to a key \(cnf/),
        expect.stringMatching(/bound to a key \(cnf/),
      ])
    },
  )

  it('T35 is refused as a bearer token, and a bearer token with a proof', async () => {
    const { send, reasons } = open()
    expect(await send({ Authorization: `Bearer ${bound}` })).toMatchObject({ status: 401 })
    expect(await send(withProof(plain, await prove(plain)))).toMatchObject({ status: 401 })
    expect(reasons).toEqual([
      expect.stringMatching(/presented as a bearer token/),
      expect.stringMatching(/not bound to a key/),
    ])
    expect(await send({ Authorization: `Bearer ${plain}` })).toMatchObject({ status: 200 })
  })

  it('T35 is refused where its binding cannot be checked', async () => {
    const { send, reasons } = open({ dpop: false })
    expect(await send({ Authorization: `Bearer ${bound}` })).toMatchObject({ status: 401 })
    expect(await send(withProof(bound, await prove(bound)))).toMatchObject({ status: 401 })
    expect(reasons).toEqual([expect.stringMatching(/oauthResource\({ dpop }\)/)])
    const strange = await sign({ cnf: { jkt: own.jkt, kid: 'other' } })
    const checking = open()
    expect(await checking.send(withProof(strange, await prove(strange)))).toMatchObject({ status: 401 })
    expect(checking.reasons).toEqual([expect.stringMatching(/bound to a key/)])
  })

  it('a server that requires bound tokens refuses all others, and says so in its metadata', async () => {
    const { send, reasons } = open({ dpop: { required: true } })
    const { status, challenge } = await send({ Authorization: `Bearer ${plain}` })
    expect(status).toBe(401)
    expect(challenge).toMatch(/^DPoP algs=/)
    expect(reasons).toEqual([expect.stringMatching(/dpop: { required }/)])
    expect(await send(withProof(bound, await prove(bound)))).toMatchObject({ status: 200 })
  })
})

describe('a proof that was used', () => {
  it('T35 is refused by the instance that has seen it', async () => {
    const { send, reasons } = open()
    const headers = withProof(bound, await prove(bound))
    expect(await send(headers)).toMatchObject({ status: 200 })
    expect(await send(headers)).toMatchObject({ status: 401 })
    expect(reasons).toEqual([expect.stringMatching(/used before/)])
    expect(await send(withProof(bound, await prove(bound)))).toMatchObject({ status: 200 })
  })

  it('T35 is refused by another instance with the same store; without one it gets in', async () => {
    const store = createMemoryStore({ now: () => NOW })
    const headers = withProof(bound, await prove(bound))
    const [first, second] = [open({ dpop: { store } }), open({ dpop: { store } })]
    expect(await first.send(headers)).toMatchObject({ status: 200 })
    expect(await second.send(headers)).toMatchObject({ status: 401 })
    expect(second.reasons).toEqual([expect.stringMatching(/used before/)])
    // The control: two instances that share nothing.
    const [alone, other] = [open(), open()]
    expect(await alone.send(headers)).toMatchObject({ status: 200 })
    expect(await other.send(headers)).toMatchObject({ status: 200 })
  })

  it('T35 is refused to its end by another instance with the same store, even if that one is behind', async () => {
    let now = NOW
    const store = createMemoryStore({ now: () => now })
    const first = open({ now: () => now, dpop: { store } })
    const late = open({ now: () => now - 20_000, dpop: { store } })
    const headers = withProof(bound, await prove(bound, { iat: SECONDS + 59 }))
    expect(await first.send(headers)).toMatchObject({ status: 200 })
    now += 138_000
    await store.sweep(100)
    expect(await late.send(headers)).toMatchObject({ status: 401 })
    expect(late.reasons).toEqual([expect.stringMatching(/used before/)])
  })

  it('T35 is refused after the store has begun a new epoch', async () => {
    const store = createMemoryStore({ now: () => NOW })
    const { send, reasons } = open({ dpop: { store } })
    expect(await send(withProof(bound, await prove(bound)))).toMatchObject({ status: 200 })
    await store.once.renewEpoch()
    const headers = withProof(bound, await prove(bound))
    expect(await send(headers)).toMatchObject({ status: 200 })
    expect(await send(headers)).toMatchObject({ status: 401 })
    expect(reasons).toEqual([expect.stringMatching(/used before/)])
  })

  it('does not use up the id of a proof of another key', async () => {
    const token = await sign({ cnf: { jkt: thief.jkt } })
    const { send } = open()
    expect(await send(withProof(token, await prove(token, { jti: 'same' }, thief)))).toMatchObject({
      status: 200,
    })
    expect(await send(withProof(bound, await prove(bound, { jti: 'same' })))).toMatchObject({ status: 200 })
  })

  it('is deleted from a store that no server sweeps', async () => {
    let now = NOW
    const store = createMemoryStore({ now: () => now })
    const { send } = open({ now: () => now, dpop: { store } })
    const proof = async () => withProof(bound, await prove(bound, { iat: now / 1000 }))
    for (let i = 0; i < 3; i++) expect(await send(await proof())).toMatchObject({ status: 200 })
    now += 200_000
    expect(await send(await proof())).toMatchObject({ status: 200 })
    // The three have gone already, and the last one is still valid.
    expect(await store.sweep(100)).toBe(0)
    now += 200_000
    expect(await store.sweep(100)).toBe(1)
  })

  const replayed = async (database: Database) => {
    const [first, second] = [1, 2].map(() => open({ dpop: { store: database.open(() => NOW) } })) as [
      Opened,
      Opened,
    ]
    const proof = async () => withProof(bound, await prove(bound))
    const headers = await proof()
    expect(await first.send(headers)).toMatchObject({ status: 200 })
    expect(await second.send(headers)).toMatchObject({ status: 401 })
    expect(second.reasons).toEqual([expect.stringMatching(/used before/)])
    // Of many that arrive at both instances together, one gets in.
    const raced = await proof()
    const statuses = await Promise.all(
      [first, second, first, second].map(async ({ send }) => (await send(raced)).status),
    )
    expect(statuses.toSorted()).toEqual([200, 401, 401, 401])
    // The control: another proof gets in.
    expect(await second.send(await proof())).toMatchObject({ status: 200 })
  }

  it('T35 is refused by another instance with the same SQLite file', async () => {
    const database = await createSqliteDatabase()
    onTestFinished(() => database.close())
    await replayed(database)
  })

  describePostgres('with PostgreSQL', () => {
    it('T35 is refused by another instance with the same database', async () => {
      const server = await startPostgres({ fsync: false })
      onTestFinished(() => server.stop())
      const database = createPostgresDatabase(server)
      await replayed(database)
      await database.close()
    })
  })

  it('T35 is remembered until it expires, even if a new generation begins meanwhile', async () => {
    let now = NOW
    const { send, reasons } = open({ now: () => now, dpop: {} })
    now += 119_000
    const request = withProof(bound, await prove(bound, { iat: (now + 30_000) / 1000 }))
    expect((await send(request)).status).toBe(200)
    now += 2_000
    expect((await send(request)).status).toBe(401)
    expect(reasons).toEqual([expect.stringMatching(/used before/)])
  })

  it('is refused for as long as it would be valid, and a full memory refuses new ones', async () => {
    let now = NOW
    const options = { now: () => now, dpop: { maxProofs: 2 } }
    const { send } = open(options)
    const proof = withProof(bound, await prove(bound, { iat: SECONDS + 59 }))
    expect(await send(proof)).toMatchObject({ status: 200 })
    now = NOW + 118_000
    expect(await send(proof)).toMatchObject({ status: 401 })
    const later = async () => withProof(bound, await prove(bound, { iat: now / 1000 }))
    expect(await send(await later())).toMatchObject({ status: 200 })
    expect(await send(await later())).toMatchObject({ status: 503 })
    now += 3_000
    expect(await send(await later())).toMatchObject({ status: 200 })
  })

  it('T35 leaves room for other keys: a caller who sends too many proofs is refused alone, until they expire', async () => {
    let now = NOW
    const { send, reasons } = open({ now: () => now, dpop: { maxProofs: 5, maxProofsPerKey: 3 } })
    const greedy = await sign({ sub: 'mallory', cnf: { jkt: thief.jkt } })
    const by = async (token: string, keys: Keys) =>
      (await send(withProof(token, await prove(token, { iat: now / 1000 }, keys)))).status
    for (const status of [200, 200, 200, 503, 503]) expect(await by(greedy, thief)).toBe(status)
    expect(reasons.at(-1)).toMatch(/of this key.*maxProofsPerKey/)
    // Two are left of the five.
    expect([await by(bound, own), await by(bound, own), await by(bound, own)]).toEqual([200, 200, 503])
    expect(reasons.at(-1)).toMatch(/dpop\.maxProofs, or a store/)
    now += 120_000
    expect([await by(greedy, thief), await by(bound, own)]).toEqual([200, 200])
  })

  it('R11 has the client retry if the store of proofs fails', async () => {
    const claim = () => Promise.reject(new Error('connection terminated'))
    const once = { epoch: async () => 'e', claim } as never
    const { send, reasons } = open({ dpop: { store: { once } } })
    expect(await send(withProof(bound, await prove(bound)))).toMatchObject({ status: 503, challenge: null })
    expect(reasons).toEqual([expect.stringMatching(/store of proofs .* failed/)])
  })
})

describe('a token that is bound to a certificate', () => {
  // Two certificates that were made for these tests, each signed by itself.
  const mine = certificate(
    [
      'MIIBczCCARmgAwIBAgIUEOSQqiWoCbC8KQae8ot7IOvmWpcwCgYIKoZIzj0EAwIwDzENMAsGA1UEAwwEbWluZTAeFw0yNjExMTgw',
      'MjIyMDNaFw0zNjExMTUwMjIyMDNaMA8xDTALBgNVBAMMBG1pbmUwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAAQIbiwQpdezqGvU',
      'OM+3MXGpim4hFECnD+q3yYrNW+qHr4nV+TAmc3t+dqzvpz4KexIpfT6vSNH2TUztS8D8anLvo1MwUTAdBgNVHQ4EFgQUCIXnpwFn',
      'k1rvEHC7rzg3PbB9UMUwHwYDVR0jBBgwFoAUCIXnpwFnk1rvEHC7rzg3PbB9UMUwDwYDVR0TAQH/BAUwAwEB/zAKBggqhkjOPQQD',
      'AgNIADBFAiAf+qCM4yKDFDO8VJJso5bjK5sza9RNu+505keTKJyCaQIhAJfN6d5NZlv2mWxlIDS0KUTMDUQI3GkXkWRLvYR1HdF5',
    ].join(''),
  )
  const other = certificate(
    [
      'MIIBdTCCARugAwIBAgIUckRvMH+LQw9H2ep99oc/fejwVGAwCgYIKoZIzj0EAwIwEDEOMAwGA1UEAwwFb3RoZXIwHhcNMjYxMTE4',
      'MDIyMjAzWhcNMzYxMTE1MDIyMjAzWjAQMQ4wDAYDVQQDDAVvdGhlcjBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABMYhrRVFrSsj',
      'PsNYcm6ihzOOFdto7goXAd/zjZmFsYWW2bCMyN+mah86DpvM9Bmy3fL6ArxVfkoDfdcVPVyIHumjUzBRMB0GA1UdDgQWBBQ6sCtB',
      'G4f3NAhaNCVa1riCZ30EezAfBgNVHSMEGDAWgBQ6sCtBG4f3NAhaNCVa1riCZ30EezAPBgNVHRMBAf8EBTADAQH/MAoGCCqGSM49',
      'BAMCA0gAMEUCIQCA2R3db8OOB6EpI4p7SQyFKGzGaGzujMqXfOjxSy5G1wIgbbWVfq7RZN/vGPfbzvvcZcshxCJ5kaOCWTeoxRuW',
      '4Ns=',
    ].join(''),
  )
  const thumbprint = createHash('sha256').update(mine.raw).digest('base64url')
  const forms: readonly [string, (certificate: X509Certificate) => string][] = [
    ['as a byte sequence', ({ raw }) => `:${raw.toString('base64')}:`],
    ['as PEM that is encoded for URLs', (certificate) => encodeURIComponent(certificate.toString())],
    ['as PEM in one line', (certificate) => certificate.toString().replaceAll('\n', ' ').trim()],
  ]

  it.each(forms)('H5 is accepted with that certificate, passed on %s', async (_form, write) => {
    const token = await sign({ cnf: { 'x5t#S256': thumbprint } })
    const { send, reasons } = open({ dpop: false, certificateHeader: 'Client-Cert' })
    const headers = { Authorization: `Bearer ${token}` }
    expect(await send({ ...headers, 'Client-Cert': write(mine) })).toMatchObject({ status: 200 })
    expect(await send({ ...headers, 'Client-Cert': write(other) })).toMatchObject({ status: 401 })
    expect(await send(headers)).toMatchObject({ status: 401 })
    expect(reasons).toEqual([
      expect.stringMatching(/certificate \(cnf\.x5t#S256\)/),
      expect.stringMatching(/certificate \(cnf\.x5t#S256\)/),
    ])
    // The control: a token without the binding needs no certificate.
    expect(await send({ Authorization: `Bearer ${plain}` })).toMatchObject({ status: 200 })
  })

  it.each(forms)('T35 is refused if there are two certificates, passed on %s', async (_form, write) => {
    const token = await sign({ cnf: { 'x5t#S256': thumbprint } })
    const { send } = open({ dpop: false, certificateHeader: 'Client-Cert' })
    const headers = new Headers({ 'Client-Cert': write(mine) })
    headers.append('Client-Cert', write(other))
    const both = headers.get('Client-Cert') ?? ''
    expect(await send({ Authorization: `Bearer ${token}`, 'Client-Cert': both })).toMatchObject({
      status: 401,
    })
  })

  it('T35 needs both, if it is bound to a key and to a certificate', async () => {
    const token = await sign({ cnf: { jkt: own.jkt, 'x5t#S256': thumbprint } })
    const { send } = open({ certificateHeader: 'Client-Cert' })
    const passed = (one: X509Certificate) => ({ 'Client-Cert': `:${one.raw.toString('base64')}:` })
    const proof = async () => withProof(token, await prove(token))
    expect(await send({ ...(await proof()), ...passed(mine) })).toMatchObject({ status: 200 })
    expect(await send(await proof())).toMatchObject({ status: 401 })
    expect(await send({ ...(await proof()), ...passed(other) })).toMatchObject({ status: 401 })
    expect(await send({ Authorization: `Bearer ${token}`, ...passed(mine) })).toMatchObject({ status: 401 })
    const withoutHeader = open()
    expect(await withoutHeader.send({ ...(await proof()), ...passed(mine) })).toMatchObject({ status: 401 })
  })
})
