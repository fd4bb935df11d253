import { describe, expect, it } from 'vitest'
import { tokenOf } from '../lib/subject-token.ts'
import { createMemoryStore } from '../store/memory/store.ts'
import { introspection, jwt, type OAuthResourceOptions, oauthResource } from './resource.ts'

const NOW = Date.UTC(2026, 6, 28)
const SECONDS = NOW / 1000
const ISSUER = 'https://id.example.com'
const RESOURCE = 'https://mcp.example.com/mcp'
const CLAIMS = { iss: ISSUER, aud: RESOURCE, sub: 'alice', client_id: 'desk', exp: SECONDS + 600 }

function open(options: Partial<OAuthResourceOptions> = {}) {
  const clock = { now: NOW }
  const asked: string[] = []
  const resource = oauthResource({
    resource: RESOURCE,
    issuers: [ISSUER],
    tokens: (token) => {
      asked.push(token)
      return { ...CLAIMS, sub: token }
    },
    now: () => clock.now,
    ...options,
  })
  return { resource, clock, asked }
}

describe('the memory of verified tokens', () => {
  it('H1 verifies a token once a minute', async () => {
    const { resource, clock, asked } = open()
    for (const ms of [0, 59_999, 60_000, 60_001]) {
      clock.now = NOW + ms
      await resource.verify('a')
    }
    expect(asked).toEqual(['a', 'a'])
  })

  it('H1 forgets a token when it expires', async () => {
    const { resource, clock, asked } = open({
      tokens: (token) => {
        asked.push(token)
        return { ...CLAIMS, exp: SECONDS + 5 }
      },
    })
    await resource.verify('a')
    clock.now = NOW + 5_000
    // Clocks may differ, so it is still valid, and verified every time.
    for (let i = 0; i < 3; i += 1) expect(await resource.verify('a')).toHaveProperty('subject')
    expect(asked).toHaveLength(4)
    clock.now = NOW + 66_000
    expect(await resource.verify('a')).toHaveProperty('refused')
  })

  it('I3 T34 is bounded: the oldest goes first', async () => {
    const { resource, asked } = open({ cacheEntries: 100 })
    for (let i = 0; i < 1_000; i += 1) await resource.verify(`token-${i}`)
    asked.length = 0
    for (let i = 900; i < 1_000; i += 1) await resource.verify(`token-${i}`)
    expect(asked).toEqual([])
    await resource.verify('token-899')
    expect(asked).toEqual(['token-899'])
  })

  it('holds 10,000 tokens and not one more', async () => {
    const { resource, asked } = open()
    for (let i = 0; i <= 10_000; i += 1) await resource.verify(`token-${i}`)
    asked.length = 0
    await resource.verify('token-1')
    await resource.verify('token-0')
    expect(asked).toEqual(['token-0'])
  })

  it('does not remember what was refused', async () => {
    const { resource, asked } = open({
      tokens: (token) => {
        asked.push(token)
        return undefined
      },
    })
    for (let i = 0; i < 3; i += 1) expect(await resource.verify('a')).toHaveProperty('refused')
    expect(asked).toHaveLength(3)
  })

  it('is off with cacheMs: 0, and never longer than a minute', async () => {
    const off = open({ cacheMs: 0 })
    for (let i = 0; i < 3; i += 1) await off.resource.verify('a')
    expect(off.asked).toHaveLength(3)
    const long = open({ cacheMs: 3_600_000 })
    await long.resource.verify('a')
    long.clock.now = NOW + 60_000
    await long.resource.verify('a')
    expect(long.asked).toHaveLength(2)
  })

  it('holds none with cacheEntries: 0, and one with 1', async () => {
    for (const cacheEntries of [0, 1]) {
      const { resource, asked } = open({ cacheEntries })
      for (let i = 0; i < 3; i += 1) await resource.verify('a')
      expect(asked).toHaveLength(cacheEntries === 0 ? 3 : 1)
    }
  })

  it('evicts no token for one that has expired', async () => {
    const { resource, asked } = open({
      cacheEntries: 1,
      tokens: (token) => {
        asked.push(token)
        return { ...CLAIMS, exp: token === 'a' ? SECONDS + 600 : SECONDS }
      },
    })
    for (const token of ['a', 'b', 'a', 'b']) expect(await resource.verify(token)).toHaveProperty('subject')
    expect(asked).toEqual(['a', 'b', 'b'])
  })

  it('verifies a token once for requests that come together', async () => {
    const { resource, asked } = open({
      tokens: async (token) => {
        asked.push(token)
        return CLAIMS
      },
    })
    const all = await Promise.all(Array.from({ length: 10 }, () => resource.verify('a')))
    expect(all).toEqual(Array.from({ length: 10 }, () => all[0]))
    expect(asked).toEqual(['a'])
  })
})

describe('a function that verifies tokens', () => {
  it('R11 leaves the token undecided if the function throws, and does not quote it', async () => {
    const { resource } = open({
      tokens: (token) => {
        throw new RangeError(`bad ${token}`)
      },
    })
    expect(await resource.verify('secret')).toEqual({
      refused: 'Verifying the token failed unexpectedly (RangeError).',
      retryAfter: 5,
    })
  })

  it.each([
    ['a string', 'claims'],
    ['a list', []],
    ['null', null],
    ['claims for somebody else', { ...CLAIMS, aud: 'https://other.example' }],
  ])('H1 T32 does not trust it: %s', async (_what, claims) => {
    const { resource } = open({ tokens: () => claims as never })
    expect(await resource.verify('a')).toEqual({ refused: expect.any(String) })
  })

  it('H3 leaves out the client only if the author says so', async () => {
    const { client_id: _client, ...anonymous } = CLAIMS
    expect(await open({ tokens: () => anonymous }).resource.verify('a')).toHaveProperty('refused')
    const said = open({ tokens: () => anonymous, client: () => undefined })
    expect(await said.resource.verify('a')).toEqual({
      issuer: ISSUER,
      subject: 'alice',
      claims: anonymous,
      scopes: [],
    })
  })
})

describe('the audience', () => {
  it.each(['https://mcp.example.com', 'https://mcp.example.com/'])(
    'H1 of a server at the root may have a slash or not (%s)',
    async (aud) => {
      const { resource } = open({ resource: 'https://mcp.example.com', tokens: () => ({ ...CLAIMS, aud }) })
      expect(await resource.verify('a')).toHaveProperty('subject')
    },
  )

  it('H1 may be a single text', async () => {
    const tokens = () => ({ ...CLAIMS, aud: 'api://desk' })
    expect(await open({ audience: 'api://desk', tokens }).resource.verify('a')).toHaveProperty('subject')
    expect(await open({ audience: 'api', tokens }).resource.verify('a')).toHaveProperty('refused')
  })

  it('H1 may be named explicitly, and then the resource is none', async () => {
    const audience = ['11111111-2222', 'api://desk']
    const named = open({ audience, tokens: () => ({ ...CLAIMS, aud: 'api://desk' }) })
    expect(await named.resource.verify('a')).toHaveProperty('subject')
    expect(await open({ audience }).resource.verify('a')).toHaveProperty('refused')
  })
})

describe('introspection', () => {
  const METADATA = { issuer: ISSUER, introspection_endpoint: `${ISSUER}/introspect` }
  const client = { id: 'desk server', secret: 's:e+cret' }
  const ask = (answer: () => Response | Promise<Response>, sent: RequestInit[] = []) =>
    open({
      tokens: introspection({ client, maxConcurrent: 2 }),
      fetch: async (url, init) => {
        if (url.includes('.well-known')) return Response.json(METADATA)
        sent.push(init)
        return answer()
      },
    }).resource

  it('H1 sends the token with its own credentials, and takes the issuer for the one it asked', async () => {
    const sent: RequestInit[] = []
    const { iss: _iss, ...claims } = CLAIMS
    const resource = ask(() => Response.json({ active: true, token_type: 'Bearer', ...claims }), sent)
    expect(await resource.verify('opaque')).toMatchObject({
      issuer: ISSUER,
      subject: 'alice',
      client: 'desk',
    })
    expect(sent[0]).toMatchObject({
      method: 'POST',
      redirect: 'manual',
      body: 'token=opaque&token_type_hint=access_token',
      headers: { authorization: `Basic ${Buffer.from('desk+server:s%3Ae%2Bcret').toString('base64')}` },
    })
  })

  it.each([
    ['says no', { active: false }, /not active/],
    ['says "true"', { active: 'true', ...CLAIMS }, /not active/],
    ['names another issuer', { active: true, ...CLAIMS, iss: 'https://evil.example' }, /does not name/],
    ['names another audience', { active: true, ...CLAIMS, aud: 'x' }, /somebody else/],
    ['names no audience', { active: true, ...CLAIMS, aud: undefined }, /names no audience/],
    ['means a refresh token', { active: true, ...CLAIMS, token_type: 'refresh_token' }, /no bearer token/],
    ['says nothing', {}, /not active/],
    ['binds no key', { active: true, ...CLAIMS, token_type: 'DPoP' }, /no bearer token/],
    ['has a list for a type', { active: true, ...CLAIMS, token_type: ['Bearer'] }, /no bearer token/],
    ['names no expiry', { active: true, ...CLAIMS, exp: undefined }, /no expiry/],
    ['means a token with a key', { active: true, ...CLAIMS, cnf: { jkt: 'x' } }, /bound to a key/],
  ])('H1 refuses the token if the issuer %s', async (_what, answer, log) => {
    expect(await ask(() => Response.json(answer)).verify('a')).toEqual({
      refused: expect.stringMatching(log),
    })
  })

  it.each([
    ['fails', () => new Response('', { status: 500 }), /status 500/],
    ['does not know the server', () => new Response('', { status: 401 }), /status 401/],
    ['redirects', () => new Response('', { status: 302 }), /redirects elsewhere/],
    ['sends no JSON', () => new Response('<html>'), /not a JSON object/],
    ['cannot be reached', () => Promise.reject(new TypeError('fetch failed')), /cannot be reached/],
  ])(
    'H1 R11 has the client retry with its token if the issuer %s, and remembers nothing',
    async (_what, fail, log) => {
      let answer: () => Response | Promise<Response> = fail
      const resource = ask(() => answer())
      const headers = (name: string) => (name === 'authorization' ? 'Bearer a' : undefined)
      expect(await resource({ headers, method: 'POST' })).toEqual({
        status: 503,
        headers: { 'Retry-After': '5' },
        reason: expect.stringMatching(log),
      })
      answer = () => Response.json({ active: true, ...CLAIMS })
      expect(await resource({ headers, method: 'POST' })).toMatchObject({ subject: 'alice' })
    },
  )

  it('I3 T34 asks about a limited number of tokens at a time', async () => {
    let release = (): void => {}
    const gate = new Promise<void>((resolve) => {
      release = resolve
    })
    const resource = ask(() => gate.then(() => Response.json({ active: true, ...CLAIMS })))
    const two = [resource.verify('a'), resource.verify('b')]
    expect(await resource.verify('c')).toEqual({
      refused: expect.stringContaining('maxConcurrent'),
      retryAfter: 5,
    })
    release()
    for (const verified of await Promise.all(two)) expect(verified).toHaveProperty('subject')
    expect(await resource.verify('c')).toHaveProperty('subject')
  })
})

describe('mistakes of an author are found at once', () => {
  it.each([
    ['http', { resource: 'http://mcp.example.com/mcp' }, /resource of oauthResource must be an https URL/],
    ['a fragment', { resource: 'https://mcp.example.com/#x' }, /without a fragment/],
    ['a name', { resource: 'mcp' }, /https URL/],
    ['an object for a URL', { resource: new URL(RESOURCE) as never }, /https URL/],
    ['an option of another name', { audiences: [] } as never, /^oauthResource has no option/],
    ['an endless time', { clockSkewMs: Number.POSITIVE_INFINITY }, /clockSkewMs/],
    ['an endless memory', { cacheMs: Number.POSITIVE_INFINITY }, /cacheMs/],
    ['an unlimited memory', { cacheEntries: Number.POSITIVE_INFINITY }, /cacheEntries/],
    ['endless proofs', { dpop: { windowMs: Number.POSITIVE_INFINITY } }, /windowMs/],
    ['unlimited proofs', { dpop: { maxProofs: Number.POSITIVE_INFINITY } }, /maxProofs/],
    ['unlimited proofs of a key', { dpop: { maxProofsPerKey: Number.POSITIVE_INFINITY } }, /maxProofsPerKey/],
    [
      'an option of proofs of another name',
      { dpop: { max: 1 } as never },
      /^oauthResource: dpop has no option/,
    ],
    ['no issuer', { issuers: [] }, /needs issuers/],
    ['an issuer without TLS', { issuers: ['http://id.example.com'] }, /issuers of oauthResource/],
    ['offline_access', { scopes: ['offline_access'] }, /does not ask for offline_access/],
    ['scopes in one string', { scopes: 'a b' as never }, /must be a list of OAuth scopes/],
    ['a scope with a blank', { scopes: ['a b'] }, /must be a list of OAuth scopes/],
    ['a scope with a quote', { scopes: ['a"'] }, /must be a list of OAuth scopes/],
    ['an empty audience', { audience: [] }, /audience must be/],
    ['a negative time', { clockSkewMs: -1 }, /clockSkewMs/],
    [
      'introspection of two issuers',
      { issuers: [ISSUER, 'https://b.example'], tokens: introspection({ client: { id: 'a', secret: 'b' } }) },
      /exactly one issuer/,
    ],
  ])('%s', (_what, options, message) => {
    expect(() => open(options)).toThrow(message)
  })

  it('credentials that are missing', () => {
    for (const client of [undefined, 'a:b', { id: 1, secret: 'b' }, { id: 'a' }, { id: 'a', secret: 1 }])
      expect(() => introspection({ client } as never)).toThrow(/credentials/)
    const client = { id: 'a', secret: 'b' }
    for (const endpoint of ['http://id.example.com/introspect', '/introspect'])
      expect(() => introspection({ client, endpoint })).toThrow(/endpoint must be an https URL/)
    expect(() => introspection({ client, endpoint: 'https://id.example.com/introspect' })).not.toThrow()
  })

  it('limits of verifiers', () => {
    const client = { id: 'a', secret: 'b' }
    expect(() => introspection({ client, maxConcurrent: 0 })).toThrow(/maxConcurrent/)
    expect(() => introspection({ client, max: 1 } as never)).toThrow(/^introspection has no option/)
    expect(() => jwt({ algorithm: 'RS256' } as never)).toThrow(/^jwt has no option/)
  })

  it('this machine needs no TLS', () => {
    expect(() =>
      open({ resource: 'http://localhost:3000/mcp', issuers: ['http://127.0.0.1:9000'] }),
    ).not.toThrow()
  })
})

describe('the description of the server', () => {
  const describeOf = (options: Partial<OAuthResourceOptions>) => open(options).resource.resource

  it.each([
    [
      'https://mcp.example.com/mcp',
      'https://mcp.example.com/.well-known/oauth-protected-resource/mcp',
      ['/.well-known/oauth-protected-resource/mcp', '/.well-known/oauth-protected-resource'],
    ],
    [
      'https://mcp.example.com/a/b/',
      'https://mcp.example.com/.well-known/oauth-protected-resource/a/b',
      ['/.well-known/oauth-protected-resource/a/b', '/.well-known/oauth-protected-resource'],
    ],
    [
      'https://mcp.example.com',
      'https://mcp.example.com/.well-known/oauth-protected-resource',
      ['/.well-known/oauth-protected-resource'],
    ],
  ])('H4 of %s has its address', (resource, metadataUrl, paths) => {
    expect(describeOf({ resource })).toMatchObject({ url: resource, metadataUrl, paths })
  })

  it.each<[string, Partial<OAuthResourceOptions>, object]>([
    ['nothing else', {}, {}],
    ['its scopes', { scopes: ['read', 'write'] }, { scopes_supported: ['read', 'write'] }],
    [
      'its name, but no other resource',
      { metadata: { resource_name: 'Desk', resource: 'https://evil.example' } },
      { resource_name: 'Desk' },
    ],
    [
      'all of its issuers',
      { issuers: [ISSUER, { issuer: 'https://b.example' }] },
      {
        authorization_servers: [ISSUER, 'https://b.example'],
      },
    ],
    ['no proofs, if they are off', { dpop: false }, {}],
    [
      'proofs',
      { dpop: true },
      {
        dpop_signing_alg_values_supported: ['ES256', 'ES384', 'EdDSA', 'Ed25519'],
        dpop_bound_access_tokens_required: false,
      },
    ],
    [
      'proofs, if it demands them',
      { dpop: { required: true } },
      {
        dpop_signing_alg_values_supported: ['ES256', 'ES384', 'EdDSA', 'Ed25519'],
        dpop_bound_access_tokens_required: true,
      },
    ],
    [
      'certificates',
      { certificateHeader: 'client-cert' },
      { tls_client_certificate_bound_access_tokens: true },
    ],
  ])('H4 has %s', (_what, options, members) => {
    expect(JSON.parse(describeOf(options).document)).toEqual({
      resource: RESOURCE,
      authorization_servers: [ISSUER],
      bearer_methods_supported: ['header'],
      ...members,
    })
  })

  const ALGS = 'algs="ES256 ES384 EdDSA Ed25519"'
  const AT = 'resource_metadata="https://mcp.example.com/.well-known/oauth-protected-resource/mcp"'
  it.each<[OAuthResourceOptions['dpop'], string]>([
    [undefined, `Bearer ${AT}`],
    [true, `Bearer ${AT}, DPoP ${ALGS}`],
    [{ required: true }, `DPoP ${ALGS}, ${AT}`],
  ])('H4 is in its challenges, with dpop: %j', (dpop, challenge) => {
    const { challenge: challengeOf, proofChallenge } = describeOf({ dpop })
    expect(challengeOf(undefined, [])).toBe(challenge)
    expect(proofChallenge).toBe(`DPoP error="invalid_dpop_proof", ${ALGS}, ${AT}`)
  })

  it('H2 H4 has the error and the scopes in its challenges', () => {
    const { challenge } = describeOf({})
    expect(challenge('invalid_token', [])).toBe(
      `Bearer error="invalid_token", error_description="The access token is not valid for this server", ${AT}`,
    )
    expect(challenge('insufficient_scope', ['a', 'b'])).toBe(
      `Bearer error="insufficient_scope", error_description="The access token lacks a scope that this request needs", scope="a b", ${AT}`,
    )
  })
})

describe('the Authorization header', () => {
  const send = (authorization: string | undefined, options: Partial<OAuthResourceOptions> = {}) => {
    const { resource, asked } = open({ scopes: ['read'], ...options })
    const headers = (name: string) => (name === 'authorization' ? authorization : undefined)
    return Promise.resolve(resource({ headers, method: 'POST' })).then((verdict) => ({ verdict, asked }))
  }

  it.each([
    ['Bearer token', 'token'],
    ['bearer token', 'token'],
    ['BEARER  token', 'token'],
    ['Bearer token \t', 'token'],
    ['Bearer a-Z0._~+/==', 'a-Z0._~+/=='],
  ])('H1 "%s" has a token', async (header, token) => {
    expect(await send(header)).toMatchObject({ verdict: { subject: token }, asked: [token] })
  })

  it.each(['Bearer', 'Bearer ', 'Bearer\ttoken', 'Bearer a b', 'Bearer a,b', 'Bearer a=b', 'Bearer token!'])(
    'H1 "%s" has no single bearer token',
    async (header) => {
      const { verdict, asked } = await send(header)
      expect(verdict).toEqual({
        status: 401,
        headers: {
          'WWW-Authenticate': expect.stringMatching(/^Bearer error="invalid_token".* scope="read"/),
        },
        reason: 'The Authorization header has no single bearer token.',
      })
      expect(asked).toEqual([])
    },
  )

  it.each([undefined, 'Basic eDp5', 'Bearers token', 'x Bearer token', 'DPoP token', 'DPoP'])(
    'H1 %j has none at all',
    async (header) => {
      expect((await send(header)).verdict).toEqual({
        status: 401,
        headers: { 'WWW-Authenticate': expect.stringMatching(/^Bearer scope="read", resource_metadata/) },
      })
    },
  )

  it('H5 may present a token with a proof where proofs are checked', async () => {
    const { verdict, asked } = await send('DPoP token', { dpop: true })
    expect(asked).toEqual(['token'])
    expect(verdict).toMatchObject({ status: 401, reason: expect.stringMatching(/is not bound to a key/) })
    const bound = { tokens: () => ({ ...CLAIMS, cnf: { jkt: 'key' } }), dpop: true }
    expect((await send('DPoP token', bound)).verdict).toEqual({
      status: 401,
      headers: { 'WWW-Authenticate': expect.stringMatching(/^DPoP error="invalid_dpop_proof"/) },
      reason: 'The request has no proof (DPoP header).',
    })
    expect((await send('Bearer token', bound)).verdict).toEqual({
      status: 401,
      headers: { 'WWW-Authenticate': expect.stringMatching(/^Bearer error="invalid_token"/) },
      reason: expect.stringMatching(/presented as a bearer token/),
    })
  })

  it('H1 has none where proofs are checked, if it has another scheme', async () => {
    const { verdict, asked } = await send('Basic eDp5', { dpop: true })
    expect(verdict).toEqual({ status: 401, headers: { 'WWW-Authenticate': expect.any(String) } })
    expect(asked).toEqual([])
  })

  it('H1 gets the reason of the token, not that of its proof', async () => {
    const { verdict } = await send('DPoP token', { dpop: true, tokens: () => undefined })
    expect(verdict).toMatchObject({
      headers: { 'WWW-Authenticate': expect.stringContaining('error="invalid_token"') },
      reason: expect.stringMatching(/does not accept/),
    })
  })

  it('T35 is a bearer token for an entrance of the author', async () => {
    const { resource } = open({ tokens: () => ({ ...CLAIMS, cnf: { jkt: 'key' } }), dpop: true })
    expect(await resource.verify('a')).toMatchObject({ refused: expect.stringMatching(/as a bearer token/) })
  })

  it('H5 comes with a certificate in the header that the operator names', async () => {
    const tokens = () => ({ ...CLAIMS, cnf: { 'x5t#S256': 'x' } })
    const read: string[] = []
    const { resource } = open({ tokens, certificateHeader: 'Client-Cert' })
    const headers = (name: string) => {
      read.push(name)
      return name === 'authorization' ? 'Bearer a' : undefined
    }
    expect(await resource({ headers, method: 'POST' })).toMatchObject({ status: 401 })
    expect(read).toEqual(['authorization', 'client-cert'])
  })

  it('keeps the token with the caller, for token exchange', async () => {
    const { verdict } = await send('Bearer token')
    expect(tokenOf(verdict as object)).toBe('token')
  })
})

describe('an issuer', () => {
  it.each<[string, unknown, RegExp]>([
    ['text in place of a list', ISSUER, /needs issuers/],
    ['nothing', undefined, /needs issuers/],
    ['a number', [1], /An entry of issuers must be a URL/],
    ['null', [null], /An entry of issuers must be a URL/],
    ['an object without a URL', [{ jwks: 'https://a.example' }], /An entry of issuers must be a URL/],
    ['a URL that is a number', [{ issuer: 1 }], /issuers of oauthResource must be an https URL .* got 1/],
    ['a fragment', [`${ISSUER}#a`], /issuers of oauthResource/],
    ['credentials', ['https://user@id.example.com'], /issuers of oauthResource/],
    ['keys without TLS', [{ issuer: ISSUER, jwks: 'http://id.example.com/jwks' }], /jwks of oauthResource/],
  ])('H1 may not be %s', (_what, issuers, problem) => {
    expect(() => open({ issuers: issuers as never })).toThrow(problem)
  })

  it('H1 may have keys at an address, or given', () => {
    for (const jwks of ['https://keys.example.com', { keys: [] }])
      expect(() => open({ issuers: [{ issuer: ISSUER, jwks }] })).not.toThrow()
  })
})

describe('an audience that is not named', () => {
  const accepts = async (resource: string, aud: string) =>
    'subject' in (await open({ resource, tokens: () => ({ ...CLAIMS, aud }) }).resource.verify('a'))

  it.each([
    [RESOURCE, RESOURCE, true],
    [RESOURCE, `${RESOURCE}/`, false],
    [RESOURCE, 'https://mcp.example.com', false],
    ['https://mcp.example.com/', 'https://mcp.example.com', true],
    ['https://mcp.example.com/?a=b', 'https://mcp.example.com/?a=b', true],
    ['https://mcp.example.com/?a=b', 'https://mcp.example.com', false],
  ])('H1 is the resource: %s and %s, %s', async (resource, aud, isAccepted) => {
    expect(await accepts(resource, aud)).toBe(isAccepted)
  })

  it.each<[unknown]>([[''], [[]], [['']], [['a', 1]]])('H1 may not be %j', (audience) => {
    expect(() => open({ audience: audience as never })).toThrow(/audience must be a string, or a list/)
  })
})

describe('a way to verify tokens', () => {
  it.each<[unknown]>([[jwt], [introspection], ['jwt'], [{ kind: 'jwt' }], [{ kind: 'jwt', options: 1 }]])(
    'may not be %s',
    (tokens) => {
      expect(() => open({ tokens: tokens as never })).toThrow(/tokens must be jwt\(…\), introspection/)
    },
  )

  it('verifies JSON Web Tokens unless it is set', async () => {
    const own = (tokens?: OAuthResourceOptions['tokens']) => open({ tokens }).resource.verify('a')
    for (const tokens of [undefined, jwt()])
      expect(await own(tokens)).toEqual({ refused: expect.stringMatching(/not a JSON Web Token/) })
    expect(() => jwt({ algorithms: ['none'] })).toThrow(/algorithms must be/)
  })

  it('refuses what it does not accept, and says that it is the function', async () => {
    expect(await open({ tokens: () => undefined }).resource.verify('a')).toEqual({
      refused: expect.stringMatching(/^The function tokens does not accept/),
    })
  })

  it('R11 may throw anything', async () => {
    const { resource } = open({
      tokens: () => {
        throw 'text'
      },
    })
    expect(await resource.verify('a')).toMatchObject({ refused: expect.stringMatching(/\(string\)/) })
  })
})

describe('the store of proofs', () => {
  it('T35 must be a store', () => {
    for (const store of [{}, { once: {} }, { once: { claim: 1 } }])
      expect(() => open({ dpop: { store: store as never } })).toThrow(/dpop\.store must be a store/)
    expect(() => open({ dpop: { store: createMemoryStore() } })).not.toThrow()
    expect(() => open({ dpop: { windowMs: -1 } })).toThrow(/windowMs/)
  })
})
