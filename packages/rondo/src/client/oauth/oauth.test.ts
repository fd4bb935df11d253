/** The login at one server: what is sent where, what is stored, which token is used, and when a person has to log in. */

import { generateKeyPair } from 'oauth4webapi'
import { describe, expect, it } from 'vitest'
import { RondoError } from '../../errors.ts'
import type { Credential, Refusal } from '../auth.ts'
import { createBinding } from './dpop.ts'
import { oauth, openLogins } from './oauth.ts'
import {
  type AssertionGrant,
  type AssertionRequest,
  type LoginLink,
  memoryTokenStore,
  type OAuthOptions,
  type StoredLogin,
  type StoredTokens,
} from './options.ts'

const ORIGIN = 'https://mcp.example.com'
const SERVER = `${ORIGIN}/mcp`
const ISSUER = 'https://id.example.com'
const OTHER = 'https://other.example.com'
const REDIRECT = 'http://127.0.0.1:7000/callback'
const NOW = 1_800_000_000_000
const ROBOT = { id: 'robot', secret: 'the-secret', issuer: ISSUER }
const LOGIN: StoredLogin = {
  version: 1,
  server: SERVER,
  resource: SERVER,
  issuer: ISSUER,
  client: { id: 'known', redirectUri: REDIRECT },
  scopes: ['read'],
  tokens: { accessToken: 'old', refreshToken: 'old-refresh', expiresAt: NOW + 60_000 },
}

interface World {
  /** Changes the metadata of the server; `undefined` if it has none. */
  protection?: object | undefined
  /** Changes the metadata of every authorization server; `undefined` if they have none. */
  metadata?: object | undefined
  /** The answers of the token endpoints, one after the other; then a token each time. */
  tokens?: (object | Response | Error | Promise<object>)[]
  /** The challenge to a request without a token; `undefined` if the server answers it. */
  challenge?: string | undefined
  /** The status of that challenge. */
  status?: number
  stored?: StoredLogin
  store?: ReturnType<typeof memoryTokenStore>
  /** Returns the redirect of a login. */
  visit?: (link: LoginLink) => Promise<string> | string
}

/** A process that logs in at one server, in a world of servers that answer at once. */
function open(options: OAuthOptions = {}, given: World = {}) {
  const world: World = { protection: {}, metadata: {}, challenge: 'Bearer', ...given }
  const clock = { now: NOW }
  const sent: { url: string; form: Record<string, string>; headers: Headers; body: string }[] = []
  const links: LoginLink[] = []
  const store = world.store ?? memoryTokenStore()
  if (world.stored !== undefined) void store.save(SERVER, world.stored)
  let [issued, closed] = [0, 0]

  const issue = async (headers: Headers): Promise<Response> => {
    issued += 1
    const answer = await world.tokens?.shift()
    if (answer instanceof Error) throw answer
    if (answer instanceof Response) return answer
    return Response.json({
      access_token: `access-${issued}`,
      refresh_token: `refresh-${issued}`,
      token_type: headers.has('dpop') ? 'DPoP' : 'Bearer',
      expires_in: 60,
      ...answer,
    })
  }
  const metadataAt = (origin: string) => ({
    issuer: origin,
    authorization_endpoint: `${origin}/authorize`,
    token_endpoint: `${origin}/token`,
    registration_endpoint: `${origin}/register`,
    revocation_endpoint: `${origin}/revoke`,
    code_challenge_methods_supported: ['S256'],
    ...world.metadata,
  })
  async function fetch(url: string, init: RequestInit): Promise<Response> {
    const { origin, pathname } = new URL(url)
    const [body, headers] = [String(init.body), new Headers(init.headers)]
    sent.push({ url, form: Object.fromEntries(new URLSearchParams(body)), headers, body })
    if (pathname.startsWith('/.well-known/oauth-protected-resource'))
      return world.protection === undefined
        ? new Response('', { status: 404 })
        : Response.json({ resource: SERVER, authorization_servers: [ISSUER], ...world.protection })
    if (pathname.startsWith('/.well-known/'))
      return world.metadata === undefined
        ? new Response('', { status: 404 })
        : Response.json(metadataAt(origin))
    if (pathname === '/register') return Response.json({ client_id: 'registered' }, { status: 201 })
    if (pathname === '/token') return issue(headers)
    if (pathname === '/revoke') return new Response()
    if (world.challenge === undefined) return Response.json({ jsonrpc: '2.0', id: 1, result: {} })
    return new Response('', {
      status: world.status ?? 401,
      headers: { 'WWW-Authenticate': world.challenge },
    })
  }
  const login: OAuthOptions['login'] = () => ({
    redirectUri: REDIRECT,
    visit: async (link) => {
      links.push(link)
      return (await world.visit?.(link)) ?? `${REDIRECT}?code=the-code&state=${link.state}`
    },
    close: () => {
      closed += 1
    },
  })
  const all = { login, store, fetch, now: () => clock.now, ...options }
  const auth = oauth(all)
  const requests = auth.open(new URL(SERVER))
  const { signal } = new AbortController()
  const credential = (verb = 'POST') => requests.credential({ method: verb, url: SERVER }, signal)
  const refuse = (of: Credential | string | undefined, changes: Partial<Refusal> = {}) =>
    requests.refused(
      {
        status: 401,
        challenges: [bearer()],
        sent: typeof of === 'string' ? { token: of, headers: {} } : of,
        ...changes,
      },
      signal,
    )
  return {
    ...{ world, clock, sent, links, store, auth, requests, credential, refuse, options: all },
    closed: () => closed,
    accept: (token: string, nonce?: string) => requests.accepted?.({ token, headers: {} }, nonce),
    /** Logs in for a request that is refused, and returns the token that is sent from then on. */
    async logIn(params: Record<string, string> = {}) {
      expect(await refuse(undefined, { challenges: [bearer(params)] })).toBe(true)
      return (await credential())?.token
    },
    /** The requests for tokens. */
    asked: () =>
      sent.filter(({ url }) => url.endsWith('/token')).map(({ url, form }) => `${url} ${form.grant_type}`),
    forms: () => sent.filter(({ url }) => url.endsWith('/token')).map(({ form }) => form),
    places: () => sent.map(({ url }) => url),
    stored: () => store.load(SERVER) as StoredLogin | undefined,
  }
}

const bearer = (params: Record<string, string> = {}) => ({ scheme: 'Bearer', params })
const more = (scope: string) => ({
  status: 403,
  challenges: [bearer({ error: 'insufficient_scope', scope })],
})
const refusal = (code: string, text: RegExp, data?: unknown) =>
  expect.objectContaining({ code, message: expect.stringMatching(text), ...(data !== undefined && { data }) })
const bad = (error: string) => Response.json({ error }, { status: 400 })
const CODE = `${ISSUER}/token authorization_code`
const REFRESH = `${ISSUER}/token refresh_token`
const CLIENT = `${ISSUER}/token client_credentials`
const ASSERTION = `${ISSUER}/token urn:ietf:params:oauth:grant-type:jwt-bearer`
const part = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url')
const proofOf = (credential: Credential | undefined) =>
  JSON.parse(Buffer.from(credential?.headers.DPoP?.split('.')[1] ?? '', 'base64url').toString() || '{}')
const settled = () => new Promise((resolve) => setImmediate(resolve))

describe('the options', () => {
  const vouching: AssertionGrant = { kind: 'jwt-bearer', assertion: async () => 'a.b.c' }
  const key = {} as CryptoKey

  it.each<[string, unknown, RegExp]>([
    [
      'another grant',
      { grant: 'password' },
      /grant must be authorization_code, client_credentials, workload/,
    ],
    ['a grant of another kind', { grant: { ...vouching, kind: 'other' } }, /grant must be/],
    ['a grant without an assertion', { grant: { kind: 'jwt-bearer' } }, /grant must be/],
    ['an assertion without a client', { grant: vouching, issuer: ISSUER }, /needs a client/],
    [
      'an assertion for any issuer',
      { grant: vouching, client: { id: 'a' } },
      /client\.issuer must name the authorization server/,
    ],
    ['a secret for any issuer', { client: { id: 'a', secret: 'b' } }, /client\.issuer must name/],
    ['a key for any issuer', { client: { id: 'a', privateKey: { key } } }, /client\.issuer must name/],
    ['its own token without a client', { grant: 'client_credentials' }, /needs a client with a secret/],
    [
      'its own token without a secret',
      { grant: 'client_credentials', client: { id: 'a' } },
      /needs a client with a secret/,
    ],
    ['something else', { tokens: {} }, /^oauth has no option "tokens"/],
    ['metadata over http', { clientMetadataUrl: 'http://desk.example/c' }, /must be an https URL/],
    ['metadata without a path', { clientMetadataUrl: 'https://desk.example/' }, /must be an https URL/],
    [
      'metadata that only contain a URL',
      { clientMetadataUrl: 'a https://desk.example/c' },
      /must be an https/,
    ],
  ])('H4 T30 must not be %s', (_what, options, text) => {
    const failing = () => oauth(options as OAuthOptions)
    expect(failing).toThrow(TypeError)
    expect(failing).toThrow(text)
  })

  it.each<[string, OAuthOptions]>([
    ['nothing', {}],
    ['an assertion for an issuer', { grant: vouching, client: { id: 'a' }, issuer: ISSUER }],
    ['a client without a secret', { client: { id: 'a' } }],
    ['a secret for an issuer', { client: { id: 'a', secret: 'b' }, issuer: ISSUER }],
    ['a secret of a client that names its issuer', { client: ROBOT }],
    [
      'its own token with a key',
      { grant: 'client_credentials', client: { id: 'a', privateKey: { key }, issuer: ISSUER } },
    ],
    ['metadata at a path', { clientMetadataUrl: 'https://desk.example/c' }],
  ])('may be %s', (_what, options) => {
    expect(() => oauth(options)).not.toThrow()
  })

  it('H4 T30 are for servers to which a token may be sent', () => {
    const { auth } = open()
    expect(() => auth.open(new URL('http://mcp.example.com/mcp'))).toThrow(
      'A token may be sent over https only, not to http://mcp.example.com',
    )
    expect(() => auth.open(new URL('http://localhost:3000/mcp'))).not.toThrow()
  })

  it('are for every server; each has one login', () => {
    const { auth, requests } = open()
    expect(auth.open(new URL(`${SERVER}#a`))).toBe(requests)
    expect(auth.open(new URL(`${SERVER}/other`))).not.toBe(requests)
  })
})

describe('a login', () => {
  it('H4 is stored as it is, with nothing of the login itself', async () => {
    const { logIn, stored, credential, links, sent } = open()
    expect(await credential()).toBeUndefined()
    await logIn()
    expect(stored()).toStrictEqual({
      version: 1,
      server: SERVER,
      resource: SERVER,
      issuer: ISSUER,
      client: { id: 'registered', redirectUri: REDIRECT },
      scopes: [],
      tokens: { accessToken: 'access-1', refreshToken: 'refresh-1', expiresAt: NOW + 60_000 },
    })
    expect(await credential()).toEqual({ token: 'access-1', headers: { Authorization: 'Bearer access-1' } })
    expect(links).toHaveLength(1)
    const registered = JSON.parse(sent.find(({ url }) => url.endsWith('/register'))?.body ?? '')
    expect(registered).toMatchObject({ client_name: 'Rondo' })
  })

  it('names the person, also after a refresh that names nobody', async () => {
    const seconds = Math.floor(Date.now() / 1_000)
    const claims = { iss: ISSUER, aud: 'registered', sub: 'alice', iat: seconds, exp: seconds + 60 }
    const id_token = `${part({ alg: 'RS256' })}.${part(claims)}.c2ln`
    const { logIn, refuse, accept, stored } = open({}, { tokens: [{ id_token }] })
    await logIn()
    expect(stored()).toMatchObject({ user: 'alice' })
    expect(JSON.stringify(stored())).not.toContain(id_token)
    accept('access-1')
    await refuse('access-1')
    expect(stored()).toMatchObject({ user: 'alice', tokens: { accessToken: 'access-2' } })
  })

  it('names the person as the last refresh does', async () => {
    const seconds = Math.floor(Date.now() / 1_000)
    const claims = { iss: ISSUER, aud: 'known', sub: 'alice', iat: seconds, exp: seconds + 60, name: 'Ada' }
    const id_token = `${part({ alg: 'RS256' })}.${part(claims)}.c2ln`
    const { refuse, stored } = open({}, { stored: { ...LOGIN, user: 'alice' }, tokens: [{ id_token }] })
    await refuse('old')
    expect(stored()).toMatchObject({ user: 'Ada', tokens: { accessToken: 'access-1' } })
  })

  it('is read from the store once, and used as long as it is valid', async () => {
    const loads: string[] = []
    const store = memoryTokenStore()
    const { load } = store
    const { credential, refuse, auth, clock } = open(
      {
        store: {
          ...store,
          load(key) {
            loads.push(key)
            return load(key)
          },
        },
      },
      { store, stored: LOGIN },
    )
    expect((await credential())?.token).toBe('old')
    clock.now += 49_999
    expect((await credential())?.token).toBe('old')
    expect(loads).toEqual([SERVER])
    await refuse('old', more('write'))
    expect((await credential())?.token).toBe('access-1')
    expect(loads).toEqual([SERVER])
    await auth.logout(SERVER)
    expect(await credential()).toBeUndefined()
    expect(loads).toEqual([SERVER, SERVER])
  })

  it('H4 T30 of another server is not used, wherever the store has it', async () => {
    const { credential } = open({}, { stored: { ...LOGIN, server: `${SERVER}/other` } })
    expect(await credential()).toBeUndefined()
  })

  it('works with a store that has no locks', async () => {
    const { exclusively: _, ...store } = memoryTokenStore()
    const { logIn } = open({ store })
    expect(await logIn()).toBe('access-1')
  })

  it('is closed whether it succeeds or fails', async () => {
    const good = open()
    await good.logIn()
    expect(good.closed()).toBe(1)
    const failing = open({}, { tokens: [bad('invalid_grant')] })
    await expect(failing.logIn()).rejects.toEqual(refusal('PEER_AUTHORIZATION', /invalid_grant/))
    expect(failing.closed()).toBe(1)
    expect(failing.stored()).toBeUndefined()
    const silent = open({
      login: () => ({
        redirectUri: REDIRECT,
        visit: async ({ state }) => `${REDIRECT}?code=the-code&state=${state}`,
      }),
    })
    expect(await silent.logIn()).toBe('access-1')
  })

  it('is not begun where it cannot be completed', async () => {
    const { logIn, links } = open({}, { metadata: { code_challenge_methods_supported: [] } })
    await expect(logIn()).rejects.toEqual(refusal('PEER_AUTHORIZATION', /does not support PKCE/))
    expect(links).toEqual([])
  })

  it('R11 has another client the next time if the authorization server does not know this one', async () => {
    const { logIn, refuse, places, stored } = open(
      {},
      { stored: { ...LOGIN, tokens: undefined }, tokens: [bad('invalid_client')] },
    )
    await expect(refuse(undefined)).rejects.toEqual(refusal('PEER_AUTHORIZATION', /invalid_client/))
    expect(stored()).toBeUndefined()
    await logIn()
    expect(places().filter((one) => one.endsWith('/register'))).toHaveLength(1)
    const other = open({}, { stored: { ...LOGIN, tokens: undefined }, tokens: [bad('access_denied')] })
    await expect(other.refuse(undefined)).rejects.toEqual(refusal('PEER_AUTHORIZATION', /access_denied/))
    expect(other.stored()).toMatchObject({ client: { id: 'known' } })
  })

  it('I2 ends after its limit, or with the last request that waits for it', async () => {
    const never = () => new Promise<string>(() => {})
    const late = open({ loginTimeoutMs: 10 }, { visit: never })
    await expect(late.logIn()).rejects.toEqual(refusal('PEER_LOGIN', /Nobody logged in within 10 ms/))
    expect(late.closed()).toBe(1)

    const { requests, links, closed } = open({}, { visit: never })
    const stops = [new AbortController(), new AbortController()]
    const refused = { status: 401, challenges: [bearer()], sent: undefined }
    const waiting = stops.map((stop) => requests.refused(refused, stop.signal))
    await expect.poll(() => links).toHaveLength(1)
    stops[0]?.abort(new Error('first'))
    await expect(waiting[0]).rejects.toThrow('first')
    expect(links[0]?.signal.aborted).toBe(false)
    stops[1]?.abort(new Error('second'))
    await expect(waiting[1]).rejects.toThrow('second')
    expect(links[0]?.signal.reason).toEqual(refusal('PEER_LOGIN', /Nobody waits for the login any more/))
    await expect.poll(closed).toBe(1)
  })

  it('fails with the error of whoever shows the link', async () => {
    const { logIn } = open({}, { visit: () => Promise.reject(new Error('no browser')) })
    await expect(logIn()).rejects.toThrow('no browser')
  })

  it('is one for all requests that wait, and fails for all of them', async () => {
    const { refuse, links } = open()
    expect(await Promise.all([1, 2, 3].map(() => refuse(undefined)))).toEqual([true, true, true])
    expect(links).toHaveLength(1)
    const failing = open({}, { tokens: [bad('access_denied')] })
    const results = await Promise.allSettled([1, 2, 3].map(() => failing.refuse(undefined)))
    expect(results.map(({ status }) => status)).toEqual(['rejected', 'rejected', 'rejected'])
    expect(failing.links).toHaveLength(1)
    expect(await failing.logIn()).toBe('access-2')
  })

  it('is not repeated for a request that was sent before it', async () => {
    const { logIn, refuse, sent } = open()
    await logIn()
    const before = sent.length
    expect(await refuse(undefined)).toBe(true)
    expect(await refuse('older')).toBe(true)
    expect(sent).toHaveLength(before)
  })

  it.each([
    [{}, /requires a login$/, []],
    [{ scope: 'read write' }, /requires a login with the scope read write$/, ['read', 'write']],
  ])('H4 is asked of the caller where nobody can log in: %j', async (params, text, scopes) => {
    const { refuse, links } = open({ login: undefined })
    const failed = await refuse(undefined, { challenges: [bearer(params)] }).catch((error: unknown) => error)
    expect(failed).toEqual(refusal('PEER_LOGIN', text, { server: SERVER, scopes }))
    expect(String(failed)).not.toContain('ended')
    expect(links).toEqual([])
  })
})

describe('the authorization server', () => {
  const several = { protection: { authorization_servers: [OTHER, ISSUER] } }

  it.each<[string, OAuthOptions, World, string]>([
    ['the first that the server names', {}, several, OTHER],
    ['the one that the caller names', { issuer: ISSUER }, several, ISSUER],
    ['the one that the client names', { client: ROBOT }, several, ISSUER],
    ['the one that the caller names, with a slash', { issuer: `${ISSUER}/` }, several, ISSUER],
    ['the one of an earlier login', {}, { ...several, stored: { ...LOGIN, tokens: undefined } }, ISSUER],
  ])('H4 T30 is %s', async (_what, options, world, issuer) => {
    const { refuse, asked, links } = open(options, world)
    await refuse(undefined)
    expect(asked()).toEqual([`${issuer}/token authorization_code`])
    expect(links[0]?.issuer).toBe(issuer)
  })

  it('H4 is the one of the login if the server names others too: the login is refreshed there', async () => {
    const { refuse, asked } = open({}, { ...several, stored: LOGIN })
    expect(await refuse('old')).toBe(true)
    expect(asked()).toEqual([REFRESH])
  })

  it('H4 T30 is no other than the one that the caller names', async () => {
    const { logIn, asked } = open({ issuer: 'https://third.example.com' }, several)
    await expect(logIn()).rejects.toEqual(
      refusal(
        'PEER_AUTHORIZATION',
        /mcp\.example\.com does not accept tokens of https:\/\/third\.example\.com; it names https:\/\/other\.example\.com, https:\/\/id/,
      ),
    )
    expect(asked()).toEqual([])
  })

  const inside = 'https://10.0.0.1'
  it.each<[string, OAuthOptions, Partial<StoredLogin> | undefined, boolean]>([
    ['of whom nobody knew', {}, undefined, false],
    ['that the caller names', { issuer: inside }, undefined, true],
    ['that the client names', { client: { id: 'desk', issuer: inside } }, undefined, true],
    ['where somebody has logged in before', {}, { issuer: inside, tokens: undefined }, true],
    ['unlike the one where somebody has logged in before', {}, { tokens: undefined }, false],
  ])('H4 T30 may be inside, if it is one %s', async (_what, options, login, isAllowed) => {
    const protection = { authorization_servers: [inside] }
    const { refuse, links } = open(options, { protection, ...(login && { stored: { ...LOGIN, ...login } }) })
    if (isAllowed) expect(await refuse(undefined)).toBe(true)
    else await expect(refuse(undefined)).rejects.toThrow(/private address/)
    expect(links).toHaveLength(isAllowed ? 1 : 0)
  })

  it('H4 T30 gets nothing of a login at another one that the server named before', async () => {
    const { logIn, refuse, accept, world, asked, forms, stored } = open()
    await logIn({ scope: 'secret-scope' })
    accept('access-1')
    world.protection = { authorization_servers: [OTHER] }
    expect(await refuse('access-1')).toBe(true)
    expect(asked()).toEqual([CODE, `${OTHER}/token authorization_code`])
    const text = JSON.stringify(forms()[1])
    for (const secret of ['access-1', 'refresh-1', 'secret-scope']) expect(text).not.toContain(secret)
    expect(stored()).toMatchObject({ issuer: OTHER, scopes: [], tokens: { accessToken: 'access-2' } })
  })

  it('has its metadata read once', async () => {
    const { logIn, accept, refuse, auth, places } = open()
    await logIn()
    accept('access-1')
    await refuse('access-1')
    await auth.logout(SERVER)
    const metadata = `${ISSUER}/.well-known/oauth-authorization-server`
    expect(places().filter((one) => one === metadata)).toHaveLength(1)
  })

  it('is the server itself where neither has metadata, for a refresh in another process too', async () => {
    const bare = { protection: undefined, metadata: undefined }
    const first = open({}, bare)
    expect(await first.logIn()).toBe('access-1')
    expect(first.asked()).toEqual([`${ORIGIN}/token authorization_code`])
    const second = open({}, { ...bare, store: first.store })
    await second.refuse('access-1')
    expect(second.asked()).toEqual([`${ORIGIN}/token refresh_token`])
  })

  it('H4 T30 has no endpoints that it does not publish', async () => {
    const { refuse, asked } = open({}, { stored: LOGIN, metadata: undefined })
    await expect(refuse('old')).rejects.toThrow(/publishes no metadata/)
    const named = open({}, { metadata: undefined })
    await expect(named.refuse(undefined)).rejects.toThrow(/publishes no metadata/)
    expect([asked(), named.asked()]).toEqual([[], []])
  })
})

describe('the scopes of a login', () => {
  it.each<[string, OAuthOptions, World, string | undefined, string[]]>([
    ['those of the challenge', {}, { protection: { scopes_supported: ['all'] } }, 'read', ['read']],
    ['all that the server supports', {}, { protection: { scopes_supported: ['all'] } }, undefined, ['all']],
    [
      'those of the caller',
      { scopes: ['own'] },
      { protection: { scopes_supported: ['all'] } },
      undefined,
      ['own'],
    ],
    ['those of both', { scopes: ['own', 'read'] }, {}, 'read', ['read', 'own']],
    [
      'those of an earlier login',
      {},
      { stored: { ...LOGIN, tokens: undefined } },
      'write read',
      ['read', 'write'],
    ],
    [
      'what yields a refresh token',
      {},
      { metadata: { scopes_supported: ['offline_access'] } },
      'read',
      ['read', 'offline_access'],
    ],
    ['nothing that is not offered', {}, { metadata: { scopes_supported: ['read'] } }, 'read', ['read']],
    [
      'nothing that is not wanted',
      { offlineAccess: false },
      { metadata: { scopes_supported: ['offline_access'] } },
      'read',
      ['read'],
    ],
    [
      'nothing for a person where nobody logs in',
      { grant: 'client_credentials', client: ROBOT },
      { metadata: { scopes_supported: ['offline_access'] } },
      'read',
      ['read'],
    ],
  ])('H4 are %s', async (_what, options, world, scope, scopes) => {
    const { logIn, stored, forms, links } = open(options, world)
    await logIn(scope === undefined ? {} : { scope })
    expect(stored()?.scopes).toEqual(scopes)
    const asked = links[0]?.url.searchParams.get('scope') ?? forms()[0]?.scope
    expect(asked).toBe(scopes.join(' '))
  })

  it('H4 come from challenges about tokens only', async () => {
    const { refuse, stored } = open()
    const challenges = [
      { scheme: 'Basic', params: { scope: 'basic' } },
      { scheme: 'DPoP', params: { scope: 'proof' } },
      { scheme: 'bearer', params: { scope: 'read' } },
    ]
    await refuse(undefined, { challenges })
    expect(stored()?.scopes).toEqual(['proof', 'read'])
  })

  it.each<[string, Partial<Refusal>]>([
    ['is about something else', { challenges: [bearer({ error: 'access_denied', scope: 'write' })] }],
    ['names no scope', { challenges: [bearer({ error: 'insufficient_scope' })] }],
    ['has no challenge', { challenges: [] }],
    [
      'is for another scheme',
      { challenges: [{ scheme: 'Basic', params: { error: 'insufficient_scope', scope: 'write' } }] },
    ],
  ])('H4 do not change with a 403 that %s', async (_what, changes) => {
    const { refuse, sent } = open({}, { stored: LOGIN })
    expect(await refuse('old', { status: 403, ...changes })).toBe(false)
    expect(sent).toEqual([])
  })

  it('H4 grow by those of a 403, and are not requested twice in vain', async () => {
    const { refuse, asked, links, stored } = open({}, { stored: LOGIN })
    expect(await refuse('old', more('write read'))).toBe(true)
    expect(links[0]?.scopes).toEqual(['read', 'write'])
    expect(stored()).toMatchObject({ scopes: ['read', 'write'], tokens: { accessToken: 'access-1' } })
    await expect(refuse('access-1', more('write read'))).rejects.toEqual(
      refusal('PEER_LOGIN', /requires the scope write read, which was requested already/, {
        scopes: ['write', 'read'],
      }),
    )
    expect(asked()).toEqual([CODE])
  })

  it('H4 begin with those of a 403 where nobody has logged in', async () => {
    const { refuse, stored } = open()
    expect(await refuse(undefined, more('write'))).toBe(true)
    expect(stored()).toMatchObject({ scopes: ['write'], tokens: { accessToken: 'access-1' } })
  })

  it('H4 are asked of the caller where nobody can log in, who has not been logged out', async () => {
    const { refuse, stored } = open({ login: undefined }, { stored: LOGIN })
    await expect(refuse('old', more('write'))).rejects.toEqual(
      refusal('PEER_LOGIN', /\] https:\/\/mcp\.example\.com\/mcp requires a login with the scope write$/),
    )
    expect(stored()).toEqual(LOGIN)
  })
})

describe('T31 a refresh', () => {
  it('H4 precedes the end of a token by ten seconds', async () => {
    const { clock, credential, asked, forms, stored, links } = open({}, { stored: LOGIN })
    clock.now += 49_999
    expect((await credential())?.token).toBe('old')
    clock.now += 1
    expect((await credential())?.token).toBe('access-1')
    expect(asked()).toEqual([REFRESH])
    expect(forms()[0]).toEqual({
      grant_type: 'refresh_token',
      client_id: 'known',
      refresh_token: 'old-refresh',
      resource: SERVER,
    })
    expect(stored()).toStrictEqual({
      ...LOGIN,
      tokens: { accessToken: 'access-1', refreshToken: 'refresh-1', expiresAt: NOW + 110_000 },
    })
    expect(links).toEqual([])
  })

  it('is impossible without a refresh token: the token is sent until the server refuses it', async () => {
    const stored = { ...LOGIN, tokens: { accessToken: 'old', expiresAt: NOW } }
    const { credential, refuse, sent, links, stored: now } = open({}, { stored })
    expect((await credential())?.token).toBe('old')
    expect(sent).toEqual([])
    expect(await refuse('old')).toBe(true)
    expect(links).toHaveLength(1)
    expect(now()).toMatchObject({ tokens: { accessToken: 'access-1' } })
  })

  it('follows a refusal, again after its token was accepted, but not at once', async () => {
    const { refuse, accept, asked, links } = open({}, { stored: LOGIN })
    expect(await refuse('old')).toBe(true)
    accept('access-1')
    expect(await refuse('access-1')).toBe(true)
    expect([asked(), links.length]).toEqual([[REFRESH, REFRESH], 0])
    accept('access-1')
    expect(await refuse('access-2')).toBe(true)
    expect([asked().length, links.length]).toEqual([3, 1])
  })

  it('H4 does not follow the refusal of a token that was just issued to a person', async () => {
    const { refuse, accept, asked, clock } = open({}, { stored: LOGIN })
    accept('old')
    await refuse('old', more('write'))
    accept('old')
    await expect(refuse('access-1')).rejects.toEqual(
      refusal(
        'PEER_AUTHORIZATION',
        /mcp\.example\.com refuses the token that https:\/\/id\.example\.com has just issued for https:\/\/mcp/,
      ),
    )
    expect(asked()).toEqual([CODE])
    clock.now += 60_000
    expect(await refuse('access-1')).toBe(true)
    expect(asked()).toEqual([CODE, REFRESH])
    const proven = open()
    await proven.logIn()
    proven.accept('access-1')
    expect(await proven.refuse('access-1')).toBe(true)
    expect(proven.asked()).toEqual([CODE, REFRESH])
  })

  it('is not sent if another process has refreshed the login', async () => {
    const theirs = { ...LOGIN, tokens: { accessToken: 'theirs', refreshToken: 'r', expiresAt: NOW + 60_000 } }
    const { credential, refuse, store, sent, clock, forms } = open({}, { stored: LOGIN })
    await credential()
    await store.save(SERVER, theirs)
    expect(await refuse('old')).toBe(true)
    expect((await credential())?.token).toBe('theirs')
    expect(sent.filter(({ url }) => url.endsWith('/token'))).toEqual([])
    // It has, but the other one has expired meanwhile.
    clock.now += 60_000
    await store.save(SERVER, { ...theirs, tokens: { ...theirs.tokens, accessToken: 'stale' } })
    await credential()
    expect(forms()).toMatchObject([{ refresh_token: 'r' }])
  })

  it('sees what other processes store after its own token was saved', async () => {
    const { refuse, accept, credential, store, asked } = open({}, { stored: LOGIN })
    await refuse('old')
    accept('access-1')
    const theirs = { accessToken: 'theirs', refreshToken: 'r', expiresAt: NOW + 60_000 }
    await store.save(SERVER, { ...LOGIN, tokens: theirs })
    await refuse('access-1')
    expect((await credential())?.token).toBe('theirs')
    expect(asked()).toEqual([REFRESH])
  })

  it('is not sent for a login that another process has ended: somebody logs in again', async () => {
    const { credential, refuse, store, asked } = open({}, { stored: LOGIN })
    await credential()
    await store.remove(SERVER)
    expect(await refuse('old')).toBe(true)
    expect(asked()).toEqual([CODE])
    expect((await credential())?.token).toBe('access-1')
  })

  it('R11 is not lost if the store fails', async () => {
    const kept = memoryTokenStore()
    await kept.save(SERVER, LOGIN)
    let isBroken = true
    const store = {
      ...kept,
      save(key: string, login: StoredLogin) {
        if (isBroken) throw new Error('disk full')
        return kept.save(key, login)
      },
    }
    const { refuse, accept, credential, forms } = open({ store }, { store: kept })
    await expect(refuse('old')).rejects.toThrow('disk full')
    expect((await credential())?.token).toBe('access-1')
    accept('access-1')
    isBroken = false
    expect(await refuse('access-1')).toBe(true)
    expect(forms().map((form) => form.refresh_token)).toEqual(['old-refresh', 'refresh-1'])
    expect(await kept.load(SERVER)).toMatchObject({ tokens: { accessToken: 'access-2' } })
  })

  it.each([
    ['invalid_grant', 'known', 0],
    ['invalid_client', 'registered', 1],
    ['unauthorized_client', 'registered', 1],
  ])('that is refused with %s ends the login, whose next client is %s', async (error, client, times) => {
    const { refuse, credential, stored, links, places, asked } = open(
      {},
      { stored: LOGIN, tokens: [bad(error)] },
    )
    expect(await refuse('old')).toBe(true)
    expect(asked()).toEqual([REFRESH, CODE])
    expect(links).toHaveLength(1)
    expect(places().filter((one) => one.endsWith('/register'))).toHaveLength(times)
    expect(stored()).toMatchObject({ client: { id: client }, tokens: { accessToken: 'access-2' } })
    expect((await credential())?.token).toBe('access-2')
  })

  it('whose token is of no more use leaves none behind', async () => {
    const { clock, credential, refuse, stored } = open(
      { login: undefined },
      { stored: LOGIN, tokens: [bad('invalid_grant')] },
    )
    clock.now += 60_000
    expect(await credential()).toBeUndefined()
    const { tokens: _, ...rest } = LOGIN
    expect(stored()).toStrictEqual(rest)
    await expect(refuse(undefined)).rejects.toEqual(
      refusal('PEER_LOGIN', /\] The login has ended: https:\/\/mcp\.example\.com\/mcp requires a login$/),
    )
  })

  it('R11 that fails in another way keeps the login', async () => {
    const { refuse, stored, asked, links } = open(
      {},
      { stored: LOGIN, tokens: [bad('temporarily_unavailable')] },
    )
    await expect(refuse('old')).rejects.toEqual(refusal('PEER_AUTHORIZATION', /temporarily_unavailable/))
    expect(stored()).toEqual(LOGIN)
    expect([asked(), links]).toEqual([[REFRESH], []])
  })

  it('R11 whose response is lost is sent again once', async () => {
    const lost = () => new TypeError('fetch failed')
    const once = open({}, { stored: LOGIN, tokens: [lost()] })
    expect(await once.refuse('old')).toBe(true)
    expect(once.forms().map((form) => form.refresh_token)).toEqual(['old-refresh', 'old-refresh'])
    const twice = open({}, { stored: LOGIN, tokens: [lost(), lost()] })
    await expect(twice.refuse('old')).rejects.toEqual(
      refusal('PEER_UNREACHABLE', /id\.example\.com cannot be reached/),
    )
    expect(twice.asked()).toHaveLength(2)
    expect(twice.stored()).toEqual(LOGIN)
  })

  it('goes on if the request that wanted it is given up', async () => {
    let release = (_: object): void => {}
    const held = new Promise<object>((resolve) => {
      release = resolve
    })
    const { requests, asked, stored } = open({}, { stored: LOGIN, tokens: [held] })
    const stop = new AbortController()
    const refused = { status: 401, challenges: [bearer()], sent: { token: 'old', headers: {} } }
    const waiting = requests.refused(refused, stop.signal)
    await expect.poll(asked).toEqual([REFRESH])
    stop.abort(new Error('given up'))
    await expect(waiting).rejects.toThrow('given up')
    release({})
    await expect.poll(stored).toMatchObject({ tokens: { accessToken: 'access-1' } })
  })
})

describe('a token that is bound to a key', () => {
  const BINDS = { metadata: { dpop_signing_alg_values_supported: ['ES256'] } }

  it.each<[string, OAuthOptions, World, boolean]>([
    ['the caller wants it', { dpop: true }, BINDS, true],
    [
      'the server requires it',
      {},
      { ...BINDS, protection: { dpop_bound_access_tokens_required: true } },
      true,
    ],
    [
      'the server requires it, even against the caller',
      { dpop: false },
      { ...BINDS, protection: { dpop_bound_access_tokens_required: true } },
      true,
    ],
    ['nobody wants it', {}, BINDS, false],
    ['the caller does not want it', { dpop: false }, BINDS, false],
  ])('H5 is obtained, or not, if %s', async (_what, options, world, isBound) => {
    const { refuse, credential, stored } = open(options, world)
    await refuse(undefined)
    const sent = await credential()
    expect(sent?.headers).toMatchObject({ Authorization: `${isBound ? 'DPoP' : 'Bearer'} access-1` })
    expect(proofOf(sent)).toMatchObject(isBound ? { htm: 'POST', htu: SERVER } : {})
    expect(stored()?.tokens?.keyThumbprint === undefined).toBe(!isBound)
    expect(proofOf(await credential('GET')).htm).toBe(isBound ? 'GET' : undefined)
  })

  it('H5 is not obtained where nobody binds tokens', async () => {
    const { refuse, asked } = open({ dpop: true })
    await expect(refuse(undefined)).rejects.toEqual(
      refusal('PEER_AUTHORIZATION', /id\.example\.com does not bind tokens to keys/),
    )
    expect(asked()).toEqual([])
  })

  it('H5 is refreshed and used by another process that has the same key, and by no other', async () => {
    const dpop = await generateKeyPair('ES256')
    const first = open({ dpop }, BINDS)
    await first.refuse(undefined)
    expect(first.stored()?.tokens?.keyThumbprint).toBe((await createBinding(dpop)).thumbprint)
    const second = open({ dpop }, { ...BINDS, store: first.store })
    expect((await second.credential())?.token).toBe('access-1')
    await second.refuse('access-1')
    expect(second.asked()).toEqual([REFRESH])
    expect(second.sent.at(-1)?.headers.get('dpop')).toMatch(/^[\w-]+\.[\w-]+\.[\w-]+$/)
    expect((await second.credential())?.headers.Authorization).toBe('DPoP access-1')
    for (const options of [{ dpop: true }, {}]) {
      const third = open(options, { ...BINDS, store: first.store })
      expect(await third.credential()).toBeUndefined()
      await third.refuse(undefined)
      expect(third.asked()).toEqual([CODE])
      await first.store.save(SERVER, second.stored() as StoredLogin)
    }
  })

  it.each<[OAuthOptions, boolean]>([
    [{ dpop: true }, false],
    [{ dpop: false }, true],
    [{}, true],
  ])('H5 replaces one that is not, if the caller wants that: %j', async (options, isUsed) => {
    const { credential } = open(options, { ...BINDS, stored: LOGIN })
    expect((await credential())?.token).toBe(isUsed ? 'old' : undefined)
  })

  it('H5 that replaces another is for the same client and the same scopes', async () => {
    const { refuse, stored, places } = open({ dpop: true }, { ...BINDS, stored: LOGIN })
    await refuse(undefined, { challenges: [bearer({ scope: 'write' })] })
    expect(stored()).toMatchObject({
      client: { id: 'known' },
      scopes: ['read', 'write'],
      tokens: { accessToken: 'access-1', keyThumbprint: expect.any(String) },
    })
    expect(places().filter((one) => one.endsWith('/register'))).toEqual([])
  })

  it('H5 is presented with the nonce of the response before it', async () => {
    const { refuse, accept, credential } = open({ dpop: true }, BINDS)
    accept('none', 'too early')
    await refuse(undefined)
    expect(proofOf(await credential())).not.toHaveProperty('nonce')
    accept('access-1', 'first')
    await settled()
    await expect.poll(async () => proofOf(await credential()).nonce).toBe('first')
    accept('access-1')
    await settled()
    expect(proofOf(await credential()).nonce).toBe('first')
  })

  const asksForNonce = {
    challenges: [{ scheme: 'DPoP', params: { error: 'use_dpop_nonce' } }],
    nonce: 'wanted',
  }

  it('H5 is presented again with the nonce that a refusal names, and with nothing else', async () => {
    const { refuse, credential, sent } = open({ dpop: true }, BINDS)
    await refuse(undefined)
    const before = sent.length
    expect(await refuse(await credential(), asksForNonce)).toBe(true)
    expect(sent).toHaveLength(before)
    expect(proofOf(await credential())).toMatchObject({ nonce: 'wanted' })
    const challenges = [bearer(), ...asksForNonce.challenges]
    expect(await refuse(await credential(), { challenges, nonce: 'other' })).toBe(true)
    expect(sent).toHaveLength(before)
    expect(proofOf(await credential())).toMatchObject({ nonce: 'other' })
  })

  it.each<[string, Partial<Refusal>]>([
    ['names no nonce', { ...asksForNonce, nonce: undefined }],
    [
      'is about something else',
      { ...asksForNonce, challenges: [{ scheme: 'DPoP', params: { error: 'invalid' } }] },
    ],
    ['is for another scheme', { ...asksForNonce, challenges: [bearer({ error: 'use_dpop_nonce' })] }],
  ])('H5 is replaced after a refusal that %s', async (_what, refused) => {
    const { refuse, credential, accept, asked } = open({ dpop: true }, BINDS)
    await refuse(undefined)
    accept('access-1')
    await refuse(await credential(), refused)
    expect(asked()).toEqual([CODE, REFRESH])
  })

  it('H5 is missing where a refusal names a nonce for a proof that nobody sent', async () => {
    const bound = open({ dpop: true }, { ...BINDS, stored: LOGIN })
    await bound.refuse(undefined, asksForNonce)
    expect(bound.asked()).toEqual([CODE])
    await bound.auth.logout(SERVER)
    await bound.refuse(undefined, asksForNonce)
    expect(bound.asked()).toEqual([CODE, CODE])
    const plain = open({}, { ...BINDS, stored: LOGIN })
    await plain.refuse('old', asksForNonce)
    expect(plain.asked()).toEqual([REFRESH])
  })
})

describe('a client that acts for itself', () => {
  const robot: OAuthOptions = { grant: 'client_credentials', client: ROBOT }
  const noRefresh = { refresh_token: undefined }

  it('H4 obtains a token with its secret, and another when that ends', async () => {
    const { refuse, credential, clock, asked, links, stored, accept } = open(robot, {
      tokens: [noRefresh, noRefresh, noRefresh],
    })
    await refuse(undefined, { challenges: [bearer({ scope: 'read' })] })
    const login = {
      version: 1,
      server: SERVER,
      resource: SERVER,
      issuer: ISSUER,
      client: { id: 'robot', secret: 'the-secret' },
      grant: 'client_credentials',
      scopes: ['read'],
      tokens: { accessToken: 'access-1', expiresAt: NOW + 60_000 },
    }
    expect(stored()).toStrictEqual(login)
    clock.now += 50_000
    expect((await credential())?.token).toBe('access-2')
    expect(stored()).toStrictEqual({
      ...login,
      tokens: { accessToken: 'access-2', expiresAt: NOW + 110_000 },
    })
    await expect(refuse('access-2')).rejects.toEqual(refusal('PEER_AUTHORIZATION', /has just issued/))
    accept('access-2')
    expect(await refuse('access-2')).toBe(true)
    expect((await credential())?.token).toBe('access-3')
    expect([asked(), links]).toEqual([[CLIENT, CLIENT, CLIENT], []])
  })

  it('H4 does so in another process that has only the store, unless somebody can log in there', async () => {
    const login: StoredLogin = {
      ...LOGIN,
      client: { id: 'robot', secret: 'the-secret' },
      grant: 'client_credentials',
      tokens: { accessToken: 'old', expiresAt: NOW },
    }
    const alone = open({ login: undefined }, { stored: login, tokens: [noRefresh] })
    expect((await alone.credential())?.token).toBe('access-1')
    expect(alone.asked()).toEqual([CLIENT])
    const attended = open({}, { stored: login })
    await attended.refuse('old')
    expect(attended.asked()).toEqual([CODE])
    const keyed = open({ login: undefined }, { stored: { ...login, client: { id: 'robot' } } })
    expect((await keyed.credential())?.token).toBe('old')
    await expect(keyed.refuse('old')).rejects.toEqual(refusal('PEER_LOGIN', /requires a login/))
    expect(keyed.asked()).toEqual([])
    const person = open({ login: undefined }, { stored: { ...login, grant: undefined } })
    await expect(person.refuse('old')).rejects.toEqual(refusal('PEER_LOGIN', /requires a login/))
    expect(person.asked()).toEqual([])
  })

  it('H4 obtains more scopes in another process that has only the store', async () => {
    const { refuse, asked, stored } = open(
      { login: undefined },
      {
        stored: { ...LOGIN, client: { id: 'robot', secret: 'the-secret' }, grant: 'client_credentials' },
        tokens: [noRefresh],
      },
    )
    expect(await refuse('old', more('write'))).toBe(true)
    expect(asked()).toEqual([CLIENT])
    expect(stored()).toMatchObject({ grant: 'client_credentials', scopes: ['read', 'write'] })
  })

  it('H4 needs nobody to log in, even where somebody could', async () => {
    const { refuse, asked, links } = open(robot)
    await refuse(undefined)
    expect([asked(), links]).toEqual([[CLIENT], []])
  })

  it('H4 T30 sends its secret to no authorization server of an earlier login', async () => {
    const protection = { authorization_servers: [OTHER, ISSUER] }
    const earlier = { ...LOGIN, issuer: OTHER, tokens: { accessToken: 'old', expiresAt: NOW } }
    const { issuer: _, ...client } = ROBOT
    const vouching: AssertionGrant = { kind: 'jwt-bearer', assertion: async () => 'the-assertion' }
    for (const options of [
      { ...robot, client, issuer: ISSUER },
      robot,
      { client: { id: 'desk' }, issuer: ISSUER, grant: vouching },
    ]) {
      for (const grant of [undefined, 'client_credentials'] as const) {
        const { refuse, credential, places } = open(options, {
          protection,
          stored: { ...earlier, ...(grant && { grant }) },
        })
        await credential()
        await refuse('old')
        expect(places().filter((one) => one.endsWith('/token'))).toEqual([`${ISSUER}/token`])
        expect((await credential())?.token).toBe('access-1')
      }
    }
  })
})

describe('an assertion', () => {
  /** Vouches for the caller; without a person only as long as `isOver` is false. */
  function vouch() {
    const asked: AssertionRequest[] = []
    const state = { isOver: false, failure: undefined as Error | undefined, refreshToken: 'first' }
    const grant: AssertionGrant = {
      kind: 'jwt-bearer',
      async assertion(request) {
        asked.push(request)
        if (state.failure) throw state.failure
        if (state.isOver && !request.attended) throw new RondoError('PEER_LOGIN', 'The login has ended')
        return 'the-assertion'
      },
      stored: () => ({
        kind: 'enterprise',
        issuer: OTHER,
        client: { id: 'a' },
        refreshToken: state.refreshToken,
      }),
    }
    const client = { id: 'desk', issuer: ISSUER }
    return { asked, state, options: { grant, client } satisfies OAuthOptions }
  }
  const noRefresh = { refresh_token: undefined }

  it('H7 is requested for each token, and its origin is stored', async () => {
    const { asked: requested, options, state } = vouch()
    const { refuse, credential, clock, asked, forms, stored, links } = open(options, {
      tokens: [noRefresh, noRefresh],
    })
    await refuse(undefined, { challenges: [bearer({ scope: 'read' })] })
    expect(requested[0]).toMatchObject({
      issuer: ISSUER,
      client: 'desk',
      resource: SERVER,
      scopes: ['read'],
      attended: false,
      stored: undefined,
    })
    expect(requested[0]?.now()).toBe(NOW)
    expect(requested[0]?.signal.aborted).toBe(true)
    expect(forms()[0]).toMatchObject({ assertion: 'the-assertion', client_id: 'desk', scope: 'read' })
    const grant = { kind: 'enterprise', issuer: OTHER, client: { id: 'a' }, refreshToken: 'first' }
    expect(stored()).toMatchObject({ grant, client: { id: 'desk' } })
    clock.now += 50_000
    state.refreshToken = 'second'
    expect((await credential())?.token).toBe('access-2')
    expect(requested[1]?.stored).toEqual(grant)
    expect(stored()).toMatchObject({ grant: { refreshToken: 'second' }, tokens: { accessToken: 'access-2' } })
    expect([asked(), links]).toEqual([[ASSERTION, ASSERTION], []])
  })

  it('H7 may need a person, who is asked only if a request waits', async () => {
    const { asked: requested, options, state } = vouch()
    state.isOver = true
    const { refuse, accept, clock, credential, stored } = open(options, { tokens: [noRefresh] })
    await refuse(undefined)
    expect(requested.map(({ attended }) => attended)).toEqual([false, true])
    accept('access-1')
    clock.now += 60_000
    expect((await credential())?.token).toBe('access-1')
    expect(requested.map(({ attended }) => attended)).toEqual([false, true, false])
    await refuse('access-1')
    expect(requested.map(({ attended }) => attended)).toEqual([false, true, false, false, false, true])
    expect(stored()).toMatchObject({ tokens: { accessToken: 'access-2' } })
  })

  it('R11 that fails is not requested again, and its new refresh token is stored', async () => {
    const { asked: requested, options, state } = vouch()
    const { refuse, credential, clock, stored } = open(options, { tokens: [noRefresh] })
    await refuse(undefined)
    Object.assign(state, { failure: new RondoError('PEER_UNREACHABLE', 'away'), refreshToken: 'second' })
    clock.now += 60_000
    await expect(credential()).rejects.toThrow('away')
    expect(requested).toHaveLength(2)
    expect(stored()).toMatchObject({ grant: { refreshToken: 'second' }, tokens: { accessToken: 'access-1' } })
    const first = vouch()
    first.state.failure = new RondoError('PEER_UNREACHABLE', 'away')
    const fresh = open(first.options)
    await expect(fresh.refuse(undefined)).rejects.toThrow('away')
    expect(first.asked).toHaveLength(1)
    expect(fresh.stored()).toBeUndefined()
  })

  it.each([undefined, () => undefined])(
    'R11 that fails leaves the login of the store as it is, if nothing new is to be stored',
    async (kept) => {
      const { options, state } = vouch()
      state.failure = new RondoError('PEER_UNREACHABLE', 'away')
      const stored: StoredLogin = { ...LOGIN, grant: { kind: 'workload', env: 'A' } }
      const grant = { ...options.grant, stored: kept }
      const { refuse, stored: now } = open({ ...options, grant }, { stored })
      await expect(refuse('old', more('write'))).rejects.toThrow('away')
      expect(now()).toStrictEqual(stored)
    },
  )

  it('H7 comes from the store in another process, unless somebody can log in there', async () => {
    process.env.RONDO_TEST_OAUTH = 'a.b.c'
    const stored: StoredLogin = {
      ...LOGIN,
      client: { id: 'desk' },
      grant: { kind: 'workload', env: 'RONDO_TEST_OAUTH' },
      tokens: { accessToken: 'old', expiresAt: NOW },
    }
    const alone = open({ login: undefined }, { stored, tokens: [noRefresh] })
    expect((await alone.credential())?.token).toBe('access-1')
    expect(alone.forms()).toMatchObject([{ assertion: 'a.b.c', client_id: 'desk' }])
    const attended = open({}, { stored })
    await attended.refuse('old')
    expect(attended.asked()).toEqual([CODE])
    delete process.env.RONDO_TEST_OAUTH
  })
})

describe('a login without a request', () => {
  it('H4 asks the server which scopes it needs', async () => {
    const { auth, sent, stored } = open({}, { challenge: 'Bearer scope="read"' })
    const login = await auth.login(SERVER)
    expect(login).toEqual(stored())
    expect(login.scopes).toEqual(['read'])
    expect(sent[0]?.url).toBe(SERVER)
    expect(JSON.parse(sent[0]?.body ?? '')).toEqual({
      jsonrpc: '2.0',
      id: 1,
      method: 'server/discover',
      params: {},
    })
    expect(Object.fromEntries(sent[0]?.headers ?? [])).toEqual({
      accept: 'application/json, text/event-stream',
      'content-type': 'application/json',
    })
  })

  it('H4 replaces one that is there, at a server that requires none too', async () => {
    const { auth } = open({}, { challenge: undefined, stored: LOGIN })
    expect(await auth.login(new URL(SERVER))).toMatchObject({
      scopes: ['read'],
      tokens: { accessToken: 'access-1' },
    })
  })

  it('H4 has the scopes that the server names, even with another status than 401', async () => {
    const { auth, stored } = open({}, { status: 403, challenge: 'Bearer scope="read"' })
    await auth.login(SERVER)
    expect(stored()?.scopes).toEqual(['read'])
  })

  it('H4 reads the metadata where the server says it is', async () => {
    const place = `${ORIGIN}/.well-known/oauth-protected-resource/here`
    const { auth, places } = open({}, { challenge: `Bearer resource_metadata="${place}"` })
    await auth.login(SERVER)
    expect(places().filter((one) => one.includes('protected-resource'))).toEqual([place])
  })

  it('follows a refresh that was going on', async () => {
    let release = (_: object): void => {}
    const held = new Promise<object>((resolve) => {
      release = resolve
    })
    const { auth, refuse, asked } = open({}, { stored: LOGIN, tokens: [held] })
    const refreshing = refuse('old')
    await expect.poll(asked).toEqual([REFRESH])
    const logging = auth.login(SERVER)
    release({})
    expect(await refreshing).toBe(true)
    expect(await logging).toMatchObject({ tokens: { accessToken: 'access-2' } })
    expect(asked()).toEqual([REFRESH, CODE])
  })

  it('ends with the signal of its caller', async () => {
    const { auth, links } = open({}, { visit: () => new Promise(() => {}) })
    const stop = new AbortController()
    const logging = auth.login(SERVER, { signal: stop.signal })
    await expect.poll(() => links).toHaveLength(1)
    stop.abort(new Error('enough'))
    await expect(logging).rejects.toThrow('enough')
  })
})

describe('a logout', () => {
  it('H4 revokes the tokens at their authorization server, and forgets the login', async () => {
    const { auth, sent, stored, credential } = open({}, { stored: LOGIN })
    expect(await auth.logout(SERVER)).toBe(true)
    const revoked = sent.filter(({ url }) => url === `${ISSUER}/revoke`)
    expect(revoked.map(({ form }) => form)).toEqual([
      { client_id: 'known', token: 'old-refresh' },
      { client_id: 'known', token: 'old' },
    ])
    expect(stored()).toBeUndefined()
    expect(await credential()).toBeUndefined()
  })

  it('revokes nothing where nobody is logged in', async () => {
    for (const stored of [undefined, { ...LOGIN, tokens: undefined }]) {
      const one = open({}, { stored })
      expect(await one.auth.logout(new URL(SERVER))).toBe(false)
      expect([one.sent, one.stored()]).toEqual([[], undefined])
    }
  })

  it('H4 ends the login of another process that came after an earlier logout', async () => {
    const { auth, sent, store, stored } = open({}, { stored: LOGIN })
    await auth.logout(SERVER)
    await store.save(SERVER, { ...LOGIN, tokens: { accessToken: 'theirs' } })
    expect(await auth.logout(SERVER)).toBe(true)
    expect(sent.at(-1)?.form).toMatchObject({ token: 'theirs' })
    expect(stored()).toBeUndefined()
  })

  it('R11 forgets the login even if the authorization server cannot be reached', async () => {
    const { auth, stored } = open({}, { stored: LOGIN, metadata: undefined })
    await expect(auth.logout(SERVER)).rejects.toThrow(/publishes no metadata/)
    expect(stored()).toBeUndefined()
  })
})

describe('a token that the server should refuse', () => {
  const secretive = { ...LOGIN, client: { id: 'robot', secret: 's' }, scopes: ['read', 'write'] }
  const tokenFor = (stored: StoredLogin | undefined, options: OAuthOptions = {}) => {
    const one = open(options, { stored })
    return { ...one, tokenFor: openLogins(one.options)(new URL(SERVER)).tokenFor }
  }

  it('H4 is for another resource, or has one scope only, and is not stored', async () => {
    const { tokenFor: get, forms, stored } = tokenFor(secretive)
    expect(await get({ resource: OTHER })).toBe('access-1')
    expect(await get({ scope: 'least' })).toBe('access-2')
    expect(forms()).toEqual([
      { grant_type: 'client_credentials', resource: OTHER, scope: 'read write' },
      { grant_type: 'client_credentials', resource: SERVER, scope: 'read' },
    ])
    expect(stored()).toEqual(secretive)
    const tokens: StoredTokens = { accessToken: 'a', granted: ['own', 'two'] }
    const granted = tokenFor({ ...secretive, tokens })
    await granted.tokenFor({ scope: 'least' })
    expect(granted.forms()[0]).toMatchObject({ scope: 'own' })
    const ended = tokenFor({ ...secretive, tokens: undefined })
    await ended.tokenFor({ scope: 'least' })
    expect(ended.forms()[0]).toMatchObject({ scope: 'read' })
  })

  it.each<[string, StoredLogin | undefined, RegExp]>([
    ['without a login', undefined, /only a client with a secret/],
    ['without a secret', LOGIN, /only a client with a secret/],
    ['of one scope', { ...secretive, scopes: ['read'] }, /has only one scope/],
  ])('is not obtained %s', async (_what, stored, text) => {
    const { tokenFor: get, sent } = tokenFor(stored)
    await expect(get({ scope: 'least' })).rejects.toEqual(refusal('PEER_LOGIN', text))
    expect(sent).toEqual([])
  })
})
