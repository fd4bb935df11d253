/**
 * Tokens that must not get in. Each is refused with the same bytes and with a sentence in the log that an operator can act
 * on; and each has a control, in which the check that stops it is left out and the token gets in.
 */

import {
  constants,
  createHmac,
  createPublicKey,
  generateKeyPairSync,
  type KeyObject,
  sign as signBytes,
  verify as verifyBytes,
} from 'node:crypto'
import { createServer as createHttpServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { createServer, type LogEvent } from 'rondo'
import { jwt, type OAuthResourceOptions } from 'rondo/oauth'
import { describe, expect, it } from 'vitest'
import { JWT_CHECKS, type JwtChecks } from '../../packages/rondo/src/oauth/jwt.ts'
import { createResource } from '../../packages/rondo/src/oauth/resource.ts'
import { call, request } from '../support/protected-server.ts'

const RESOURCE = 'https://mcp.example.com/mcp'
const ISSUER = 'https://id.example.com'
const OTHER_ISSUER = 'https://id.example.org'
const NOW = Date.UTC(2026, 6, 28)
const SECONDS = NOW / 1000

const ec = generateKeyPairSync('ec', { namedCurve: 'P-256' })
const rsa = generateKeyPairSync('rsa', { modulusLength: 2048 })
const small = generateKeyPairSync('rsa', { modulusLength: 1024 })
const stranger = generateKeyPairSync('ec', { namedCurve: 'P-256' })
const jwkOf = (key: KeyObject, more: object = {}) => ({ ...key.export({ format: 'jwk' }), ...more })
const SET: readonly object[] = [jwkOf(ec.publicKey, { kid: 'ec' }), jwkOf(rsa.publicKey, { kid: 'rsa' })]

const CLAIMS = {
  iss: ISSUER,
  aud: RESOURCE,
  sub: 'alice',
  client_id: 'desk',
  scope: 'tickets:read',
  iat: SECONDS,
  exp: SECONDS + 600,
}
const HEADER = { alg: 'ES256', typ: 'at+jwt', kid: 'ec' }

const encode = (text: string): string => Buffer.from(text).toString('base64url')

function signature(input: string, alg: unknown, key: KeyObject | string): string {
  if (typeof key === 'string') {
    const hash = String(alg).replace('HS', 'sha')
    return createHmac(hash, key).update(input).digest('base64url')
  }
  const padding = String(alg).startsWith('PS')
    ? { padding: constants.RSA_PKCS1_PSS_PADDING, saltLength: 32 }
    : {}
  return signBytes('sha256', Buffer.from(input), { key, dsaEncoding: 'ieee-p1363', ...padding }).toString(
    'base64url',
  )
}

/** Signs any two texts: with a key pair's private key, or with a shared secret. */
function signTexts(header: string, claims: string, key: KeyObject | string = ec.privateKey): string {
  const input = `${encode(header)}.${encode(claims)}`
  const { alg } = JSON.parse(header) as { alg?: unknown }
  return `${input}.${signature(input, alg, key)}`
}

const sign = (claims: object = {}, header: object = {}, key?: KeyObject | string): string =>
  signTexts(JSON.stringify({ ...HEADER, ...header }), JSON.stringify({ ...CLAIMS, ...claims }), key)

/** The signature of a careless verifier: it does what the token says. */
async function careless(token: string, published: Readonly<Record<string, unknown>>): Promise<boolean> {
  const [first = '', second = '', third = ''] = token.split('.')
  const header = JSON.parse(Buffer.from(first, 'base64url').toString()) as Record<string, unknown>
  const input = `${first}.${second}`
  const alg = String(header.alg)
  if (/^none$/i.test(alg)) return true
  const embedded = (header.jwk ?? published) as never
  if (alg.startsWith('HS')) {
    const { k } = published as { k?: string }
    const secrets = k
      ? [Buffer.from(k, 'base64url').toString()]
      : [createPublicKey({ key: embedded, format: 'jwk' }).export({ format: 'pem', type: 'spki' }).toString()]
    return secrets.some((secret) => signature(input, alg, secret) === third)
  }
  const key = createPublicKey({ key: embedded, format: 'jwk' })
  const bytes = Buffer.from(third, 'base64url')
  return (['ieee-p1363', 'der'] as const).some((dsaEncoding) =>
    verifyBytes('sha256', Buffer.from(input), { key, dsaEncoding }, bytes),
  )
}

const without = (...names: readonly string[]): JwtChecks => ({
  ...JWT_CHECKS,
  header: JWT_CHECKS.header.filter(({ name }) => !names.includes(name)),
  key: JWT_CHECKS.key.filter(({ name }) => !names.includes(name)),
  claims: JWT_CHECKS.claims.filter(({ name }) => !names.includes(name)),
})
const carelessWithout = (...names: readonly string[]): JwtChecks => ({
  ...without(...names),
  verify: careless,
})
const unsigned: JwtChecks = { ...JWT_CHECKS, verify: async () => true }
const anyIssuer: JwtChecks = { ...without('issuer'), trusted: (_iss, sets) => [...sets.values()] }
const looseJson: JwtChecks = { ...JWT_CHECKS, parse: (text) => JSON.parse(text) }

interface BadToken {
  readonly what: string
  readonly token: string
  /** The reason in the log. */
  readonly log: RegExp
  /** The verification without the check that stops this token. */
  readonly weak: JwtChecks
  /** The documents that the issuer publishes. */
  readonly keys?: readonly object[]
}

const PUBLIC_PEM = rsa.publicKey.export({ format: 'pem', type: 'spki' }).toString()
const [, , otherSignature] = sign({ sub: 'bob' }).split('.')
const [ownHeader, ownClaims] = sign().split('.')
const der = (): string => {
  const input = `${ownHeader}.${ownClaims}`
  return `${input}.${signBytes('sha256', Buffer.from(input), ec.privateKey).toString('base64url')}`
}
const LONG_KID = 'k'.repeat(2_000)

const algorithms: readonly BadToken[] = [
  ...['none', 'None', 'nOnE'].map((alg) => ({
    what: `with the algorithm "${alg}" and no signature`,
    token: `${encode(JSON.stringify({ ...HEADER, alg }))}.${ownClaims}.`,
    log: /not an accepted algorithm/,
    weak: carelessWithout('algorithm', 'key-algorithm'),
  })),
  {
    what: 'signed with HMAC, the public key being the secret',
    token: sign({}, { alg: 'HS256', kid: 'rsa' }, PUBLIC_PEM),
    log: /"HS256", which is not an accepted algorithm/,
    weak: carelessWithout('algorithm', 'key-algorithm'),
  },
  {
    what: 'signed with HS384 in the same way',
    token: sign({}, { alg: 'HS384', kid: 'rsa' }, PUBLIC_PEM),
    log: /not an accepted algorithm/,
    weak: carelessWithout('algorithm', 'key-algorithm'),
  },
  {
    what: 'signed with a secret that the issuer publishes',
    token: sign({}, { alg: 'HS256', kid: 'oct' }, 'secret'),
    log: /not an accepted algorithm/,
    weak: carelessWithout('algorithm', 'private', 'key-algorithm'),
    keys: [{ kty: 'oct', kid: 'oct', k: encode('secret') }],
  },
  {
    what: 'without an algorithm',
    token: sign({}, { alg: undefined }),
    log: /signed with \(none\)/,
    weak: carelessWithout('algorithm', 'key-algorithm'),
  },
  {
    what: 'with a number as its algorithm',
    token: sign({}, { alg: 256 }),
    log: /not an accepted algorithm/,
    weak: carelessWithout('algorithm', 'key-algorithm'),
  },
  {
    what: 'whose algorithm is not that of its key type',
    token: sign({}, { alg: 'RS256' }),
    log: /not for the algorithm "RS256"/,
    weak: carelessWithout('key-algorithm'),
  },
  {
    what: 'whose algorithm is not the one that its key is published for',
    token: sign({}, { alg: 'RS256', kid: 'pss' }, rsa.privateKey),
    log: /not for the algorithm "RS256"/,
    weak: without('key-algorithm'),
    keys: [jwkOf(rsa.publicKey, { kid: 'pss', alg: 'PS256' })],
  },
  {
    what: 'with critical extensions',
    token: sign({}, { crit: ['proof'], proof: 1 }),
    log: /critical extensions/,
    weak: carelessWithout('critical'),
  },
]

const signatures: readonly BadToken[] = [
  {
    what: 'signed by a stranger under a known key id',
    token: sign({}, {}, stranger.privateKey),
    log: /signature of the token is not that of the issuer's key "ec"/,
    weak: unsigned,
  },
  { what: 'without its signature', token: `${ownHeader}.${ownClaims}.`, log: /signature/, weak: unsigned },
  {
    what: 'with the signature of another token',
    token: `${ownHeader}.${ownClaims}.${otherSignature}`,
    log: /signature/,
    weak: unsigned,
  },
  {
    what: 'whose claims were changed',
    token: `${ownHeader}.${encode(JSON.stringify({ ...CLAIMS, sub: 'root' }))}.${sign().split('.')[2]}`,
    log: /signature/,
    weak: unsigned,
  },
  {
    what: 'with a signature in another encoding',
    token: der(),
    log: /signature/,
    weak: { ...JWT_CHECKS, verify: careless },
  },
  {
    what: 'that brings its own key',
    token: sign({}, { jwk: jwkOf(stranger.publicKey) }, stranger.privateKey),
    log: /signature/,
    weak: { ...JWT_CHECKS, verify: careless },
  },
  {
    what: "that names the address of a stranger's keys",
    token: sign({}, { jku: 'https://evil.example/jwks', kid: 'ec' }, stranger.privateKey),
    log: /signature/,
    weak: {
      ...JWT_CHECKS,
      verify: (token) => careless(token, jwkOf(stranger.publicKey) as Record<string, unknown>),
    },
  },
]

const keys: readonly BadToken[] = [
  {
    what: 'with a key id of another trusted issuer',
    token: sign({}, { kid: 'theirs' }, stranger.privateKey),
    log: /No key of the issuer has the key id "theirs"/,
    weak: { ...JWT_CHECKS, trusted: (_iss, sets) => [...sets.values()] },
  },
  {
    what: 'whose key id is a number',
    token: sign({}, { kid: 7 }),
    log: /key id \(kid\) of the token is not a short string/,
    weak: without('key-id'),
    keys: [jwkOf(ec.publicKey, { kid: 7 })],
  },
  {
    what: 'whose key id is long',
    token: sign({}, { kid: LONG_KID }),
    log: /not a short string/,
    weak: without('key-id'),
    keys: [jwkOf(ec.publicKey, { kid: LONG_KID })],
  },
  {
    what: 'whose private key is published',
    token: sign({}, { kid: 'leaked' }),
    log: /publishes the private part of its key "leaked".*Replace that key/,
    weak: carelessWithout('private'),
    keys: [jwkOf(ec.privateKey, { kid: 'leaked' })],
  },
  {
    what: 'whose key is for encryption',
    token: sign(),
    log: /not for signatures/,
    weak: without('use'),
    keys: [jwkOf(ec.publicKey, { kid: 'ec', use: 'enc' })],
  },
  {
    what: 'whose key may not verify',
    token: sign(),
    log: /not for signatures/,
    weak: carelessWithout('use'),
    keys: [jwkOf(ec.publicKey, { kid: 'ec', key_ops: ['sign'] })],
  },
  {
    what: 'signed with a short RSA key',
    token: sign({}, { alg: 'RS256', kid: 'small' }, small.privateKey),
    log: /signature/,
    weak: { ...JWT_CHECKS, verify: careless },
    keys: [jwkOf(small.publicKey, { kid: 'small' })],
  },
]

const types: readonly BadToken[] = ['id_token+jwt', 'dpop+jwt', 'logout+jwt', 'application/jwt+x', '', 5].map(
  (typ) => ({
    what: `of the type ${JSON.stringify(typ)}`,
    token: sign({}, { typ }),
    log: /no access token: its type/,
    weak: without('type'),
  }),
)

const claim = (
  check: string,
  log: RegExp,
  rows: readonly (readonly [string, object])[],
): readonly BadToken[] =>
  rows.map(([what, claims]) => ({ what, token: sign(claims), log, weak: without(check) }))

const claims: readonly BadToken[] = [
  ...[
    ['without an issuer', undefined, /names no issuer/],
    ['of an unknown issuer', 'https://evil.example', /"https:\/\/evil.example", which .* does not name/],
    ['whose issuer has a slash more', `${ISSUER}/`, /differ in the slash at the end/],
    ['whose issuer is in capitals', ISSUER.toUpperCase(), /does not name/],
    ['whose issuer is a list', [ISSUER], /names no issuer/],
    ['whose issuer begins like a trusted one', `${ISSUER}.evil.example`, /does not name/],
  ].map(([what, iss, log]) => ({
    what: what as string,
    token: sign({ iss }),
    log: log as RegExp,
    weak: anyIssuer,
  })),
  ...claim('audience', /Keycloak|neither a string/, [
    ['without an audience', { aud: undefined }],
    ['for another service', { aud: 'https://other.example/mcp' }],
    ['for a list of other services', { aud: ['https://a.example', 'https://b.example'] }],
    ['for an empty list', { aud: [] }],
    ['whose audience is a prefix of ours', { aud: 'https://mcp.example.com' }],
    ['whose audience begins with ours', { aud: `${RESOURCE}/admin` }],
    ['whose audience has a slash more', { aud: `${RESOURCE}/` }],
    ['whose audience differs in case', { aud: 'https://MCP.example.com/mcp' }],
    ['whose audience is its client, as in an ID token', { aud: 'desk' }],
    ['whose audience is an object', { aud: { [RESOURCE]: true } }],
    ['whose audience is a list in a list', { aud: [[RESOURCE]] }],
  ]),
  ...claim('expiry', /exp/, [
    ['without an expiry', { exp: undefined }],
    ['that expired as long ago as clocks may differ', { exp: SECONDS - 60 }],
    ['that expired long ago', { exp: 1 }],
    ['whose expiry is a string', { exp: String(SECONDS + 600) }],
    ['whose expiry is null', { exp: null }],
  ]),
  ...claim('not-before', /nbf/, [
    ['that is not valid yet', { nbf: SECONDS + 61 }],
    ['whose beginning is a string', { nbf: '0' }],
  ]),
  ...claim('issued-at', /iat/, [
    ['that was issued in the future', { iat: SECONDS + 61 }],
    ['whose time of issue is a string', { iat: 'now' }],
  ]),
  ...claim('subject', /names no subject/, [
    ['without a subject', { sub: undefined }],
    ['whose subject is a number', { sub: 17 }],
  ]),
  ...claim('client', /names no client.*oauthResource\({ client }\)/, [
    ['without a client', { client_id: undefined }],
    ['whose client is a number', { client_id: 5 }],
  ]),
  ...claim('binding', /bound to a key/, [['that is bound to a key', { cnf: { jkt: 'x' } }]]),
  ...claim('scope', /scopes of the token/, [['whose scopes are an object', { scope: { read: true } }]]),
]

const twice = (name: string, first: unknown): string =>
  JSON.stringify(CLAIMS).replace('{', `{${JSON.stringify(name)}:${JSON.stringify(first)},`)
const deep = `${'['.repeat(20)}${']'.repeat(20)}`

const texts: readonly BadToken[] = [
  {
    what: 'with two audiences, one for each parser',
    token: signTexts(JSON.stringify(HEADER), twice('aud', 'https://other.example')),
    log: /have a member twice/,
    weak: looseJson,
  },
  {
    what: 'with two subjects',
    token: signTexts(JSON.stringify(HEADER), twice('sub', 'root')),
    log: /have a member twice/,
    weak: looseJson,
  },
  {
    what: 'with two algorithms',
    token: signTexts(JSON.stringify(HEADER).replace('{', '{"alg":"none",'), JSON.stringify(CLAIMS)),
    log: /have a member twice/,
    weak: looseJson,
  },
  {
    what: 'with claims that change prototypes',
    token: signTexts(
      JSON.stringify(HEADER),
      JSON.stringify(CLAIMS).replace('{', '{"__proto__":{"admin":true},'),
    ),
    log: /not a JSON object/,
    weak: looseJson,
  },
  {
    what: 'with deeply nested claims',
    token: signTexts(JSON.stringify(HEADER), JSON.stringify(CLAIMS).replace('{', `{"deep":${deep},`)),
    log: /not a JSON object/,
    weak: looseJson,
  },
  {
    what: 'of a megabyte',
    token: sign({ pad: 'x'.repeat(780_000) }),
    log: /characters; at most 16384 are read/,
    weak: { ...JWT_CHECKS, maxLength: Number.POSITIVE_INFINITY },
  },
]

const BAD: readonly BadToken[] = [...algorithms, ...signatures, ...keys, ...types, ...claims, ...texts]

interface Opened {
  send(token: string): ReturnType<typeof request>
  readonly reasons: string[]
}

function open(options: Partial<OAuthResourceOptions>, checks: JwtChecks = JWT_CHECKS): Opened {
  const reasons: string[] = []
  const authenticate = createResource(
    { resource: RESOURCE, issuers: [ISSUER], now: () => NOW, ...options },
    checks,
  )
  const log = (event: LogEvent): void => {
    if (event.event === 'caller_refused') reasons.push(event.reason)
  }
  const server = createServer({ name: 'bad', version: '1.0.0', authenticate, log })
  server.tool('hello', {}, () => 'in')
  return { reasons, send: (token) => request(server, token, 'tools/call', call('hello')) }
}

const published = (own: readonly object[] = SET): Pick<OAuthResourceOptions, 'issuers'> => ({
  issuers: [
    { issuer: ISSUER, jwks: { keys: own as never } },
    { issuer: OTHER_ISSUER, jwks: { keys: [jwkOf(stranger.publicKey, { kid: 'theirs' })] as never } },
  ],
})

const UNDECIDED = {
  status: 503,
  error: { code: -32000, message: 'Callers cannot be identified at the moment. Try again later' },
}

const REFUSED = {
  status: 401,
  challenge:
    'Bearer error="invalid_token", error_description="The access token is not valid for this server", ' +
    'resource_metadata="https://mcp.example.com/.well-known/oauth-protected-resource/mcp"',
  jsonrpc: '2.0',
  id: null,
  error: { code: -32000, message: 'Authentication required' },
}

describe('bad tokens', () => {
  it('are many, and a good one gets in', async () => {
    expect(BAD.length).toBeGreaterThanOrEqual(40)
    expect(new Set(BAD.map(({ what }) => what)).size).toBe(BAD.length)
    expect((await open(published()).send(sign())).status).toBe(200)
  })

  it.each(BAD)('H1 T32 refuses a token $what', async ({ token, log, keys: own }) => {
    const { send, reasons } = open(published(own))
    const { headers: _headers, ...answer } = await send(token)
    expect(answer).toEqual(REFUSED)
    expect(reasons).toEqual([expect.stringMatching(log)])
    for (const part of token.split('.').filter(({ length }) => length > 20))
      expect(reasons[0]).not.toContain(part)
  })

  it.each(BAD)('control: without its check, a token $what gets in', async ({ token, weak, keys: own }) => {
    const { send, reasons } = open(published(own), weak)
    expect([(await send(token)).status, reasons]).toEqual([200, []])
  })

  it.each([
    ['that expired just now', { exp: SECONDS - 59 }],
    ['that is almost valid', { nbf: SECONDS + 60 }],
    ['for several audiences', { aud: ['https://other.example', RESOURCE] }],
    ['of Entra', { client_id: undefined, azp: 'desk', scope: undefined, scp: 'a b' }],
  ])('let in a good token %s', async (_what, good) => {
    expect((await open(published()).send(sign(good))).status).toBe(200)
  })

  it.each(['JWT', 'at+jwt', 'application/at+JWT', undefined])(
    'let in a good token of type %s',
    async (typ) => {
      expect((await open(published()).send(sign({}, { typ }))).status).toBe(200)
    },
  )

  it.each([
    ['an empty subject', sign({ sub: '' }), /names no subject/],
    ['five parts', `${sign()}.a.b`, /encrypted/],
    ['one part', 'opaque', /If the issuer issues opaque tokens/],
    ['claims that are a list', signTexts(JSON.stringify(HEADER), '[]'), /not a JSON object/],
    ['claims that are no JSON', signTexts(JSON.stringify(HEADER), '{'), /not a JSON object/],
    ['an unknown key id', sign({}, { kid: 'new' }), /No key of the issuer has the key id "new"/],
    [
      'no key id, though two keys fit',
      sign({}, { kid: undefined }),
      /Several keys/,
      [jwkOf(ec.publicKey, { kid: 'a' }), jwkOf(stranger.publicKey, { kid: 'b' })],
    ],
  ] as [string, string, RegExp, object[]?][])('H1 refuse a token with %s', async (_what, token, log, own) => {
    const { send, reasons } = open(published(own))
    const { headers: _headers, ...answer } = await send(token)
    expect(answer).toEqual(REFUSED)
    expect(reasons).toEqual([expect.stringMatching(log)])
  })

  it.each(['Bearer a b', 'Bearer', 'Bearer "x"', 'bearer a,b', `Bearer ${sign()}, Bearer ${sign()}`])(
    'H1 refuse the header "%s"',
    async (authorization) => {
      const { server, reasons } = openServer()
      const answer = await request(server, undefined, 'tools/call', call('hello'), { authorization })
      expect([answer.status, answer.challenge]).toEqual([401, REFUSED.challenge])
      expect(reasons).toEqual([expect.stringMatching(/no single bearer token/)])
    },
  )

  it('H1 take no token from the query, and ask without an error where none came', async () => {
    const { server, reasons } = openServer()
    const answer = await request(server, undefined, 'tools/call', call('hello'), {
      authorization: 'Basic eDp5',
    })
    expect(answer.challenge).toMatch(/^Bearer resource_metadata=/)
    const inQuery = new Request(`http://127.0.0.1/mcp?access_token=${sign()}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: '{}',
    })
    expect((await server.fetch(inQuery)).status).toBe(401)
    expect(reasons).toEqual([])
  })
})

function openServer() {
  const reasons: string[] = []
  const server = createServer({
    name: 'bad',
    version: '1.0.0',
    authenticate: createResource({ resource: RESOURCE, now: () => NOW, ...published() }, JWT_CHECKS),
    log: (event) => void (event.event === 'caller_refused' && reasons.push(event.reason)),
  })
  server.tool('hello', {}, () => 'in')
  return { server, reasons }
}

describe('keys that cannot be fetched', () => {
  const metadata = (jwks_uri: string, issuer = ISSUER) => Response.json({ issuer, jwks_uri })
  const set = () => Response.json({ keys: SET })
  const answering =
    (answers: Record<string, () => Response | Promise<Response>>): OAuthResourceOptions['fetch'] =>
    async (url) =>
      answers[url]?.() ?? new Response('', { status: 404 })
  const CONFIGURATION = `${ISSUER}/.well-known/openid-configuration`
  const JWKS = `${ISSUER}/jwks`

  /** The token is good, so the client must not throw it away: it retries. */
  const refusedFor = async (options: Partial<OAuthResourceOptions>, log: RegExp, checks?: JwtChecks) => {
    const { send, reasons } = open(options, checks)
    const { status, headers, error } = await send(sign())
    expect({ status, error }).toEqual(UNDECIDED)
    expect([headers.get('retry-after'), headers.get('www-authenticate')]).toEqual(['5', null])
    expect(reasons).toEqual([expect.stringMatching(log)])
  }
  const getsIn = async (options: Partial<OAuthResourceOptions>, checks?: JwtChecks) =>
    expect((await open(options, checks).send(sign())).status).toBe(200)

  it('are found through the metadata of the issuer', async () => {
    await getsIn({ fetch: answering({ [CONFIGURATION]: () => metadata(JWKS), [JWKS]: set }) })
  })

  it.each([
    'http://169.254.169.254/jwks',
    'https://10.0.0.1/jwks',
    'https://localhost/jwks',
    'https://[::1]/jwks',
  ])('H1 are not looked for at the internal address %s, unless the operator names it', async (address) => {
    const fetch = answering({ [CONFIGURATION]: () => metadata(address), [address]: set })
    await refusedFor({ fetch }, /internal address|not an https address/)
    if (address.startsWith('https:')) await getsIn({ fetch, issuers: [{ issuer: ISSUER, jwks: address }] })
  })

  it('H1 are not taken from the metadata of another issuer', async () => {
    const answers = { [CONFIGURATION]: () => metadata(JWKS, OTHER_ISSUER), [JWKS]: set }
    await refusedFor({ fetch: answering(answers) }, /metadata of another issuer/)
    await getsIn({ fetch: answering(answers), issuers: [{ issuer: ISSUER, jwks: JWKS }] })
  })

  it('H1 are not read where the issuer redirects to, at a private address', async () => {
    const internal = createHttpServer((_req, res) => res.end(JSON.stringify({ keys: SET })))
    await new Promise<void>((resolve) => internal.listen(0, '127.0.0.1', resolve))
    const inside = `http://127.0.0.1:${(internal.address() as AddressInfo).port}/keys`
    const outside = createHttpServer((_req, res) => res.writeHead(302, { location: inside }).end())
    await new Promise<void>((resolve) => outside.listen(0, '127.0.0.1', resolve))
    const jwks = `http://127.0.0.1:${(outside.address() as AddressInfo).port}/jwks`
    const issuers = [{ issuer: ISSUER, jwks }]
    await refusedFor({ issuers }, /redirects elsewhere, which is not followed/)
    await getsIn({ issuers, fetch: (url, init) => fetch(url, { ...init, redirect: 'follow' }) })
    for (const http of [internal, outside]) http.close()
  })

  it('H1 I2 are not waited for longer than the limit', async () => {
    const asked: ((response: Response) => void)[] = []
    const slow = () => new Promise<Response>((resolve) => void asked.push(resolve))
    const options = () => ({ fetch: answering({ [JWKS]: slow }), issuers: [{ issuer: ISSUER, jwks: JWKS }] })
    const within = (timeoutMs: number) => ({ ...JWT_CHECKS, remote: { timeoutMs, maxBytes: 9_999 } })
    await refusedFor(options(), /did not answer within 20 ms/, within(20))
    const before = asked.length
    const patient = getsIn(options(), within(60_000))
    await expect.poll(() => asked.length).toBe(before + 1)
    await new Promise((resolve) => setTimeout(resolve, 50))
    asked.at(-1)?.(set())
    await patient
  })

  it('I3 are not read without an end', async () => {
    let sent = 0
    const endless = () => {
      const pull = (controller: ReadableStreamDefaultController<Uint8Array>): void => {
        sent += 65_536
        controller.enqueue(new Uint8Array(65_536).fill(32))
      }
      return new Response(new ReadableStream({ pull }))
    }
    const issuers = [{ issuer: ISSUER, jwks: JWKS }]
    await refusedFor({ fetch: answering({ [JWKS]: endless }), issuers }, /longer than 262144 bytes/)
    expect(sent).toBeLessThan(1_000_000)
    const large = () => Response.json({ keys: SET, pad: 'x'.repeat(300_000) })
    const fetch = answering({ [JWKS]: large })
    await refusedFor({ fetch, issuers }, /longer than 262144 bytes/)
    await getsIn({ fetch, issuers }, { ...JWT_CHECKS, remote: { timeoutMs: 5_000, maxBytes: 400_000 } })
  })

  it.each([
    ['an error', () => new Response('', { status: 500 }), /status 500/],
    ['no JSON', () => new Response('<html>'), /not a JSON object/],
    ['no keys', () => Response.json({ keys: 'none' }), /not a set of keys/],
    ['no connection', () => Promise.reject(new TypeError('fetch failed')), /cannot be reached/],
  ])('H1 leave the token undecided where there is %s', async (_what, answer, log) => {
    await refusedFor({ fetch: answering({ [JWKS]: answer }), issuers: [{ issuer: ISSUER, jwks: JWKS }] }, log)
  })

  it('H1 leave a token undecided whose key is newer than those that are held, and let it in once they can be fetched', async () => {
    let now = NOW
    let answer = () => Response.json({ keys: [] as object[] })
    const { send } = open({
      now: () => now,
      fetch: async () => answer(),
      issuers: [{ issuer: ISSUER, jwks: JWKS }],
    })
    // The control: the keys were fetched, and that of the token is not among them.
    expect((await send(sign())).status).toBe(401)
    now += 30_000
    answer = () => new Response('', { status: 502 })
    expect((await send(sign())).status).toBe(503)
    now += 30_000
    answer = set
    expect((await send(sign())).status).toBe(200)
    now += 3_600_000
    answer = () => new Response('', { status: 502 })
    expect((await send(sign({ exp: now / 1000 + 60 }))).status).toBe(200)
    expect((await send(sign({ exp: now / 1000 + 60 }, { kid: 'newer' }))).status).toBe(503)
  })
})

describe('floods', () => {
  /** A token with this key id. Its signature is invalid, and nothing gets as far as checking it. */
  const withKid = (kid: string): string => `${encode(JSON.stringify({ ...HEADER, kid }))}.${ownClaims}.eA`

  it('I3 T34 10,000 tokens with distinct key ids cause one request for keys per cooldown, and are not remembered', async () => {
    let clock = NOW
    let fetched = 0
    const fetch = async () => {
      fetched += 1
      return Response.json({ keys: SET })
    }
    const resource = createResource(
      {
        resource: RESOURCE,
        issuers: [{ issuer: ISSUER, jwks: `${ISSUER}/jwks` }],
        tokens: jwt(),
        fetch,
        now: () => clock,
      },
      JWT_CHECKS,
    )
    let refused = 0
    for (let i = 0; i < 10_000; i += 1) {
      clock = NOW + i * 1_000
      if ('refused' in (await resource.verify(withKid(`kid-${i}`)))) refused += 1
    }
    expect(refused).toBe(10_000)
    // A second apart: 10,000 s, and one request in 30 s.
    expect(fetched).toBeGreaterThan(300)
    expect(fetched).toBeLessThanOrEqual(10_000 / 30 + 1)
    fetched = 0
    clock += 60_000
    await Promise.all(Array.from({ length: 1_000 }, (_, i) => resource.verify(withKid(`other-${i}`))))
    expect(fetched).toBe(1)
  })
})
