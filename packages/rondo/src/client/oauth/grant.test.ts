/** The requests for tokens, byte by byte: what is sent to which authorization server, and which answers are refused. */

import { generateKeyPairSync } from 'node:crypto'
import type { AuthorizationServer } from 'oauth4webapi'
import { describe, expect, it } from 'vitest'
import { createBinding } from './dpop.ts'
import {
  authentication,
  type GrantContext,
  givenClient,
  grantByAssertion,
  grantByCode,
  grantByRefresh,
  grantToClient,
  identify,
  isSame,
  revoke,
} from './grant.ts'
import type { LoginLink, StoredClient } from './options.ts'

const ISSUER = 'https://id.example.com'
const RESOURCE = 'https://mcp.example.com/mcp'
const REDIRECT = 'http://127.0.0.1:7000/callback'
const NOW = 1_800_000_000_000
const AS: AuthorizationServer = {
  issuer: ISSUER,
  authorization_endpoint: `${ISSUER}/authorize`,
  token_endpoint: `${ISSUER}/token`,
  registration_endpoint: `${ISSUER}/register`,
  revocation_endpoint: `${ISSUER}/revoke`,
}
const ISSUED = { access_token: 'new', token_type: 'Bearer' }

interface Sent {
  readonly url: string
  readonly form: Record<string, string>
  readonly headers: Headers
  readonly body: string
}

/** A grant at an authorization server that gives these answers, one after the other. */
function open(answers: (object | Response)[], changes: Partial<GrantContext> = {}) {
  const sent: Sent[] = []
  const request = async (url: string, init: RequestInit): Promise<Response> => {
    const body = String(init.body)
    sent.push({
      url,
      form: Object.fromEntries(new URLSearchParams(body)),
      headers: new Headers(init.headers),
      body,
    })
    const answer = answers.shift()
    return answer instanceof Response ? answer : Response.json(answer)
  }
  const context: GrantContext = {
    as: AS,
    server: new URL(RESOURCE),
    client: { id: 'desk' },
    given: undefined,
    resource: RESOURCE,
    request,
    now: () => NOW,
    ...changes,
  }
  return { sent, context }
}

const refusal = (text: RegExp) =>
  expect.objectContaining({ code: 'PEER_AUTHORIZATION', message: expect.stringMatching(text) })

describe('a code', () => {
  /** Logs in; `back` returns what the redirect brings for the link. */
  async function logIn(
    setup: ReturnType<typeof open>,
    scopes: readonly string[] = [],
    back = (link: LoginLink) => `${REDIRECT}?code=c&state=${link.state}&iss=${encodeURIComponent(ISSUER)}`,
  ) {
    const links: LoginLink[] = []
    const { signal } = new AbortController()
    const granted = await grantByCode(setup.context, {
      redirectUri: REDIRECT,
      scopes,
      signal,
      async visit(link) {
        links.push(link)
        return back(link)
      },
    })
    const [link] = links
    if (link === undefined) throw new Error('no link was shown')
    return { granted, link, query: Object.fromEntries(link.url.searchParams), signal }
  }

  it('H4 T30 is asked for with a state, a challenge and the resource, and exchanged with its verifier', async () => {
    const setup = open([ISSUED])
    const { granted, link, query, signal } = await logIn(setup)
    expect(link.url.origin + link.url.pathname).toBe(`${ISSUER}/authorize`)
    expect(query).toEqual({
      response_type: 'code',
      client_id: 'desk',
      redirect_uri: REDIRECT,
      state: link.state,
      code_challenge: expect.stringMatching(/^[\w-]{43}$/),
      code_challenge_method: 'S256',
      resource: RESOURCE,
    })
    expect(link).toMatchObject({ server: new URL(RESOURCE), issuer: ISSUER, scopes: [], signal })
    const [{ url, form } = { url: '', form: {} as Record<string, string> }] = setup.sent
    expect(url).toBe(`${ISSUER}/token`)
    expect(form).toEqual({
      grant_type: 'authorization_code',
      client_id: 'desk',
      code: 'c',
      redirect_uri: REDIRECT,
      code_verifier: expect.stringMatching(/^[\w-]{43}$/),
      resource: RESOURCE,
    })
    const bytes = await crypto.subtle.digest('SHA-256', Buffer.from(form.code_verifier ?? ''))
    expect(Buffer.from(bytes).toString('base64url')).toBe(query.code_challenge)
    expect(granted).toEqual({ tokens: { accessToken: 'new' } })
  })

  it('H4 T30 is asked for with another state and another challenge each time', async () => {
    const [one, two] = [await logIn(open([ISSUED])), await logIn(open([ISSUED]))]
    expect(one.query.state).not.toBe(two.query.state)
    expect(one.query.code_challenge).not.toBe(two.query.code_challenge)
  })

  it('is asked for with scopes, and with consent for a refresh token', async () => {
    const { query, link } = await logIn(open([ISSUED]), ['read', 'write'])
    expect(query).toMatchObject({ scope: 'read write' })
    expect(query).not.toHaveProperty('prompt')
    expect(link.scopes).toEqual(['read', 'write'])
    const offline = await logIn(open([ISSUED]), ['offline_access'])
    expect(offline.query).toMatchObject({ scope: 'offline_access', prompt: 'consent' })
  })

  it('is asked for without a resource at an identity provider', async () => {
    const setup = open([ISSUED], { resource: undefined })
    const { query } = await logIn(setup)
    expect(query).not.toHaveProperty('resource')
    expect(setup.sent[0]?.form).not.toHaveProperty('resource')
  })

  it('H5 is bound to the key of this process', async () => {
    const binding = await createBinding()
    const setup = open([{ ...ISSUED, token_type: 'DPoP' }], { binding })
    const { query, granted } = await logIn(setup)
    expect(query.dpop_jkt).toBe(binding.thumbprint)
    expect(setup.sent[0]?.headers.get('dpop')).toMatch(/^[\w-]+\.[\w-]+\.[\w-]+$/)
    expect(granted.tokens).toEqual({ accessToken: 'new', keyThumbprint: binding.thumbprint })
  })

  it.each<[string, (link: LoginLink) => string]>([
    ['has another state', () => `${REDIRECT}?code=c&state=other`],
    ['has no state', () => `${REDIRECT}?code=c`],
    [
      'comes from another issuer',
      ({ state }) => `${REDIRECT}?code=c&state=${state}&iss=https%3A%2F%2Fevil.example`,
    ],
    ['has no code', ({ state }) => `${REDIRECT}?state=${state}`],
    ['is an error', ({ state }) => `${REDIRECT}?error=access_denied&state=${state}`],
    ['is no URL', () => 'nothing'],
  ])('H4 T30 is not sent if the redirect %s', async (_what, back) => {
    const setup = open([ISSUED])
    await expect(logIn(setup, [], back)).rejects.toEqual(
      refusal(/Could not log in at https:\/\/id\.example\.com/),
    )
    expect(setup.sent).toEqual([])
  })

  it('H4 is not quoted, nor its verifier, if it is refused', async () => {
    const quoting: GrantContext['request'] = async (_url, init) => {
      const { code, code_verifier } = Object.fromEntries(new URLSearchParams(String(init.body)))
      const error_description = `${code} and ${code_verifier} and the-secret`
      return Response.json({ error: 'invalid_grant', error_description }, { status: 400 })
    }
    const setup = open([], { request: quoting, client: { id: 'desk', secret: 'the-secret' } })
    const code = (link: LoginLink) => `${REDIRECT}?code=the-code&state=${link.state}`
    await expect(logIn(setup, [], code)).rejects.toEqual(refusal(/: invalid_grant: … and … and …$/))
  })

  it('H4 T30 is not asked for at a place that the server may not name', async () => {
    const as = { ...AS, authorization_endpoint: 'http://id.example.com/authorize' }
    await expect(logIn(open([], { as }))).rejects.toEqual(refusal(/must use https/))
    await expect(logIn(open([], { as: { issuer: ISSUER } }))).rejects.toEqual(refusal(/is not a URL/))
    const local = { ...AS, issuer: 'https://10.0.0.1', authorization_endpoint: 'https://10.0.0.1/authorize' }
    const back = (link: LoginLink) => `${REDIRECT}?code=c&state=${link.state}`
    expect((await logIn(open([ISSUED], { as: local }), [], back)).link.url.host).toBe('10.0.0.1')
  })
})

describe('a token', () => {
  const obtain = (answer: object | Response, changes: Partial<GrantContext> = {}) =>
    grantToClient(open([answer], changes).context, [])

  it('H4 is obtained by the client itself, for one resource', async () => {
    const { sent, context } = open([ISSUED, ISSUED], { client: { id: 'desk', secret: 's' } })
    await grantToClient(context, [])
    await grantToClient(context, ['a', 'b'])
    expect(sent.map(({ form }) => form)).toEqual([
      { grant_type: 'client_credentials', resource: RESOURCE },
      { grant_type: 'client_credentials', resource: RESOURCE, scope: 'a b' },
    ])
  })

  it('H4 is refused with a sentence that quotes no secret', async () => {
    const bad = () =>
      Response.json({ error: 'invalid_client', error_description: 'the-secret' }, { status: 400 })
    const client = { id: 'desk', secret: 'the-secret' }
    await expect(obtain(bad(), { client })).rejects.toEqual(
      refusal(/Could not obtain a token at .*: invalid_client: …$/),
    )
    expect(await obtain(ISSUED)).toStrictEqual({ tokens: { accessToken: 'new' } })
  })

  it('H7 is obtained with an assertion, which is not quoted', async () => {
    const { sent, context } = open([ISSUED])
    expect(await grantByAssertion(context, 'the-assertion', ['a'])).toEqual({
      tokens: { accessToken: 'new' },
    })
    expect(sent[0]?.form).toEqual({
      grant_type: 'urn:ietf:params:oauth:grant-type:jwt-bearer',
      client_id: 'desk',
      assertion: 'the-assertion',
      resource: RESOURCE,
      scope: 'a',
    })
    const bad = Response.json(
      { error: 'invalid_grant', error_description: 'the-assertion, the-secret' },
      { status: 400 },
    )
    const refused = open([bad], { client: { id: 'desk', secret: 'the-secret' } })
    await expect(grantByAssertion(refused.context, 'the-assertion', [])).rejects.toEqual(
      refusal(/Could not obtain a token for the assertion .*: invalid_grant: …, …$/),
    )
  })

  it('T31 is refreshed, and keeps the refresh token unless it gets another', async () => {
    const { sent, context } = open([ISSUED, { ...ISSUED, refresh_token: 'r2' }])
    expect((await grantByRefresh(context, 'r1')).tokens).toEqual({ accessToken: 'new', refreshToken: 'r1' })
    expect((await grantByRefresh(context, 'r1')).tokens).toEqual({ accessToken: 'new', refreshToken: 'r2' })
    expect(sent[0]?.form).toEqual({
      grant_type: 'refresh_token',
      client_id: 'desk',
      refresh_token: 'r1',
      resource: RESOURCE,
    })
    const bad = Response.json(
      { error: 'invalid_grant', error_description: 'r1, the-secret' },
      { status: 400 },
    )
    const refused = open([bad], { client: { id: 'desk', secret: 'the-secret' } })
    await expect(grantByRefresh(refused.context, 'r1')).rejects.toEqual(
      refusal(/Could not refresh the login .*: invalid_grant: …, …$/),
    )
  })

  it('has what the authorization server says of it', async () => {
    expect(await obtain({ ...ISSUED, expires_in: 60, scope: 'a b', refresh_token: 'r', other: 1 })).toEqual({
      tokens: { accessToken: 'new', refreshToken: 'r', expiresAt: NOW + 60_000, granted: ['a', 'b'] },
    })
  })

  it.each<[string, object, RegExp]>([
    ['is bound to a key', { ...ISSUED, token_type: 'DPoP' }, /another type than Bearer|another token/],
    ['is of another type', { ...ISSUED, token_type: 'mac' }, /obtain a token|another type/],
    ['has a line break', { ...ISSUED, access_token: 'a\nb' }, /cannot be sent in a header/],
    ['has a blank', { ...ISSUED, access_token: 'a b' }, /cannot be sent in a header/],
    ['begins with a blank', { ...ISSUED, access_token: ' a' }, /cannot be sent in a header/],
    ['is too long', { ...ISSUED, access_token: 'a'.repeat(65_537) }, /cannot be sent in a header/],
  ])('H4 is refused if it %s', async (_what, answer, text) => {
    await expect(obtain(answer)).rejects.toEqual(refusal(text))
  })

  it('H5 is refused if it is to be bound to a key and is not', async () => {
    const binding = await createBinding()
    await expect(obtain(ISSUED, { binding })).rejects.toEqual(refusal(/another type than DPoP/))
  })

  it('may be as long as a header', async () => {
    const access_token = 'a'.repeat(65_536)
    expect((await obtain({ ...ISSUED, access_token })).tokens.accessToken).toBe(access_token)
  })

  it('H5 is asked for again with the nonce that a refusal names, once', async () => {
    const nonce = () =>
      Response.json({ error: 'use_dpop_nonce' }, { status: 400, headers: { 'DPoP-Nonce': 'the-nonce' } })
    const binding = await createBinding()
    const { sent, context } = open([nonce(), { ...ISSUED, token_type: 'DPoP' }], { binding })
    await grantToClient(context, [])
    const claims = sent.map(({ headers }) =>
      JSON.parse(Buffer.from(headers.get('dpop')?.split('.')[1] ?? '', 'base64url').toString()),
    )
    expect(claims[0]).not.toHaveProperty('nonce')
    expect(claims[1]).toMatchObject({ nonce: 'the-nonce', htm: 'POST', htu: `${ISSUER}/token` })
    const stubborn = open([nonce(), nonce(), nonce()], { binding })
    await expect(grantToClient(stubborn.context, [])).rejects.toEqual(refusal(/use_dpop_nonce/))
    expect(stubborn.sent).toHaveLength(2)
  })

  const part = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url')
  it.each<[object, string]>([
    [{ email: 'a@b', preferred_username: 'ada', name: 'Ada' }, 'a@b'],
    [{ preferred_username: 'ada', name: 'Ada' }, 'ada'],
    [{ email: 1, name: 'Ada' }, 'Ada'],
    [{}, 'user 7'],
  ])('names the person who logged in, by %j', async (claims, user) => {
    const seconds = Math.floor(Date.now() / 1_000)
    const all = { iss: ISSUER, aud: 'desk', sub: 'user 7', iat: seconds, exp: seconds + 60, ...claims }
    const id_token = `${part({ alg: 'RS256' })}.${part(all)}.c2ln`
    expect(await obtain({ ...ISSUED, id_token })).toMatchObject({ user, idToken: id_token })
  })
})

describe('the end of a login', () => {
  it('H4 revokes the refresh token first, then the access token', async () => {
    const { sent, context } = open([new Response(), new Response()])
    expect(await revoke(context, { accessToken: 'a', refreshToken: 'r' })).toBe(true)
    expect(sent.map(({ url, form }) => [url, form.token])).toEqual([
      [`${ISSUER}/revoke`, 'r'],
      [`${ISSUER}/revoke`, 'a'],
    ])
    const one = open([new Response()])
    await revoke(one.context, { accessToken: 'a' })
    expect(one.sent).toHaveLength(1)
  })

  it('H4 is only here if the authorization server refuses to end the token that lasts longest', async () => {
    const answers = { yes: () => new Response(), no: () => Response.json({ error: 'x' }, { status: 400 }) }
    for (const [refreshToken, given, isEnded] of [
      ['r', ['yes', 'no'], true],
      ['r', ['no', 'yes'], false],
      [undefined, ['no'], false],
    ] as const) {
      const { sent, context } = open(given.map((one) => answers[one]()))
      expect(await revoke(context, { accessToken: 'a', refreshToken })).toBe(isEnded)
      expect(sent).toHaveLength(given.length)
    }
  })

  it('is only here if the authorization server revokes nothing', async () => {
    const { sent, context } = open([], { as: { ...AS, revocation_endpoint: undefined } })
    expect(await revoke(context, { accessToken: 'a' })).toBe(false)
    expect(sent).toEqual([])
  })
})

describe('the identity of a client', () => {
  const registration = (answers: (object | Response)[], known?: StoredClient, redirectUri = REDIRECT) => {
    const { sent, context } = open(answers)
    return { sent, registration: { request: context.request, redirectUri, known, now: NOW } }
  }
  const options = { clientName: 'Desk' }

  it('H4 is the one that was given, at its own authorization server only', async () => {
    const { registration: one } = registration([])
    const client = { id: 'given', secret: 's', issuer: `${ISSUER}/` }
    expect(await identify(AS, { ...options, client }, one)).toEqual({ id: 'given', secret: 's' })
    expect(givenClient(AS, { id: 'given' })).toStrictEqual({ id: 'given' })
    expect(() => givenClient(AS, { id: 'given', issuer: 'https://other.example' })).toThrow(
      refusal(/registered at https:\/\/other\.example, but the server uses https:\/\/id\.example\.com/),
    )
  })

  it('H4 is the URL of its metadata where that is supported', async () => {
    const clientMetadataUrl = 'https://desk.example/client.json'
    const { sent, registration: one } = registration([
      { client_id: 'registered' },
      { client_id: 'registered' },
    ])
    const supported = { ...AS, client_id_metadata_document_supported: true }
    expect(await identify(supported, { ...options, clientMetadataUrl }, one)).toEqual({
      id: clientMetadataUrl,
      method: 'none',
    })
    expect(sent).toEqual([])
    expect(await identify(AS, { ...options, clientMetadataUrl }, one)).toMatchObject({ id: 'registered' })
    expect(await identify(supported, options, one)).toMatchObject({ id: 'registered' })
  })

  it.each<[string, Partial<StoredClient>, boolean]>([
    ['as it is', {}, true],
    ['with a secret that is still valid', { expiresAt: NOW + 1 }, true],
    ['with a secret that has expired', { expiresAt: NOW }, false],
    ['for another redirect', { redirectUri: 'http://127.0.0.1:1/callback' }, false],
  ])('H4 is the one of an earlier login, %s, or a new one', async (_what, changes, isKnown) => {
    const known = { id: 'known', redirectUri: REDIRECT, ...changes }
    const { sent, registration: one } = registration([{ client_id: 'registered' }], known)
    expect(await identify(AS, options, one)).toMatchObject({ id: isKnown ? 'known' : 'registered' })
    expect(sent).toHaveLength(isKnown ? 0 : 1)
  })

  it('is missing where clients cannot register', async () => {
    const { registration: one } = registration([])
    await expect(identify({ ...AS, registration_endpoint: undefined }, options, one)).rejects.toEqual(
      refusal(/does not let clients register themselves/),
    )
  })

  it.each([
    [REDIRECT, 'native'],
    ['desk.app:/callback', 'native'],
    ['https://desk.example/callback', 'web'],
    ['https://desk.example/http:', 'web'],
  ])('H4 is registered with %s as %s', async (redirectUri, application_type) => {
    const { sent, registration: one } = registration([{ client_id: 'registered' }], undefined, redirectUri)
    expect(await identify(AS, options, one)).toEqual({ id: 'registered', redirectUri })
    expect(sent[0]?.url).toBe(`${ISSUER}/register`)
    expect(JSON.parse(sent[0]?.body ?? '')).toEqual({
      client_name: 'Desk',
      redirect_uris: [redirectUri],
      grant_types: ['authorization_code', 'refresh_token'],
      response_types: ['code'],
      application_type,
      token_endpoint_auth_method: 'none',
    })
  })

  it.each<[string[] | undefined, string]>([
    [undefined, 'none'],
    [['client_secret_post', 'client_secret_basic', 'none'], 'none'],
    [['client_secret_post', 'client_secret_basic'], 'client_secret_basic'],
    [['client_secret_post'], 'client_secret_post'],
    [['tls_client_auth'], 'none'],
  ])('prefers to have no secret: of %j it takes %s', async (supported, method) => {
    const { sent, registration: one } = registration([{ client_id: 'registered' }])
    await identify({ ...AS, token_endpoint_auth_methods_supported: supported }, options, one)
    expect(JSON.parse(sent[0]?.body ?? '')).toMatchObject({ token_endpoint_auth_method: method })
  })

  it('has what its registration says, whether that has status 200 or 201', async () => {
    const answer = {
      client_id: 'registered',
      client_secret: 's',
      client_secret_expires_at: 1_900_000_000,
      token_endpoint_auth_method: 'client_secret_post',
    }
    const stored = {
      id: 'registered',
      redirectUri: REDIRECT,
      secret: 's',
      method: 'client_secret_post',
      expiresAt: 1_900_000_000_000,
    }
    for (const status of [200, 201]) {
      const { registration: one } = registration([Response.json(answer, { status })])
      expect(await identify(AS, options, one)).toEqual(stored)
    }
    const endless = registration([{ ...answer, client_secret_expires_at: 0 }])
    expect(await identify(AS, options, endless.registration)).not.toHaveProperty('expiresAt')
    const unsaid = registration([{ client_id: 'registered', client_secret: 's' }])
    expect(await identify(AS, options, unsaid.registration)).toEqual({
      id: 'registered',
      redirectUri: REDIRECT,
      secret: 's',
    })
  })

  it('has no end that is not a time', async () => {
    const { registration: one } = registration([
      { client_id: 'registered', client_secret_expires_at: '1900000000' },
    ])
    expect(await identify(AS, options, one)).toEqual({ id: 'registered', redirectUri: REDIRECT })
  })

  it.each<[string, Response, RegExp]>([
    [
      'a refusal',
      Response.json({ error: 'invalid_redirect_uri' }, { status: 400 }),
      /Could not register the client at .*: invalid_redirect_uri$/,
    ],
    ['a list', Response.json([]), /Could not register the client at/],
    ['no JSON', new Response('{', { status: 201 }), /Could not register the client at .*json/],
  ])('H4 is missing if its registration has %s for an answer', async (_what, answer, text) => {
    const { registration: one } = registration([answer])
    await expect(identify(AS, options, one)).rejects.toEqual(refusal(text))
  })

  it('H4 is registered, and gets a token, at an authorization server on this machine without TLS', async () => {
    const issuer = 'http://localhost:9000'
    const as = { issuer, token_endpoint: `${issuer}/token`, registration_endpoint: `${issuer}/register` }
    const { sent, registration: one } = registration([{ client_id: 'registered' }])
    const client = await identify(as, options, one)
    const local = open([ISSUED], { as, client })
    await grantToClient(local.context, [])
    expect([...sent, ...local.sent].map(({ url }) => url)).toEqual([`${issuer}/register`, `${issuer}/token`])
  })
})

describe('a client proves who it is', () => {
  /** What it sends to the token endpoint. */
  async function send(
    client: Partial<StoredClient>,
    as: Partial<AuthorizationServer> = {},
    given?: GrantContext['given'],
  ) {
    const { sent, context } = open([ISSUED], {
      client: { id: 'a b', ...client },
      as: { ...AS, ...as },
      given,
    })
    await grantToClient(context, [])
    const [{ form, headers } = { form: {} as Record<string, string>, headers: new Headers() }] = sent
    return { form, authorization: headers.get('authorization') }
  }
  const BASIC = `Basic ${btoa('a+b:s%26-%20'.replace('%20', '+'))}`

  it.each<[string, Partial<StoredClient>, Partial<AuthorizationServer>, string | null, string | undefined]>([
    ['not at all, without a secret', {}, {}, null, undefined],
    ['in a header', { secret: 's&- ' }, {}, BASIC, undefined],
    [
      'in a header, where both are supported',
      { secret: 's&- ' },
      { token_endpoint_auth_methods_supported: ['client_secret_post', 'client_secret_basic'] },
      BASIC,
      undefined,
    ],
    [
      'in the body, where only that is supported',
      { secret: 's&- ' },
      { token_endpoint_auth_methods_supported: ['client_secret_post'] },
      null,
      's&- ',
    ],
    [
      'in the body, if it was registered so',
      { secret: 's&- ', method: 'client_secret_post' },
      {},
      null,
      's&- ',
    ],
    ['not at all, if it was registered so', { secret: 's', method: 'none' }, {}, null, undefined],
  ])('H4 %s', async (_what, client, as, header, secret) => {
    const { form, authorization } = await send(client, as)
    expect([authorization, form.client_secret]).toEqual([header, secret])
  })

  it('not in a way that is unknown here', async () => {
    const client = { id: 'desk', secret: 's', method: 'tls_client_auth' }
    await expect(authentication(AS, client, undefined)).rejects.toEqual(
      refusal(/wants the client to authenticate with tls_client_auth/),
    )
  })

  it('H7 with a private key, which never leaves this process', async () => {
    const keys = {
      ES256: generateKeyPairSync('ec', { namedCurve: 'P-256' }),
      ES384: generateKeyPairSync('ec', { namedCurve: 'P-384' }),
      Ed25519: generateKeyPairSync('ed25519'),
    }
    for (const [algorithm, { privateKey }] of Object.entries(keys)) {
      const key = privateKey.export({ type: 'pkcs8', format: 'pem' }) as string
      const given = {
        id: 'desk',
        issuer: ISSUER,
        privateKey: { key, keyId: 'k', ...(algorithm !== 'ES256' && { algorithm: algorithm as 'ES384' }) },
      }
      const { form, authorization } = await send({ id: 'desk', secret: 's' }, {}, given)
      expect(authorization).toBeNull()
      expect(form).not.toHaveProperty('client_secret')
      const [header] = (form.client_assertion ?? '').split('.')
      expect(JSON.parse(Buffer.from(header ?? '', 'base64url').toString())).toMatchObject({
        alg: algorithm,
        kid: 'k',
      })
    }
    const { privateKey } = await crypto.subtle.generateKey({ name: 'ECDSA', namedCurve: 'P-256' }, false, [
      'sign',
      'verify',
    ])
    const { form } = await send({ id: 'desk' }, {}, { id: 'desk', privateKey: { key: privateKey } })
    expect(form.client_assertion).toMatch(/^[\w-]+\.[\w-]+\.[\w-]+$/)
    const given = { id: 'desk', privateKey: { key: 'secret' } }
    const failed = await authentication(AS, { id: 'desk' }, given).catch((error: unknown) => error)
    expect(failed).toBeInstanceOf(TypeError)
    expect(String(failed)).toMatch(/not a PKCS #8 key for ES256/)
    expect(String(failed)).not.toContain('secret')
  })
})

describe('an issuer is the same', () => {
  it.each([
    [ISSUER, ISSUER, true],
    [ISSUER, `${ISSUER}/`, true],
    [`${ISSUER}/a`, `${ISSUER}/a/`, false],
    [ISSUER, 'https://other.example', false],
    ['no url', ISSUER, false],
    [ISSUER, 'no url', false],
    ['no url', 'no url', true],
  ])('%s and %s: %s', (one, other, isEqual) => {
    expect(isSame(one, other)).toBe(isEqual)
  })
})
