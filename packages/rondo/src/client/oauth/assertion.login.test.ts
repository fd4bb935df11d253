/** Where assertions come from: the token of a workload, and the login of a person at the identity provider of a company. */

import { generateKeyPairSync } from 'node:crypto'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished, vi } from 'vitest'
import { type EnterpriseOptions, enterprise, restoreGrant, workload } from './assertion.ts'
import { oauth } from './oauth.ts'
import type { AssertionRequest, LoginLink } from './options.ts'

const IDP = 'https://id.company.example'
const AS = 'https://login.example.com'
const RESOURCE = 'https://tables.example.com/mcp'
const NOW = Date.now()
const SECONDS = Math.floor(NOW / 1_000)

const part = (value: object): string => Buffer.from(JSON.stringify(value)).toString('base64url')
const token = (claims: object, typ = 'JWT') => `${part({ alg: 'RS256', typ })}.${part(claims)}.c2ln`
const asked = (changes: Partial<AssertionRequest> = {}): AssertionRequest => ({
  issuer: AS,
  client: 'desk',
  resource: RESOURCE,
  scopes: [],
  signal: new AbortController().signal,
  now: () => NOW,
  attended: true,
  ...changes,
})
const refusal = (code: string, text: RegExp) =>
  expect.objectContaining({ code, message: expect.stringMatching(text) })

describe('the token of a workload', () => {
  const TOKEN = 'a-_1.b-_1.c-_1'

  it('H7 is read each time, from a file, a variable or a function', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'workload-'))
    onTestFinished(() => rm(folder, { recursive: true }))
    const file = join(folder, 'token')
    process.env.RONDO_TEST_WORKLOAD = ` ${TOKEN}\n`
    onTestFinished(() => {
      delete process.env.RONDO_TEST_WORKLOAD
    })
    await writeFile(file, `${TOKEN}\n`)
    expect(await workload({ file }).assertion(asked())).toBe(TOKEN)
    await writeFile(file, 'd.e.f')
    expect(await workload({ file }).assertion(asked())).toBe('d.e.f')
    await writeFile(file, 'd.e')
    await expect(workload({ file }).assertion(asked())).rejects.toThrow(
      `The file ${file} has no JSON Web Token`,
    )
    expect(await workload({ env: 'RONDO_TEST_WORKLOAD' }).assertion(asked())).toBe(TOKEN)
    const seen: unknown[] = []
    const request = asked()
    const own = workload({
      token(given) {
        seen.push(given)
        return TOKEN
      },
    })
    expect(await own.assertion(request)).toBe(TOKEN)
    expect(seen).toEqual([request])
  })

  it.each([
    [
      'a file that is missing',
      { file: '/nowhere/token' },
      /The file \/nowhere\/token cannot be read \(ENOENT\)/,
    ],
    [
      'a variable that is missing',
      { env: 'RONDO_TEST_NOWHERE' },
      /The variable RONDO_TEST_NOWHERE has no JSON/,
    ],
    ['a function without a token', { token: () => '' }, /The function token of workload has no JSON/],
    ['a file without a name', { file: '' }, /The file {2}cannot be read \(ENOENT\)/],
    ['a variable without a name', { env: '' }, /The variable {2}has no JSON/],
    ['two parts', { token: () => 'a.b' }, /has no JSON Web Token/],
    ['four parts', { token: () => 'a.b.c.d' }, /has no JSON Web Token/],
    ['a blank', { token: () => 'a.b.c d' }, /has no JSON Web Token/],
    ['a line before it', { token: () => 'x\na.b.c' }, /has no JSON Web Token/],
  ])('H7 is refused with %s', async (_what, options, text) => {
    await expect(workload(options).assertion(asked())).rejects.toEqual(refusal('PEER_AUTHORIZATION', text))
  })

  it.each([[{}], [{ file: 'a', env: 'b' }], [{ env: 'b', token: () => 'c' }]])(
    'comes from one place: %j',
    (options) => {
      expect(() => workload(options)).toThrow(/exactly one of file, env and token/)
    },
  )

  it.each<[object, RegExp]>([
    [{ files: 'a' }, /^workload has no option "files"/],
    [{ file: 1 }, /^workload: file must be a string/],
  ])('must not come from %j', (options, text) => {
    expect(() => workload(options)).toThrow(text)
  })

  it.each([undefined, {}])('H7 is missing without Node, where the process is %j', async (process) => {
    vi.stubGlobal('process', process)
    const file = workload({ file: '/a' }).assertion(asked())
    vi.unstubAllGlobals()
    await expect(file).rejects.toThrow('workload({ file }) needs Node')
  })

  it('H7 is missing in a variable where there are none', async () => {
    vi.stubGlobal('process', undefined)
    const variable = workload({ env: 'A' }).assertion(asked())
    vi.unstubAllGlobals()
    await expect(variable).rejects.toEqual(refusal('PEER_AUTHORIZATION', /The variable A has no JSON/))
  })

  it('H7 is a grant of oauth', () => {
    const client = { id: 'desk', issuer: AS }
    expect(() => oauth({ client, grant: workload({ env: 'A' }) })).not.toThrow()
  })

  it('is found again by another process, unless a function returns it', async () => {
    expect(workload({ file: '/a' }).stored?.()).toEqual({ kind: 'workload', file: '/a', env: undefined })
    expect(workload({ env: 'A' }).stored?.()).toEqual({ kind: 'workload', file: undefined, env: 'A' })
    expect(workload({ token: () => 'a' }).stored?.()).toBeUndefined()
    const again = restoreGrant({ kind: 'workload', file: '/nowhere/token' }, {})
    await expect(again.assertion(asked())).rejects.toThrow('/nowhere/token')
  })
})

describe('a login at a company', () => {
  const JAG = token(
    { iss: IDP, aud: AS, client_id: 'desk', resource: RESOURCE, sub: 'a' },
    'oauth-id-jag+jwt',
  )
  const idToken = (seconds: number, sub = 'alice') =>
    token({ iss: IDP, aud: 'desk-at-company', sub, iat: SECONDS, exp: SECONDS + seconds })

  /** An identity provider whose logins return these ID tokens, one after the other. */
  function open(
    ids: (string | undefined)[],
    changes: Partial<EnterpriseOptions> = {},
    metadata: object = {},
  ) {
    const sent: Record<string, string>[] = []
    const links: LoginLink[] = []
    let closed = 0
    let ended = false
    const options: EnterpriseOptions = {
      issuer: IDP,
      client: { id: 'desk-at-company' },
      login: () => ({
        redirectUri: 'http://127.0.0.1:7000/callback',
        async visit(link) {
          links.push(link)
          return `http://127.0.0.1:7000/callback?code=c&state=${link.state}`
        },
        close: async () => {
          closed += 1
        },
      }),
      async fetch(url, init) {
        if (url.includes('.well-known'))
          return Response.json({
            issuer: IDP,
            authorization_endpoint: `${IDP}/authorize`,
            token_endpoint: `${IDP}/token`,
            ...metadata,
          })
        const form = Object.fromEntries(new URLSearchParams(String(init.body)))
        sent.push(form)
        if (form.grant_type?.includes('token-exchange'))
          return Response.json({
            access_token: JAG,
            issued_token_type: 'urn:ietf:params:oauth:token-type:id-jag',
            token_type: 'N_A',
          })
        if (ended && form.grant_type === 'refresh_token')
          return Response.json({ error: 'invalid_grant' }, { status: 400 })
        const id = ids.shift()
        return Response.json({
          access_token: 'a',
          token_type: 'Bearer',
          refresh_token: `r${sent.length}`,
          ...(id && { id_token: id }),
        })
      },
      ...changes,
    }
    return {
      sent,
      links,
      options,
      grant: enterprise(options),
      closed: () => closed,
      end: () => {
        ended = true
      },
    }
  }
  const grants = (sent: Record<string, string>[]) =>
    sent.map(({ grant_type = '' }) => grant_type.split(':').at(-1))

  it('H7 is exchanged for an assertion for one server and one client', async () => {
    const { sent, links, grant, closed } = open([idToken(600)])
    expect(await grant.assertion(asked({ scopes: ['a', 'b'] }))).toBe(JAG)
    expect(grants(sent)).toEqual(['authorization_code', 'token-exchange'])
    expect(sent[1]).toMatchObject({
      requested_token_type: 'urn:ietf:params:oauth:token-type:id-jag',
      subject_token_type: 'urn:ietf:params:oauth:token-type:id_token',
      subject_token: idToken(600),
      audience: AS,
      resource: RESOURCE,
      scope: 'a b',
    })
    expect([links.length, closed()]).toEqual([1, 1])
    expect(links[0]?.url.searchParams.get('resource')).toBeNull()
    await grant.assertion(asked())
    expect(sent[2]).not.toHaveProperty('scope')
    expect(() => oauth({ client: { id: 'desk', issuer: AS }, grant })).not.toThrow()
  })

  it('H7 is not quoted, nor the secret, if the identity provider refuses it', async () => {
    const { options } = open([])
    const grant = enterprise({
      ...options,
      client: { id: 'desk-at-company', secret: 'the-secret' },
      login: undefined,
      idToken: () => 'an.id.token',
      fetch: async (url, init) => {
        if (url.includes('.well-known')) return (options.fetch ?? globalThis.fetch)(url, init)
        const error_description = 'an.id.token of the-secret'
        return Response.json({ error: 'invalid_request', error_description }, { status: 400 })
      },
    })
    await expect(grant.assertion(asked())).rejects.toEqual(
      refusal('PEER_AUTHORIZATION', /Could not obtain an identity assertion at .*: invalid_request: … of …$/),
    )
  })

  it('H7 may have nothing to close', async () => {
    const visit = async ({ state }: LoginLink) => `http://127.0.0.1:7000/callback?code=c&state=${state}`
    const { grant } = open([idToken(600)], {
      login: () => ({ redirectUri: 'http://127.0.0.1:7000/callback', visit }),
    })
    expect(await grant.assertion(asked())).toBe(JAG)
  })

  it.each<[string, Partial<EnterpriseOptions>, object, string]>([
    ['openid', {}, {}, 'openid'],
    [
      'a refresh token where that is offered',
      {},
      { scopes_supported: ['offline_access', 'email'] },
      'openid offline_access',
    ],
    ['what the program wants', { scopes: ['openid', 'email'] }, {}, 'openid email'],
  ])('H7 asks for %s', async (_what, changes, metadata, scope) => {
    const { links, grant } = open([idToken(600)], changes, metadata)
    await grant.assertion(asked())
    expect(links[0]?.url.searchParams.get('scope')).toBe(scope)
  })

  it('H7 is used until half a minute before it expires, then refreshed, and repeated once it has ended', async () => {
    const { sent, grant, end } = open([idToken(60, 'one'), idToken(90, 'two'), idToken(600, 'three')])
    const at = async (ms: number) => {
      sent.length = 0
      await grant.assertion(asked({ now: () => SECONDS * 1_000 + ms }))
      return grants(sent)
    }
    expect(await at(0)).toEqual(['authorization_code', 'token-exchange'])
    expect(await at(29_999)).toEqual(['token-exchange'])
    expect(await at(30_000)).toEqual(['refresh_token', 'token-exchange'])
    expect(sent[0]).toMatchObject({ refresh_token: 'r1' })
    expect(await at(59_999)).toEqual(['token-exchange'])
    end()
    expect(await at(60_000)).toEqual(['refresh_token', 'authorization_code', 'token-exchange'])
  })

  it('H7 needs a person who is there, and says so if nobody is', async () => {
    const { links, grant } = open([idToken(600)])
    await expect(grant.assertion(asked({ attended: false }))).rejects.toEqual(
      expect.objectContaining({
        code: 'PEER_LOGIN',
        message: expect.stringContaining(`The login at ${IDP} has ended`),
        data: { server: IDP, scopes: [] },
      }),
    )
    expect(links).toEqual([])
  })

  it('H7 is refused without an ID token', async () => {
    const { grant, closed } = open([undefined])
    await expect(grant.assertion(asked())).rejects.toEqual(
      refusal('PEER_AUTHORIZATION', /issued no ID token/),
    )
    expect(closed()).toBe(1)
  })

  it('H7 is stored by its refresh token, without a private key, and found again by another process', async () => {
    const first = open([idToken(60)], { client: { id: 'desk-at-company', secret: 's' } })
    expect(first.grant.stored?.()).toBeUndefined()
    await first.grant.assertion(asked())
    const stored = {
      kind: 'enterprise',
      issuer: IDP,
      client: { id: 'desk-at-company', secret: 's' },
      refreshToken: 'r1',
    } as const
    expect(first.grant.stored?.()).toEqual(stored)
    const plain = open([idToken(60)])
    await plain.grant.assertion(asked())
    expect(plain.grant.stored?.()).toEqual({ ...stored, client: { id: 'desk-at-company' } })

    const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
    const key = privateKey.export({ type: 'pkcs8', format: 'pem' }) as string
    const keyed = open([idToken(60)], { client: { id: 'desk-at-company', privateKey: { key } } })
    await keyed.grant.assertion(asked())
    expect(keyed.grant.stored?.()).toBeUndefined()

    const other = open([idToken(600)])
    const again = restoreGrant(stored, other.options)
    expect(await again.assertion(asked({ attended: false, stored }))).toBe(JAG)
    expect(other.sent[0]).toMatchObject({ grant_type: 'refresh_token', refresh_token: 'r1' })
    expect(again.stored?.()).toMatchObject({ refreshToken: 'r1' })
    // Nobody can log in there, even for a request that waits.
    other.end()
    const late = asked({ now: () => NOW + 600_000, stored: again.stored?.() })
    await expect(again.assertion(late)).rejects.toEqual(refusal('PEER_LOGIN', /has ended/))
  })

  it.each([
    ['of another company', { issuer: 'https://other.example' }],
    ['of another client', { client: { id: 'other' } }],
  ])('H7 T36 is not refreshed with a login %s', async (_what, changes) => {
    const { sent, grant } = open([idToken(600)])
    const stored = {
      kind: 'enterprise',
      issuer: IDP,
      client: { id: 'desk-at-company' },
      refreshToken: 'theirs',
    } as const
    await grant.assertion(asked({ stored: { ...stored, ...changes } }))
    expect(JSON.stringify(sent)).not.toContain('theirs')
    expect(grants(sent)).toEqual(['authorization_code', 'token-exchange'])
  })

  it('R11 keeps its refresh token if the identity provider cannot be reached', async () => {
    let away = false
    const { options, end } = open([idToken(1), idToken(600)])
    const { fetch } = options
    const grant = enterprise({
      ...options,
      fetch: (url, init) =>
        away ? Promise.reject(new Error('away')) : (fetch ?? globalThis.fetch)(url, init),
    })
    await grant.assertion(asked())
    away = true
    await expect(grant.assertion(asked())).rejects.toEqual(refusal('PEER_UNREACHABLE', /cannot be reached/))
    expect(grant.stored?.()).toMatchObject({ refreshToken: 'r1' })
    away = false
    end()
    await expect(grant.assertion(asked({ attended: false }))).rejects.toEqual(
      refusal('PEER_LOGIN', /has ended/),
    )
    expect(grant.stored?.()).toBeUndefined()
  })

  it.each<[string, Partial<EnterpriseOptions>, RegExp]>([
    ['an issuer', { issuer: 'company' }, /needs the issuer of the identity provider/],
    ['a client', { client: { id: '' } }, /needs the issuer of the identity provider/],
    ['a client at all', { client: undefined }, /needs the issuer of the identity provider/],
    ['options that exist', { loggin: () => {} } as object, /^enterprise has no option "loggin"/],
    ['a login or an ID token', { login: undefined }, /needs either idToken or login/],
    ['no ID token beside a login', { idToken: () => 'a' }, /needs either idToken or login/],
  ])('needs %s', (_what, changes, text) => {
    expect(() => open([], changes)).toThrow(text)
  })
})
