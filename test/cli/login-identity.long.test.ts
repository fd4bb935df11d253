/** `rondo login` with bound tokens, as a workload, and with an identity provider, against real authorization servers. Needs the build. */

import { spawn } from 'node:child_process'
import { readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { createRemoteJWKSet, generateKeyPair, jwtVerify, SignJWT } from 'jose'
import type { KoaContextWithOIDC } from 'oidc-provider'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { EXITS } from '../../packages/cli/src/command-line.ts'
import {
  type AuthorizationServer,
  REDIRECT_URI,
  ROBOT_SECRET,
  startAuthorizationServer,
} from '../support/authorization-server.ts'
import { type ProtectedServer, startProtected } from '../support/login-server.ts'
import { CLI, type Ran } from '../support/run-cli.ts'
import { acceptAssertions, JWT_BEARER } from '../support/token-exchange.ts'
import { useCliHome } from '../support/use-cli.ts'

const ID_JAG = 'urn:ietf:params:oauth:token-type:id-jag'
const TOKEN_EXCHANGE = 'urn:ietf:params:oauth:grant-type:token-exchange'

const home = useCliHome()
let keys: CryptoKeyPair
let idp: AuthorizationServer
let as: AuthorizationServer
let server: ProtectedServer
const assertions: string[] = []

beforeAll(async () => {
  keys = (await generateKeyPair('ES256')) as CryptoKeyPair
  idp = await startIdentityProvider()
  as = await startAuthorizationServer({
    features: { dPoP: { enabled: true, nonceSecret: Buffer.alloc(32, 7), requireNonce: () => true } },
    clients: [
      {
        client_id: 'reports',
        client_secret: ROBOT_SECRET,
        grant_types: [JWT_BEARER],
        response_types: [],
        redirect_uris: [],
      } as never,
    ],
    onProvider: (provider) =>
      acceptAssertions(provider, async (jwt) => {
        const { payload } = await jwtVerify(jwt, keys.publicKey, { audience: as.issuer })
        assertions.push(jwt)
        return { sub: String(payload.sub) }
      }),
  })
  server = await startProtected(as)
})
afterAll(async () => {
  await server.close()
  await as.close()
  await idp.close()
})

function sign(claims: object, audience: string, header: object = {}): Promise<string> {
  return new SignJWT({ ...claims })
    .setProtectedHeader({ alg: 'ES256', ...header })
    .setAudience(audience)
    .setExpirationTime('5m')
    .sign(keys.privateKey)
}

/** An identity provider that issues an identity assertion to whoever has logged in. */
async function startIdentityProvider(): Promise<AuthorizationServer> {
  const exchange = async (ctx: KoaContextWithOIDC): Promise<void> => {
    const params = ctx.oidc.params ?? {}
    const jwks = createRemoteJWKSet(new URL(`${idp.issuer}/jwks`))
    const { payload } = await jwtVerify(String(params.subject_token), jwks, { issuer: idp.issuer })
    const claims = { sub: payload.sub, iss: idp.issuer, resource: params.resource, client_id: 'reports' }
    const assertion = await sign(claims, String(params.audience), { typ: 'oauth-id-jag+jwt' })
    ctx.body = { access_token: assertion, issued_token_type: ID_JAG, token_type: 'N_A', expires_in: 300 }
  }
  return startAuthorizationServer({
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
        exchange,
        ['subject_token', 'subject_token_type', 'requested_token_type', 'audience', 'resource', 'scope'],
        ['resource', 'audience'],
      ),
  })
}

/** Runs `rondo login` and follows the link that it prints, at the server that it leads to. */
function logIn(args: readonly string[], at: AuthorizationServer, env: object = {}): Promise<Ran> {
  return new Promise((done, fail) => {
    const child = spawn(process.execPath, [CLI, 'login', server.url, ...args], {
      env: { ...home.env, ...env },
    })
    const texts = { stdout: '', stderr: '' }
    let visited = false
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      texts.stdout += text
    })
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      texts.stderr += text
      const link = /^ {2}(http\S+)\n/m.exec(texts.stderr)?.[1]
      if (link === undefined || visited) return
      visited = true
      at.visit(link)
        .then((redirect) => fetch(redirect))
        .catch(fail)
    })
    child.on('error', fail)
    child.on('close', (code) => done({ code, ...texts }))
  })
}

function kept(): { readonly tokens: Readonly<Record<string, string>> } {
  const [name = ''] = readdirSync(join(home.path, 'logins'))
  return JSON.parse(readFileSync(join(home.path, 'logins', name), 'utf8'))
}

/** Makes the stored token useless, as time does. */
function expire(): void {
  const [name = ''] = readdirSync(join(home.path, 'logins'))
  const login = { ...kept(), tokens: { ...kept().tokens, accessToken: 'ended', expiresAt: 1 } }
  writeFileSync(join(home.path, 'logins', name), JSON.stringify(login))
}

it('H6 T35 rondo login --dpop binds the token to a key that only its owner can read, and no other key presents it', async () => {
  const login = await logIn(['--dpop'], as)
  expect(login.stderr).toMatch(/Logged in at http/)
  const { accessToken = '', keyThumbprint } = kept().tokens
  expect(keyThumbprint).toMatch(/^[\w-]{43}$/)
  const path = join(home.path, 'dpop-key')
  expect(statSync(path).mode & 0o777).toBe(0o600)
  const { d } = JSON.parse(readFileSync(path, 'utf8'))
  const call = await home.run(['call', server.url, 'whoami'])
  expect(call.stdout.trim()).toBe('alice')
  const printed = [login, call].map(({ stdout, stderr }) => stdout + stderr).join('')
  expect(d).toMatch(/^[\w-]{43}$/)
  for (const secret of [accessToken, d]) expect(printed).not.toContain(secret)

  const env = { STOLEN: accessToken }
  const stolen = await home.run(['call', server.url, 'whoami', '--bearer', 'env:STOLEN'], { env })
  expect(stolen.stderr).toMatch(/401/)
  writeFileSync(path, '{}')
  const damaged = await home.run(['call', server.url, 'whoami'])
  expect(damaged.stderr).toMatch(/The key in .* is damaged\. Remove it, and log in again/)
  expect(damaged.code).toBe(EXITS.stored.code)
  // Another key, which is created as if there had been none.
  const { privateKey } = (await generateKeyPair('ES256', { extractable: true })) as CryptoKeyPair
  writeFileSync(path, JSON.stringify(await crypto.subtle.exportKey('jwk', privateKey)))
  const other = await home.run(['call', server.url, 'whoami'])
  expect(other.stderr).toMatch(/requires a login/)
  expect(other.code).toBe(EXITS.refused.code)
})

it('H7 rondo login --workload-token-file and --workload-token-env log in with the token of a platform, and print none', async () => {
  const token = await sign({ sub: 'reports-job' }, as.issuer)
  const file = join(home.path, 'token')
  writeFileSync(file, `${token}\n`)
  const client = ['--client-id', 'reports', '--client-secret-env', 'SECRET', '--issuer', as.issuer]
  const env = { SECRET: ROBOT_SECRET, WORKLOAD: token }
  for (const source of [
    ['--workload-token-file', file],
    ['--workload-token-env', 'WORKLOAD'],
  ]) {
    const login = await home.run(['login', server.url, ...client, ...source], { env })
    expect(login.stderr).toMatch(/Logged in at http/)
    expect(login.stdout + login.stderr).not.toContain(token)
    expect(JSON.stringify(kept())).not.toContain(token)
    expect((await home.run(['call', server.url, 'whoami'])).stdout.trim()).toBe('reports-job')
    expire()
    expect((await home.run(['whoami'])).stdout).toMatch(/refreshed at the next call/)
    expect((await home.run(['call', server.url, 'whoami'], { env })).stdout.trim()).toBe('reports-job')
    await home.run(['logout', server.url])
  }
  expect(assertions.slice(-4)).toEqual([token, token, token, token])

  const wrong: readonly [readonly string[], RegExp, number][] = [
    [[...client, '--workload-token-env', 'NOBODY'], /has no JSON Web Token/, EXITS.server.code],
    [[...client, '--workload-token-file', join(home.path, 'none')], /ENOENT/, EXITS.server.code],
    [['--workload-token-file', file], /--client-id ID --issuer URL/, EXITS.usage.code],
    [[...client, '--workload-token-file', file, '--client-credentials'], /Choose one of/, EXITS.usage.code],
  ]
  for (const [words, reason, code] of wrong) {
    const ran = await home.run(['login', server.url, ...words], { env })
    expect(ran.stderr).toMatch(reason)
    expect(ran.code).toBe(code)
  }
})

it('H7 rondo login --identity-provider logs in at the company, and keeps neither its ID token nor the assertion', async () => {
  const words = ['--client-id', 'reports', '--client-secret-env', 'SECRET', '--issuer', as.issuer]
  const env = { SECRET: ROBOT_SECRET }
  const provider = ['--identity-provider', idp.issuer]
  const nameless = await home.run(['login', server.url, ...words, ...provider], { env })
  expect(nameless.stderr).toMatch(/--idp-client-id ID/)
  expect(nameless.code).toBe(EXITS.usage.code)
  const login = await logIn([...words, ...provider, '--idp-client-id', 'desk-at-company'], idp, env)
  expect(login.stderr).toMatch(/Logged in at http/)
  expect((await home.run(['call', server.url, 'whoami'])).stdout.trim()).toBe('alice')
  const assertion = assertions.at(-1) ?? ''
  expect(assertion).toMatch(/^[\w-]+\.[\w-]+\.[\w-]+$/)
  expect(login.stdout + login.stderr + JSON.stringify(kept())).not.toContain(assertion)
  // Refresh tokens of the identity provider rotate, and each command leaves the next one.
  for (let times = 0; times < 2; times += 1) {
    expire()
    expect((await home.run(['call', server.url, 'whoami'])).stdout.trim()).toBe('alice')
  }
})
