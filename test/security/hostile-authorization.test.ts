/**
 * Authorization servers, and servers that name them, that lie: each lie is told to a client that would otherwise log in, and must
 * end before a code or a token is sent. The first test shows that the client logs in where nobody lies.
 */

import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { inspect } from 'node:util'
import { describe, expect, it, onTestFinished } from 'vitest'
import { checkUrl, createSafeFetch } from '../../packages/rondo/src/client/oauth/safe-fetch.ts'
import { connect } from '../../packages/rondo/src/client.ts'
import { memoryTokenStore, type OAuthOptions, oauth } from '../../packages/rondo/src/client-oauth.ts'
import { startAuthorizationServer } from '../support/authorization-server.ts'
import { startProtected } from '../support/login-server.ts'

const CANARY = { access: 'canary-access-71ac', refresh: 'canary-refresh-3e90', code: 'canary-code-b5d2' }

type Answer = (request: IncomingMessage, response: ServerResponse) => void

interface Lies {
  /** Replaces parts of the metadata of the server. */
  readonly resource?: (origin: string) => Record<string, unknown>
  /** Replaces parts of the metadata of the authorization server. */
  readonly metadata?: (origin: string) => Record<string, unknown>
  /** Changes the redirect. */
  readonly redirect?: (query: URLSearchParams) => void
  /** Replaces the response of the token endpoint. */
  readonly token?: Record<string, unknown>
  /** Replaces the response for a path. */
  readonly paths?: Readonly<Record<string, Answer>>
  /** Replaces the challenge. */
  readonly challenge?: string
  /** The server refuses every token with this challenge. */
  readonly refusal?: string
}

function sendJson(response: ServerResponse, value: unknown, status = 200): void {
  response.writeHead(status, { 'Content-Type': 'application/json' }).end(JSON.stringify(value))
}

/** A protected server and its authorization server on one origin, honest but for the lies. */
async function startLiar(lies: Lies) {
  const seen: string[] = []
  let origin = ''
  const metadata = () => ({
    issuer: origin,
    authorization_endpoint: `${origin}/authorize`,
    token_endpoint: `${origin}/token`,
    registration_endpoint: `${origin}/register`,
    code_challenge_methods_supported: ['S256'],
    authorization_response_iss_parameter_supported: true,
    ...lies.metadata?.(origin),
  })
  const http = createServer((request, response) => {
    const path = request.url?.split('?')[0] ?? ''
    seen.push(path)
    const own = lies.paths?.[path]
    if (own !== undefined) return own(request, response)
    switch (path) {
      case '/.well-known/oauth-protected-resource/mcp': {
        const honest = { resource: `${origin}/mcp`, authorization_servers: [origin] }
        return sendJson(response, { ...honest, ...lies.resource?.(origin) })
      }
      case '/.well-known/oauth-authorization-server':
        return sendJson(response, metadata())
      case '/register':
        return sendJson(response, { client_id: 'registered' }, 201)
      case '/token': {
        const honest = { access_token: CANARY.access, refresh_token: CANARY.refresh, token_type: 'Bearer' }
        return sendJson(response, lies.token ?? honest, lies.token?.error === undefined ? 200 : 400)
      }
      case '/mcp': {
        const known = request.headers.authorization === `Bearer ${CANARY.access}`
        if (!known || lies.refusal !== undefined) {
          const challenge = known ? lies.refusal : lies.challenge
          const headers = { 'WWW-Authenticate': challenge ?? 'Bearer' }
          return void response.writeHead(401, headers).end()
        }
        return readBody(request, ({ id }) => sendJson(response, { jsonrpc: '2.0', id, result: DISCOVERY }))
      }
      default:
        return void response.writeHead(404).end()
    }
  })
  await new Promise<void>((done) => http.listen(0, '127.0.0.1', done))
  origin = `http://127.0.0.1:${(http.address() as AddressInfo).port}`
  onTestFinished(() => {
    http.close()
    http.closeAllConnections()
  })
  const login: OAuthOptions['login'] = () => ({
    redirectUri: 'http://127.0.0.1:7777/callback',
    async visit({ state }) {
      seen.push('visit')
      const query = new URLSearchParams({ code: CANARY.code, state, iss: origin })
      lies.redirect?.(query)
      return `http://127.0.0.1:7777/callback?${query}`
    },
  })
  const store = memoryTokenStore()
  const log = async (): Promise<void> => {
    const client = await connect(`${origin}/mcp`, { auth: oauth({ login, store, timeoutMs: 2_000 }) })
    await client.close()
  }
  return { origin, seen, log, store }
}

const DISCOVERY = {
  resultType: 'complete',
  supportedVersions: ['2026-07-28'],
  capabilities: {},
  ttlMs: 0,
  cacheScope: 'private',
}

function readBody(request: IncomingMessage, done: (message: { id: number }) => void): void {
  readText(request, (text) => done(JSON.parse(text)))
}

function readText(request: IncomingMessage, done: (text: string) => void): void {
  let text = ''
  request.setEncoding('utf8')
  request.on('data', (part: string) => {
    text += part
  })
  request.on('end', () => done(text))
}

async function failure(lies: Lies) {
  const liar = await startLiar(lies)
  const error = await liar.log().then(
    () => undefined,
    (thrown: Error & { code?: string }) => thrown,
  )
  return { ...liar, error, text: inspect(error, { depth: 20, showHidden: true }) }
}

const endless: Answer = (_request, response) => {
  response.writeHead(200, { 'Content-Type': 'application/json' })
  const chunk = ' '.repeat(65_536)
  const more = () => {
    while (!response.destroyed && response.write(chunk));
  }
  response.on('drain', more)
  more()
}

const METADATA = '/.well-known/oauth-authorization-server'
const RESOURCE = '/.well-known/oauth-protected-resource/mcp'
const SECRET = 'http://169.254.169.254/latest'
const to =
  (location: string): Answer =>
  (_request, response) =>
    void response.writeHead(302, { Location: location }).end()

describe('T30 T31 a client that logs in', () => {
  it('does so where nobody lies', async () => {
    const { seen, error } = await failure({})
    expect(error).toBeUndefined()
    expect(seen).toEqual(expect.arrayContaining(['visit', '/token']))
  })

  const BEFORE_LOGIN: readonly [string, Lies, RegExp][] = [
    [
      'names another resource',
      { resource: () => ({ resource: 'https://bank.example/mcp' }) },
      /is about https:\/\/bank/,
    ],
    ['names a resource below it', { resource: (at) => ({ resource: `${at}/mcp/admin` }) }, /not about/],
    [
      'names a resource that only begins like it',
      { resource: (at) => ({ resource: `${at}/mc` }) },
      /not about/,
    ],
    [
      'names no authorization server',
      { resource: () => ({ authorization_servers: [] }) },
      /names no authorization/,
    ],
    ['names one that is not a URL', { resource: () => ({ authorization_servers: ['bank'] }) }, /not a URL/],
    ['names one without https', { resource: () => ({ authorization_servers: [SECRET] }) }, /must use https/],
    [
      'has metadata at a place without https',
      { challenge: `Bearer resource_metadata="${SECRET}"` },
      /must use https/,
    ],
    ['redirects its metadata', { paths: { [RESOURCE]: to(SECRET) } }, /redirects .* not followed/],
    ['sends metadata without end', { paths: { [RESOURCE]: endless } }, /longer than 262144 bytes/],
    [
      'sends metadata of another issuer',
      { metadata: () => ({ issuer: 'https://bank.example' }) },
      /issued by https:\/\/bank/,
    ],
    ['redirects the metadata of the issuer', { paths: { [METADATA]: to(SECRET) } }, /not followed/],
    ['sends metadata of the issuer without end', { paths: { [METADATA]: endless } }, /longer than/],
    ['does not support PKCE', { metadata: () => ({ code_challenge_methods_supported: undefined }) }, /PKCE/],
    [
      'supports PKCE in plain text only',
      { metadata: () => ({ code_challenge_methods_supported: ['plain'] }) },
      /PKCE/,
    ],
    ['takes tokens without https', { metadata: () => ({ token_endpoint: SECRET }) }, /must use https/],
    [
      'has a login page that is a script',
      { metadata: () => ({ authorization_endpoint: 'javascript:alert(1)' }) },
      /must use https/,
    ],
    ['never responds about the issuer', { paths: { [METADATA]: () => {} } }, /did not respond within/],
  ]
  it.each(BEFORE_LOGIN)('H4 shows no link if the server or its issuer %s', async (_what, lies, reason) => {
    const { seen, error } = await failure(lies)
    expect(error?.message).toMatch(reason)
    expect(error?.code).toMatch(/^PEER_(AUTHORIZATION|UNREACHABLE)$/)
    expect(seen).not.toContain('visit')
    expect(seen).not.toContain('/token')
  })

  const IN_REDIRECT: readonly [string, Lies, RegExp][] = [
    ['has another issuer', { redirect: (query) => query.set('iss', 'https://bank.example') }, /"iss"/],
    [
      'has the issuer with a slash',
      { redirect: (query) => query.set('iss', `${query.get('iss')}/`) },
      /"iss"/,
    ],
    ['has no issuer, against its metadata', { redirect: (query) => query.delete('iss') }, /"iss"/],
    ['has another state', { redirect: (query) => query.set('state', 'other') }, /"state"/],
    ['has no state', { redirect: (query) => query.delete('state') }, /"state"/],
    ['has an error', { redirect: (query) => query.set('error', 'access_denied') }, /access_denied/],
    ['has two codes', { redirect: (query) => query.append('code', 'other') }, /code/],
  ]
  it.each(IN_REDIRECT)('H4 sends no code if the redirect %s', async (_what, lies, reason) => {
    const { seen, error, text } = await failure(lies)
    expect(error).toMatchObject({ code: 'PEER_AUTHORIZATION', message: expect.stringMatching(reason) })
    expect(seen).toContain('visit')
    expect(seen).not.toContain('/token')
    expect(text).not.toContain(CANARY.code)
  })

  const IN_TOKENS: readonly [string, Lies, RegExp][] = [
    ['a token of another type', { token: { access_token: CANARY.access, token_type: 'DPoP' } }, /type|DPoP/i],
    ['a token that breaks a header', { token: { access_token: 'a\r\nb', token_type: 'Bearer' } }, /header/],
    ['no token', { token: { token_type: 'Bearer', refresh_token: CANARY.refresh } }, /access_token/],
    [
      'an error that quotes the code',
      { token: { error: 'invalid_grant', error_description: `bad ${CANARY.code}` } },
      /invalid_grant: bad …/,
    ],
    ['a redirect', { paths: { '/token': to(SECRET) } }, /not followed/],
    ['a body without end', { paths: { '/token': endless } }, /longer than/],
  ]
  it.each(IN_TOKENS)(
    'H4 fails without a secret in the error if the token endpoint sends %s',
    async (_what, lies, reason) => {
      const { seen, error, text } = await failure(lies)
      expect(error).toMatchObject({ code: 'PEER_AUTHORIZATION', message: expect.stringMatching(reason) })
      expect(seen).toContain('visit')
      for (const secret of Object.values(CANARY)) expect(text).not.toContain(secret)
    },
  )

  const ODD: readonly unknown[] = [null, 1e308, '\u001b[2J\ud800', [null], { toString: 1, valueOf: 1 }]
  const FIELDS = {
    resource: ['resource', 'authorization_servers', 'scopes_supported'],
    metadata: [
      ...['issuer', 'authorization_endpoint', 'token_endpoint', 'registration_endpoint', 'scopes_supported'],
      ...['revocation_endpoint', 'code_challenge_methods_supported', 'token_endpoint_auth_methods_supported'],
      ...['authorization_response_iss_parameter_supported', 'client_id_metadata_document_supported'],
    ],
    registration: [
      ...['client_id', 'client_secret', 'client_secret_expires_at', 'token_endpoint_auth_method'],
    ],
    token: ['access_token', 'refresh_token', 'token_type', 'expires_in', 'scope', 'id_token', 'error'],
  } as const
  it.each(Object.entries(FIELDS))(
    'R11 H4 logs in or says why not, whatever is in its %s',
    async (part, fields) => {
      const token = { access_token: CANARY.access, token_type: 'Bearer' }
      for (const field of fields) {
        for (const value of ODD) {
          const odd = { [field]: value }
          const paths = {
            '/register': (_request: unknown, response: ServerResponse) =>
              sendJson(response, { client_id: 'registered', ...odd }, 201),
          }
          const { error } = await failure({
            ...((part === 'resource' || part === 'metadata') && { [part]: () => odd }),
            ...(part === 'token' && { token: { ...token, ...odd } }),
            ...(part === 'registration' && { paths }),
          })
          const what = `${field} ${JSON.stringify(value)}: ${error?.stack}`
          if (error !== undefined) expect(error.code, what).toMatch(/^PEER_/)
          // biome-ignore lint/suspicious/noControlCharactersInRegex: the check searches for them.
          expect(error?.message ?? '', what).not.toMatch(/[\u0000-\u001f]|undefined|\[object/)
        }
      }
    },
  )

  it('H4 asks once if the server refuses the token that was just issued, and shows no token that it quotes', async () => {
    const refusal = `Bearer error="invalid_token", error_description="no ${CANARY.access}"`
    const { seen, error, text } = await failure({ refusal })
    expect(error).toMatchObject({
      code: 'PEER_AUTHORIZATION',
      message: expect.stringMatching(/has just issued/),
    })
    expect(seen.filter((one) => one === 'visit')).toHaveLength(1)
    expect(text).not.toContain(CANARY.access)
  })

  it('H4 refreshes once and then logs in if the server refuses what was refreshed', async () => {
    const grants: string[] = []
    const { origin, log, store } = await startLiar({
      paths: {
        '/token': (request, response) => {
          readText(request, (text) => {
            const grant = new URLSearchParams(text).get('grant_type') ?? ''
            grants.push(grant)
            const access_token = grant === 'refresh_token' ? `refused-${grants.length}` : CANARY.access
            sendJson(response, { access_token, refresh_token: CANARY.refresh, token_type: 'Bearer' })
          })
        },
      },
    })
    store.save(`${origin}/mcp`, {
      version: 1,
      server: `${origin}/mcp`,
      resource: `${origin}/mcp`,
      issuer: origin,
      client: { id: 'registered', redirectUri: 'http://127.0.0.1:7777/callback' },
      scopes: [],
      tokens: { accessToken: 'refused', refreshToken: CANARY.refresh },
    })
    await log()
    expect(grants).toEqual(['refresh_token', 'authorization_code'])
  })

  it('H4 T30 sends nothing of a login at one authorization server to another that the server names later', async () => {
    const bodies: string[] = []
    const { origin, log, store, seen } = await startLiar({
      paths: {
        '/token': (request, response) => {
          readText(request, (text) => {
            bodies.push(`${request.headers.authorization} ${text}`)
            sendJson(response, { access_token: CANARY.access, token_type: 'Bearer' })
          })
        },
      },
    })
    store.save(`${origin}/mcp`, {
      version: 1,
      server: `${origin}/mcp`,
      resource: `${origin}/mcp`,
      issuer: 'https://former.example',
      client: {
        id: 'former-client',
        secret: 'canary-secret-91d4',
        method: 'client_secret_post',
        redirectUri: 'http://127.0.0.1:7777/callback',
      },
      scopes: ['former-scope'],
      tokens: { accessToken: 'refused', refreshToken: CANARY.refresh },
    })
    await log()
    expect(seen).toContain('/register')
    expect(bodies).toHaveLength(1)
    expect(bodies[0]).toContain('grant_type=authorization_code')
    for (const secret of ['former', 'canary-secret-91d4', CANARY.refresh])
      expect(bodies[0]).not.toContain(secret)
    expect(await store.load(`${origin}/mcp`)).toMatchObject({ issuer: origin, scopes: [] })
  })

  it.each([
    ['uses the client that it registered', {}, 0],
    ['registers again for another redirect', { redirectUri: 'http://127.0.0.1:1/callback' }, 1],
    ['registers again if the secret has expired', { expiresAt: 1 }, 1],
  ])('H4 %s', async (_what, changed, times) => {
    const { origin, log, store, seen } = await startLiar({})
    const client = { id: 'registered', redirectUri: 'http://127.0.0.1:7777/callback', ...changed }
    const [server, resource] = [`${origin}/mcp`, `${origin}/mcp`]
    store.save(server, { version: 1, server, resource, issuer: origin, client, scopes: [] })
    await log()
    expect(seen.filter((one) => one === '/register')).toHaveLength(times)
  })

  it('H4 T30 sends the secret of a client to no other authorization server than its own', async () => {
    const { origin, seen } = await startLiar({})
    const client = { id: 'nightly', secret: 'secret', issuer: 'https://id.example' }
    for (const issuer of [undefined, origin]) {
      const robot = oauth({ grant: 'client_credentials', client, issuer })
      await expect(robot.login(`${origin}/mcp`)).rejects.toMatchObject({ code: 'PEER_AUTHORIZATION' })
    }
    expect(seen).not.toContain('/token')
  })

  it('H4 asks for more scope a few times at most, whatever the server keeps asking for', async () => {
    let asked = 0
    const { seen, log } = await startLiar({
      paths: {
        '/mcp': (request, response) => {
          asked += 1
          const status = request.headers.authorization === undefined ? 401 : 403
          const challenge = `Bearer error="insufficient_scope", scope="more-${asked}"`
          response.writeHead(status, { 'WWW-Authenticate': challenge }).end()
        },
      },
    })
    await expect(log()).rejects.toMatchObject({ code: 'PEER_HTTP', data: { status: 403 } })
    expect(seen.filter((one) => one === 'visit')).toHaveLength(4)
    expect(asked).toBe(5)
  })

  it('H4 removes its token from a refusal that is not about the token', async () => {
    const { origin, log } = await startLiar({
      paths: {
        '/mcp': (request, response) => {
          const { authorization } = request.headers
          const status = authorization === undefined ? 401 : 403
          const challenge = `Bearer error="access_denied", error_description="no ${authorization}"`
          response.writeHead(status, { 'WWW-Authenticate': challenge }).end()
        },
      },
    })
    const error = await log().catch((thrown: Error) => thrown)
    expect(error).toMatchObject({ code: 'PEER_HTTP', data: { status: 403 } })
    expect(String(error)).toContain('no Bearer …')
    expect(inspect(error, { depth: 20 })).not.toContain(CANARY.access)
    expect(origin).toMatch(/^http/)
  })

  it('H4 cannot be given the code of another login: the authorization server refuses it', async () => {
    const as = await startAuthorizationServer()
    const server = await startProtected(as)
    onTestFinished(async () => {
      await server.close()
      await as.close()
    })
    const redirectUri = 'http://127.0.0.1:7777/callback'
    let code: string | undefined
    const victim: OAuthOptions['login'] = () => ({
      redirectUri,
      async visit({ url, signal }) {
        code = (await as.visit(url)).searchParams.get('code') ?? ''
        // The redirect never reaches the client: an attacker has the code.
        return new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)))
      },
    })
    const stop = new AbortController()
    const waiting = oauth({ login: victim, client: { id: 'desk' } }).login(server.url, {
      signal: stop.signal,
    })
    waiting.catch(() => {})
    await expect.poll(() => code).toBeTypeOf('string')
    const attacker: OAuthOptions['login'] = () => ({
      redirectUri,
      async visit({ url }) {
        const own = await as.visit(url)
        own.searchParams.set('code', code ?? '')
        return own
      },
    })
    const injected = oauth({ login: attacker, client: { id: 'desk' } }).login(server.url)
    await expect(injected).rejects.toMatchObject({
      code: 'PEER_AUTHORIZATION',
      message: expect.stringMatching(/invalid_grant/),
    })
    stop.abort(new Error('enough'))
    await expect(waiting).rejects.toThrow('enough')
  })
})

describe('a URL that a server names', () => {
  const server = new URL('https://mcp.example/mcp')
  it.each([
    'https://10.1.2.3/',
    'https://172.16.0.1/',
    'https://192.168.1.1/',
    'https://169.254.169.254/',
    'https://100.64.0.1/',
    'https://127.0.0.1/',
    'http://127.0.0.1/',
    'http://localhost:8080/',
    'https://foo.localhost/',
    'https://0x7f000001/',
    'https://2130706433/',
    'https://0.0.0.0/',
    'https://[::1]/',
    'https://[::ffff:10.0.0.1]/',
    'https://[fd00::1]/',
    'https://[fe80::1]/',
    'https://user:password@id.example/',
    'http://id.example/',
    'file:///etc/passwd',
    'data:application/json,{}',
  ])('H4 may not be %s if the server is on a public address', (url) => {
    expect(() => checkUrl(url, { server })).toThrow(/PEER_AUTHORIZATION/)
  })

  it('may be any public https URL; a private one if the server is private, or the caller named it', () => {
    expect(checkUrl('https://id.example/x', { server }).href).toBe('https://id.example/x')
    expect(checkUrl('https://11.0.0.1/', { server }).host).toBe('11.0.0.1')
    const pretender = new URL('https://10.0.0.1.evil.example/mcp')
    expect(() => checkUrl('https://10.0.0.1/', { server: pretender })).toThrow(/private address/)
    expect(() => checkUrl('http://127.0.0.1.evil.example/', { server })).toThrow(/must use https/)
    expect(checkUrl('https://10.0.0.1/', { server: new URL('https://10.0.0.2/mcp') }).host).toBe('10.0.0.1')
    expect(checkUrl('https://10.0.0.1/', { server, trusted: 'https://10.0.0.1/realm' }).host).toBe('10.0.0.1')
  })
})

describe('a name that a server names', () => {
  const ADDRESSES: Readonly<Record<string, readonly string[]>> = {
    'mcp.example': ['93.184.216.1'],
    'id.example': ['93.184.216.2'],
    'mcp.corp.example': ['10.0.0.1'],
    'id.corp.example': ['10.0.0.2'],
    'metadata.corp.example': ['169.254.169.254'],
    'six.corp.example': ['fd00::1'],
    'both.example': ['93.184.216.3', '192.168.0.1'],
    'nat64.example': ['64:ff9b::5db8:d801'],
    'nat64.corp.example': ['64:ff9b::a00:1'],
  }
  /** `certified`: where there is a server with a certificate for its name. */
  const open = (server: string, certified: readonly string[] = [], trusted?: string) => {
    const sent: string[] = []
    const request = createSafeFetch({
      server: new URL(server),
      trusted,
      network: {
        lookup: async (name) => ADDRESSES[name] ?? Promise.reject(new Error('ENOTFOUND')),
        holds: async (address, name) => certified.includes(`${name} ${address}`),
      },
      fetch: async (url) => {
        sent.push(url)
        return Response.json({})
      },
    })
    return { sent, get: (name: string) => request(`https://${name}/metadata`, { method: 'GET' }) }
  }

  it.each([
    'id.corp.example',
    'metadata.corp.example',
    'six.corp.example',
    'both.example',
    'nat64.corp.example',
  ])(
    'H4 T30 may not be %s, which is at a private address, if the server is on a public one',
    async (name) => {
      const { get, sent } = open('https://mcp.example/mcp')
      await expect(get(name)).rejects.toThrow(/names \S+, which is at the private address/)
      expect(sent).toEqual([])
    },
  )

  it('may be public, unknown here, named by the caller, or anything if the server is inside', async () => {
    for (const name of ['id.example', 'nat64.example', 'nowhere.example', 'mcp.example'])
      expect((await open('https://mcp.example/mcp').get(name)).status).toBe(200)
    const named = open('https://mcp.example/mcp', [], 'https://id.corp.example/realm')
    expect((await named.get('id.corp.example')).status).toBe(200)
    await expect(named.get('six.corp.example')).rejects.toThrow(/private address/)
    const inside = open('https://mcp.corp.example/mcp', ['mcp.corp.example 10.0.0.1'])
    expect((await inside.get('id.corp.example')).status).toBe(200)
  })

  it('H4 T30 is refused if the server only claims to be inside: nobody there has its certificate', async () => {
    const { get, sent } = open('https://mcp.corp.example/mcp')
    await expect(get('id.corp.example')).rejects.toThrow(/private address/)
    expect(sent).toEqual([])
  })
})
