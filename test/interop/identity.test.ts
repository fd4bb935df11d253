/**
 * Identity for enterprises, between real parties: an identity provider and an authorization server (`oidc-provider`, with grants
 * for token exchange and assertions), our server, our client and the official one.
 */

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer as createHttpServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DpopSession, StreamableHTTPClientTransport } from '@modelcontextprotocol/client'
import { createRemoteJWKSet, decodeJwt, generateKeyPair, jwtVerify, SignJWT } from 'jose'
import type { KoaContextWithOIDC } from 'oidc-provider'
import { createServer, generateKey, type LogEvent } from 'rondo'
import { type OAuthResourceOptions, oauthResource } from 'rondo/oauth'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Client, connect } from '../../packages/rondo/src/client.ts'
import {
  enterprise,
  exchange,
  memoryTokenStore,
  type OAuthOptions,
  oauth,
  type StoredLogin,
  workload,
} from '../../packages/rondo/src/client-oauth.ts'
import {
  type AuthorizationServer,
  REDIRECT_URI,
  ROBOT_SECRET,
  startAuthorizationServer,
} from '../support/authorization-server.ts'
import { connectOfficial, MODERN, OLDER } from '../support/official-client.ts'
import { acceptAssertions, JWT_BEARER, startExchangingServer } from '../support/token-exchange.ts'

const ID_JAG = 'urn:ietf:params:oauth:token-type:id-jag'
const TOKEN_EXCHANGE = 'urn:ietf:params:oauth:grant-type:token-exchange'

const closing: (() => Promise<unknown> | unknown)[] = []
afterAll(async () => {
  for (const close of closing.reverse()) await close()
})

/** A server of ours with a tool that names its caller. */
async function serve(issuer: string, options: Partial<OAuthResourceOptions> = {}) {
  const http = createHttpServer()
  await new Promise<void>((resolve) => http.listen(0, '127.0.0.1', resolve))
  const url = `http://127.0.0.1:${(http.address() as AddressInfo).port}/mcp`
  const log: LogEvent[] = []
  const authenticate = oauthResource({ resource: url, issuers: [issuer], ...options })
  const server = createServer({
    name: 'tables',
    version: '1.0.0',
    keys: generateKey(),
    log: (event) => void log.push(event),
    sessions: {},
    authenticate,
  })
  const upstream: Record<string, string>[] = []
  server.tool('whoami', {}, (_args, { principal }) => `${principal?.subject} of ${principal?.client}`)
  http.on('request', server.nodeHandler())
  closing.push(async () => {
    await server.close()
    http.closeAllConnections()
    await new Promise((resolve) => http.close(resolve))
  })
  return {
    url,
    log,
    server,
    upstream,
    reasons: () => log.flatMap((one) => (one.event === 'caller_refused' ? [one.reason] : [])),
  }
}

async function whoami(url: string, options: OAuthOptions, mode: '2026-07-28' | '2025-11-25' = '2026-07-28') {
  const client: Client = await connect(url, { auth: oauth(options), mode })
  try {
    const { content } = await client.callTool('whoami')
    return content[0]?.type === 'text' ? content[0].text : undefined
  } finally {
    await client.close()
  }
}

const loginAt =
  (as: () => AuthorizationServer): OAuthOptions['login'] =>
  () => ({ redirectUri: REDIRECT_URI, visit: ({ url }) => as().visit(url) })

describe('tokens that are bound to a key', () => {
  let as: AuthorizationServer
  const nonceSecret = Buffer.alloc(32, 7)
  beforeAll(async () => {
    as = await startAuthorizationServer({
      features: { dPoP: { enabled: true, nonceSecret, requireNonce: () => true } },
    })
    closing.push(() => as.close())
  })
  const login = loginAt(() => as)

  it.each(['2026-07-28', '2025-11-25'] as const)(
    'H6 H5 are issued with a nonce, and accepted by a server that requires them, at %s',
    async (mode) => {
      const { url, reasons } = await serve(as.issuer, { dpop: { required: true } })
      const logins = new Map<string, StoredLogin>()
      const store = {
        ...memoryTokenStore(),
        save: (key: string, one: StoredLogin) => void logins.set(key, one),
      }
      const options = { client: { id: 'desk' }, login, dpop: true, store, scopes: ['tickets:read'] }
      expect(await whoami(url, options, mode)).toBe('alice of desk')
      expect(reasons()).toEqual([])
      const [{ tokens } = {}] = [...logins.values()]
      expect(tokens?.keyThumbprint).toMatch(/^[\w-]{43}$/)
      expect(decodeJwt(tokens?.accessToken ?? '').cnf).toEqual({ jkt: tokens?.keyThumbprint })
      // T35 The token alone is of no use, here or at a server that accepts bearer tokens of the same issuer.
      const stolen = { headers: { Authorization: `Bearer ${tokens?.accessToken}` } }
      await expect(connect(url, stolen)).rejects.toThrow(/401/)
      expect(reasons()).toEqual([expect.stringMatching(/presented as a bearer token/)])
      const other = await serve(as.issuer, { audience: url })
      await expect(connect(other.url, stolen)).rejects.toThrow(/401/)
      expect(other.reasons()).toEqual([expect.stringMatching(/bound to a key/)])
    },
  )

  it.each([
    ['2026-07-28', MODERN],
    ['2025-11-25', OLDER],
  ] as const)('H5 are accepted from the official client, at %s', async (_revision, options) => {
    const { url, reasons } = await serve(as.issuer, { dpop: { required: true } })
    const session = await DpopSession.create()
    const htu = `${as.issuer}/token`
    const request = async (): Promise<Response> => {
      const body = { grant_type: 'client_credentials', resource: url, scope: 'tickets:read' }
      const basic = Buffer.from(`robot:${ROBOT_SECRET}`).toString('base64')
      const headers = {
        DPoP: await session.buildProof({ htm: 'POST', htu }),
        Authorization: `Basic ${basic}`,
      }
      const response = await fetch(htu, { method: 'POST', headers, body: new URLSearchParams(body) })
      session.observeNonce(response, htu)
      return response
    }
    expect((await request()).status).toBe(400)
    const tokens = (await (await request()).json()) as { access_token: string; token_type: string }
    expect(tokens.token_type).toBe('DPoP')
    const transport = (dpop?: () => DpopSession) => {
      const authProvider = {
        redirectUrl: undefined,
        clientMetadata: { redirect_uris: [] },
        clientInformation: () => undefined,
        tokens: () => tokens,
        saveTokens() {},
        redirectToAuthorization() {},
        saveCodeVerifier() {},
        codeVerifier: () => '',
        ...(dpop && { dpop }),
      }
      return new StreamableHTTPClientTransport(new URL(url), { authProvider: authProvider as never })
    }
    const client = await connectOfficial(
      transport(() => session),
      options,
    )
    closing.push(() => client.close())
    const { text } = await client.run({ method: 'tools/call', target: 'whoami' })
    expect(text).toBe('robot of robot')
    expect(reasons()).toEqual([])
    // The control: the same client with another key.
    const other = await DpopSession.create()
    await expect(
      connectOfficial(
        transport(() => other),
        options,
      ),
    ).rejects.toThrow()
    expect(reasons()).toContainEqual(expect.stringMatching(/another key/))
  })

  it('H6 are requested without the option if the metadata of the server requires them', async () => {
    const { url } = await serve(as.issuer, { dpop: { required: true } })
    expect(await whoami(url, { client: { id: 'desk' }, login, scopes: ['tickets:read'] })).toBe(
      'alice of desk',
    )
  })

  it('H6 are ignored by a process that does not have their key', async () => {
    const { url } = await serve(as.issuer, { dpop: true })
    const store = memoryTokenStore()
    const options = { client: { id: 'desk' }, store, scopes: ['tickets:read'] }
    const key = (await crypto.subtle.generateKey({ name: 'ECDSA', namedCurve: 'P-256' }, false, [
      'sign',
      'verify',
    ])) as CryptoKeyPair
    await whoami(url, { ...options, login, dpop: key })
    // The same key is enough; another one needs another login.
    expect(await whoami(url, { ...options, dpop: key })).toBe('alice of desk')
    await expect(whoami(url, { ...options, dpop: true })).rejects.toThrow(/requires a login/)
  })

  it('T35 are not replaced by bearer tokens: a server that issues one, or cannot bind any, is refused', async () => {
    const plain = await startAuthorizationServer({
      features: { dPoP: { enabled: false } },
    })
    closing.push(() => plain.close())
    const { url } = await serve(plain.issuer, {})
    const options = { client: { id: 'desk' }, login: loginAt(() => plain), scopes: ['tickets:read'] }
    await expect(whoami(url, { ...options, dpop: true })).rejects.toThrow(/does not bind tokens to keys/)
    // An authorization server that announces DPoP, and drops it from its response.
    const downgrading: NonNullable<OAuthOptions['fetch']> = async (target, init) => {
      const response = await fetch(target, init)
      if (!target.includes('/.well-known/') || !response.ok) return response
      const metadata = (await response.json()) as object
      return Response.json({ ...metadata, dpop_signing_alg_values_supported: ['ES256'] })
    }
    await expect(whoami(url, { ...options, dpop: true, fetch: downgrading })).rejects.toThrow(
      /another type than DPoP/,
    )
    expect(await whoami(url, options)).toBe('alice of desk')
  })
})

describe('assertions', () => {
  const robotWith = (grant: string, id: string) => ({
    client_id: id,
    client_secret: ROBOT_SECRET,
    grant_types: [grant],
    response_types: [],
    redirect_uris: [],
  })

  it('H7 call from a workload: a token in a file, read again after it was rotated', async () => {
    const platform = await generateKeyPair('ES256')
    const seen: string[] = []
    const as = await startAuthorizationServer({
      clients: [robotWith(JWT_BEARER, 'reports') as never],
      onProvider: (provider) =>
        acceptAssertions(provider, async (jwt) => {
          const { payload } = await jwtVerify(jwt, platform.publicKey, { audience: as.issuer })
          seen.push(String(payload.jti))
          return { sub: String(payload.sub) }
        }),
    })
    closing.push(() => as.close())
    const { url, reasons } = await serve(as.issuer)
    const folder = mkdtempSync(join(tmpdir(), 'rondo-workload-'))
    closing.push(() => rmSync(folder, { recursive: true, force: true }))
    const file = join(folder, 'token')
    const rotate = async (jti: string, audience = as.issuer) =>
      writeFileSync(
        file,
        await new SignJWT({ jti })
          .setProtectedHeader({ alg: 'ES256' })
          .setSubject('reports-job')
          .setAudience(audience)
          .setExpirationTime('5m')
          .sign(platform.privateKey),
      )
    const client = { id: 'reports', secret: ROBOT_SECRET, issuer: as.issuer }
    const options = { client, grant: workload({ file }), scopes: ['tickets:read'] }
    await rotate('first')
    expect(await whoami(url, options)).toBe('reports-job of reports')
    await rotate('second')
    expect(await whoami(url, options)).toBe('reports-job of reports')
    expect(seen).toEqual(['first', 'second'])

    // A token is replaced before it expires, without a request that the server refuses.
    let late = 0
    const store = memoryTokenStore()
    const now = () => Date.now() + late
    const client_ = await connect(url, { auth: oauth({ ...options, store, now }) })
    await client_.callTool('whoami')
    await rotate('renewed')
    const refusals = reasons().length
    late = 595_000
    await client_.callTool('whoami')
    await client_.close()
    // So does a process that has only the store, such as a later command.
    await rotate('restored')
    late += 595_000
    expect(await whoami(url, { store, now })).toBe('reports-job of reports')
    expect(seen.slice(2)).toEqual(['second', 'renewed', 'restored'])
    expect(reasons()).toHaveLength(refusals)

    await rotate('third', 'https://elsewhere.example')
    const before = as.requests.length
    await expect(whoami(url, options)).rejects.toThrow(/PEER_AUTHORIZATION|Could not obtain a token/)
    expect(as.requests.slice(before).filter((one) => one === 'POST /token')).toHaveLength(1)
    await expect(
      whoami(url, { ...options, grant: workload({ file: join(folder, 'none') }) }),
    ).rejects.toThrow(/ENOENT/)
    await expect(
      whoami(url, { ...options, grant: workload({ env: 'RONDO_NO_SUCH_TOKEN' }) }),
    ).rejects.toThrow(/has no JSON Web Token/)
  })

  it('H7 T36 log in with an identity provider, and are refused for another resource, client or server', async () => {
    const keys = await generateKeyPair('ES256', { extractable: true })
    let change: Record<string, unknown> = {}
    let isAway = false
    const idp = await startAuthorizationServer({
      clients: [
        {
          client_id: 'desk-at-company',
          application_type: 'native',
          token_endpoint_auth_method: 'none',
          grant_types: ['authorization_code', 'refresh_token', TOKEN_EXCHANGE],
          response_types: ['code'],
          redirect_uris: [REDIRECT_URI],
        } as never,
      ],
      onProvider: (provider) =>
        provider.registerGrantType(
          TOKEN_EXCHANGE,
          async (ctx: KoaContextWithOIDC) => {
            const params = ctx.oidc.params ?? {}
            if (isAway) ctx.throw(503, 'away')
            const idToken = await jwtVerify(
              String(params.subject_token),
              createRemoteJWKSet(new URL(`${idp.issuer}/jwks`)),
              {
                issuer: idp.issuer,
                audience: 'desk-at-company',
              },
            )
            expect(params).toMatchObject({
              requested_token_type: ID_JAG,
              resource: expect.stringMatching(/\/mcp$/),
            })
            const assertion = await new SignJWT({ resource: params.resource, client_id: 'desk', ...change })
              .setProtectedHeader({ alg: 'ES256', typ: 'oauth-id-jag+jwt' })
              .setSubject(String(idToken.payload.sub))
              .setIssuer(idp.issuer)
              .setAudience(String(change.aud ?? params.audience))
              .setExpirationTime('5m')
              .sign(keys.privateKey)
            ctx.body = {
              access_token: assertion,
              issued_token_type: ID_JAG,
              token_type: 'N_A',
              expires_in: 300,
            }
          },
          ['subject_token', 'subject_token_type', 'requested_token_type', 'audience', 'resource', 'scope'],
          ['resource', 'audience'],
        ),
    })
    closing.push(() => idp.close())
    const accepted: unknown[] = []
    const as = await startAuthorizationServer({
      clients: [
        robotWith(JWT_BEARER, 'desk-of-tables') as never,
        robotWith(JWT_BEARER, 'desk-enterprise') as never,
      ],
      onProvider: (provider) =>
        acceptAssertions(provider, async (jwt) => {
          const { payload } = await jwtVerify(jwt, keys.publicKey, {
            issuer: idp.issuer,
            audience: as.issuer,
          })
          accepted.push(payload.sub)
          return { sub: String(payload.sub), resource: String(payload.resource) }
        }),
    })
    closing.push(() => as.close())
    const { url } = await serve(as.issuer)
    const options = (): OAuthOptions => ({
      client: { id: 'desk-enterprise', secret: ROBOT_SECRET, issuer: as.issuer },
      scopes: ['tickets:read'],
      grant: enterprise({
        issuer: idp.issuer,
        client: { id: 'desk-at-company' },
        login: loginAt(() => idp) as never,
      }),
    })
    change = { client_id: 'desk-enterprise' }
    expect(await whoami(url, options())).toBe('alice of desk-enterprise')
    expect(accepted).toEqual(['alice'])

    // The person logs in once. Refresh tokens rotate, and none is lost, even if the assertion cannot be obtained afterwards.
    let late = 0
    const renewing = { store: memoryTokenStore(), now: () => Date.now() + late }
    expect(await whoami(url, { ...options(), ...renewing })).toBe('alice of desk-enterprise')
    const visits = () => idp.requests.filter((one) => one === 'GET /auth').length
    const before = visits()
    isAway = true
    late = 7_200_000
    await expect(whoami(url, renewing)).rejects.toThrow(/identity assertion/)
    isAway = false
    for (late of [7_200_000, 14_400_000]) expect(await whoami(url, renewing)).toBe('alice of desk-enterprise')
    expect(await whoami(url, { ...options(), ...renewing })).toBe('alice of desk-enterprise')
    expect(visits()).toBe(before)
    accepted.length = 1

    const attacks: readonly [object, RegExp][] = [
      [{ resource: 'https://other.example/mcp' }, /for another resource than/],
      [{ client_id: 'somebody' }, /for another client than desk-enterprise/],
      [
        { client_id: 'desk-enterprise', aud: 'https://other.example' },
        /for another authorization server than/,
      ],
    ]
    for (const [attack, reason] of attacks) {
      change = { client_id: 'desk-enterprise', ...attack }
      await expect(whoami(url, options())).rejects.toThrow(reason)
    }
    // None of these assertions was sent. The control: the first one was.
    expect(accepted).toEqual(['alice'])
  })
})

describe('token exchange', () => {
  it('H8 T36 gives each caller a token of its own at another server, and nobody that of the gateway', async () => {
    const as = await startExchangingServer()
    closing.push(() => as.close())
    const tables = await serve(as.issuer)
    const front = await serve(as.issuer)
    const credentials = exchange({
      issuer: as.issuer,
      client: { id: 'gateway', secret: ROBOT_SECRET },
      resources: { tables: tables.url },
    })
    front.server.tool('through', {}, async (_args, { principal }) => {
      const client = await connect(tables.url, { headers: () => credentials(principal, 'tables') })
      try {
        const { content } = await client.callTool('whoami')
        return content[0]?.type === 'text' ? content[0].text : ''
      } finally {
        await client.close()
      }
    })
    const callAs = async (user: string) => {
      const { access_token: token } = await as.authorize({
        resource: front.url,
        scope: 'openid tickets:read',
        user,
      })
      // T36 The token of the caller is not accepted upstream: nothing works by forwarding it.
      await expect(connect(tables.url, { headers: { Authorization: `Bearer ${token}` } })).rejects.toThrow(
        /401/,
      )
      const client = await connect(front.url, { headers: { Authorization: `Bearer ${token}` } })
      try {
        const { content } = await client.callTool('through')
        const again = await client.callTool('through')
        expect(again.content).toEqual(content)
        return content[0]?.type === 'text' ? content[0].text : undefined
      } finally {
        await client.close()
      }
    }
    expect(await callAs('alice')).toBe('alice of gateway')
    expect(await callAs('bob')).toBe('bob of gateway')
    // One exchange for each caller, though each called twice and every call made several requests.
    expect(as.exchanged).toEqual([`alice tickets:read ${tables.url}`, `bob tickets:read ${tables.url}`])
    await expect(credentials(undefined, 'tables')).rejects.toThrow(/no token to exchange/)
    await expect(credentials({ subject: 'alice' }, 'tables')).rejects.toThrow(/no token to exchange/)
    await expect(credentials({ subject: 'alice' }, 'elsewhere')).rejects.toThrow(
      /no resource for "elsewhere"/,
    )
  })
})

it('finds the endpoints of a server of 2025-03-26 that publishes no metadata', async () => {
  const http = createHttpServer(async (request, response) => {
    const path = request.url?.split('?')[0]
    const reply = (status: number, body: unknown, headers = {}) => {
      response.writeHead(status, { 'Content-Type': 'application/json', ...headers })
      response.end(JSON.stringify(body))
    }
    if (path === '/register') return reply(201, { client_id: 'registered', redirect_uris: [REDIRECT_URI] })
    if (path === '/token') return reply(200, { access_token: 'good', token_type: 'Bearer', expires_in: 60 })
    if (path !== '/mcp') return reply(404, {})
    if (request.headers.authorization !== 'Bearer good')
      return reply(401, {}, { 'WWW-Authenticate': 'Bearer' })
    return reply(200, {
      jsonrpc: '2.0',
      id: 1,
      result: {
        supportedVersions: ['2026-07-28'],
        capabilities: {},
        resultType: 'complete',
        ttlMs: 0,
        cacheScope: 'private',
      },
    })
  })
  await new Promise<void>((resolve) => http.listen(0, '127.0.0.1', resolve))
  closing.push(() => new Promise((resolve) => http.close(resolve)))
  const origin = `http://127.0.0.1:${(http.address() as AddressInfo).port}`
  const visited: string[] = []
  const auth = oauth({
    login: () => ({
      redirectUri: REDIRECT_URI,
      async visit({ url, state }) {
        visited.push(`${url.origin}${url.pathname}`)
        return `${REDIRECT_URI}?code=c&state=${state}`
      },
    }),
  })
  const client = await connect(`${origin}/mcp`, { auth })
  await client.close()
  expect(visited).toEqual([`${origin}/authorize`])
})
