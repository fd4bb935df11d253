/**
 * Tokens that are bound to a key, in the hands of somebody who does not have the key. Each attack is refused with a sentence in
 * the log; and each has a control, in which the check that stops it is left out and the request gets in.
 */

import { createHash, randomUUID, X509Certificate } from 'node:crypto'
import { calculateJwkThumbprint, exportJWK, generateKeyPair, type JWK, SignJWT } from 'jose'
import { createServer, generateKey, type LogEvent, type Server } from 'rondo'
import type { OAuthResourceOptions } from 'rondo/oauth'
import { beforeAll, describe, expect, it } from 'vitest'
import { JWT_CHECKS, type JwtChecks } from '../../packages/rondo/src/oauth/jwt.ts'
import { PROOF_CHECKS } from '../../packages/rondo/src/oauth/possession.ts'
import { createResource } from '../../packages/rondo/src/oauth/resource.ts'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'

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
    ['the proof has no id', /no id/, async () => withProof(bound, await prove(bound, { jti: undefined }))],
  ]
  it.each(malformed)('is refused if %s', async (_what, log, headers) => {
    const { send, reasons } = open()
    expect(await send(await headers())).toMatchObject({ status: 401 })
    expect(reasons).toEqual([expect.stringMatching(log)])
  })

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
    expect(await send(await later())).toMatchObject({ status: 401 })
    now += 3_000
    expect(await send(await later())).toMatchObject({ status: 200 })
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
})
