/** How a client finds the authorization server of a server: where it looks, and what it believes. */

import { describe, expect, it } from 'vitest'
import type { Challenge } from '../transport/response-reader.ts'
import { checkLogin, readIssuer, readProtection, readScopes } from './discovery.ts'
import { createSafeFetch } from './safe-fetch.ts'

const SERVER = 'https://mcp.example.com/mcp'
const ISSUER = 'https://id.example.com/tenant'
const WELL_KNOWN = 'https://mcp.example.com/.well-known/oauth-protected-resource'

/** A network in which these documents are published; everything else is not found. */
function open(documents: Readonly<Record<string, unknown>>, server = SERVER, resource?: string) {
  const asked: string[] = []
  const inits: RequestInit[] = []
  const reach = {
    server: new URL(server),
    async fetch(url: string, init: RequestInit) {
      asked.push(url)
      inits.push(init)
      const found = documents[url]
      if (found instanceof Response) return found
      return found === undefined ? new Response('', { status: 404 }) : Response.json(found)
    },
  }
  const lookup = { ...reach, request: createSafeFetch(reach), resource }
  return { asked, inits, lookup }
}

const refusal = (text: RegExp) =>
  expect.objectContaining({ code: 'PEER_AUTHORIZATION', message: expect.stringMatching(text) })
const challenge = (params: Record<string, string>): Challenge => ({ scheme: 'Bearer', params })

describe('the metadata of a server', () => {
  const good = { resource: SERVER, authorization_servers: [ISSUER] }
  const read = async (document: object, server?: string, resource?: string) => {
    const { lookup } = open({ [`${WELL_KNOWN}/mcp`]: document }, server, resource)
    return readProtection(lookup, [])
  }

  it('H4 is at the place that the server names, and nowhere else then', async () => {
    const place = 'https://mcp.example.com/metadata'
    const { asked, inits, lookup } = open({ [place]: good })
    const named = [challenge({}), challenge({ resource_metadata: place })]
    expect(await readProtection(lookup, named)).toEqual({ resource: SERVER, issuers: [ISSUER] })
    expect(asked).toEqual([place])
    expect(inits[0]).toMatchObject({ method: 'GET', headers: { Accept: 'application/json' } })
    const missing = open({ [`${WELL_KNOWN}/mcp`]: good })
    await expect(readProtection(missing.lookup, named)).rejects.toEqual(
      refusal(/metadata of mcp\.example\.com is not at the place it names/),
    )
    expect(missing.asked).toEqual([place])
  })

  it.each<[string, string, string, string[]]>([
    ['at the path', SERVER, SERVER, [`${WELL_KNOWN}/mcp`]],
    ['at the root', SERVER, 'https://mcp.example.com', [`${WELL_KNOWN}/mcp`, WELL_KNOWN]],
    ['at the root, with a slash', SERVER, 'https://mcp.example.com/', [`${WELL_KNOWN}/mcp`, WELL_KNOWN]],
    ['of a server at the root', 'https://mcp.example.com/', 'https://mcp.example.com', [WELL_KNOWN]],
    [
      'of a server at the root, with a slash',
      'https://mcp.example.com',
      'https://mcp.example.com/',
      [WELL_KNOWN],
    ],
  ])('H4 is %s', async (_what, server, resource, places) => {
    const { asked, lookup } = open({ [places.at(-1) ?? '']: { ...good, resource } }, server)
    expect(await readProtection(lookup, [])).toEqual({ resource, issuers: [ISSUER] })
    expect(asked).toEqual(places)
  })

  it.each<[string, object, RegExp]>([
    [
      'another server',
      { resource: 'https://evil.example/mcp' },
      /is about https:\/\/evil\.example\/mcp, not about https:\/\/mcp/,
    ],
    [
      'the origin, at the place of the path',
      { resource: 'https://mcp.example.com' },
      /is about https:\/\/mcp\.example\.com, not/,
    ],
    ['the server with a slash', { resource: `${SERVER}/` }, /not about/],
    ['the server in capitals', { resource: SERVER.toUpperCase() }, /not about/],
    ['nothing', { resource: undefined }, /is about no resource/],
    ['a list', { resource: [SERVER] }, /is about no resource/],
    ['no issuer', { authorization_servers: [] }, /names no authorization server/],
    ['one issuer in text', { authorization_servers: ISSUER }, /names no authorization server/],
    ['an issuer that is a number', { authorization_servers: [ISSUER, 1] }, /names no authorization server/],
  ])('H4 T30 is not about %s', async (_what, changes, text) => {
    await expect(read({ ...good, ...changes })).rejects.toEqual(refusal(text))
  })

  it('H4 may be about a resource that the caller names, and about no other then', async () => {
    const resource = 'https://public.example.com/mcp'
    expect(await read({ ...good, resource }, SERVER, resource)).toMatchObject({ resource })
    await expect(read(good, SERVER, resource)).rejects.toEqual(refusal(/not about https:\/\/public/))
    const origin = 'https://public.example.com'
    expect(await read({ ...good, resource: `${origin}/` }, SERVER, origin)).toMatchObject({
      resource: `${origin}/`,
    })
  })

  it.each(['https://evil.example', 'https://evil.example/', 'https://mcp.example.com/a', 'mcp'])(
    'H4 T30 of a server at the root is not about %s',
    async (resource) => {
      const { lookup } = open({ [WELL_KNOWN]: { ...good, resource } }, 'https://mcp.example.com')
      await expect(readProtection(lookup, [])).rejects.toEqual(
        refusal(/not about https:\/\/mcp\.example\.com\./),
      )
    },
  )

  it('H4 is quoted up to 200 characters', async () => {
    const resource = `https://evil.example/${'x'.repeat(300)}`
    await expect(read({ ...good, resource })).rejects.toEqual(
      refusal(new RegExp(`about ${resource.slice(0, 200)}, not`)),
    )
  })

  it('has scopes and the need of a proof, if they are what they should be', async () => {
    expect(await read({ ...good, scopes_supported: ['a', 1, 'b', 'a', '"'] })).toMatchObject({
      scopes: ['a', 'b'],
    })
    expect(await read({ ...good, scopes_supported: 'a' })).not.toHaveProperty('scopes')
    expect(await read({ ...good, dpop_bound_access_tokens_required: true })).toMatchObject({ bound: true })
    expect(await read({ ...good, dpop_bound_access_tokens_required: 'true' })).not.toHaveProperty('bound')
  })

  it('H4 may be missing: the server is its own authorization server then', async () => {
    const { lookup } = open({})
    expect(await readProtection(lookup, [challenge({})])).toEqual({
      resource: SERVER,
      issuers: ['https://mcp.example.com'],
      undescribed: true,
    })
  })

  it.each<[string, Response, RegExp | undefined]>([
    ['is a bad request', new Response('', { status: 400 }), undefined],
    ['is forbidden', new Response('', { status: 499 }), undefined],
    [
      'fails',
      new Response('', { status: 500 }),
      /mcp\.example\.com\/\.well-known.* responded with HTTP status 500/,
    ],
    ['is empty', new Response(null, { status: 204 }), /HTTP status 204/],
    ['is no JSON', new Response('{'), /is not a JSON object/],
    ['is a list', Response.json([]), /is not a JSON object/],
  ])('that %s is missing, or an error', async (_what, response, text) => {
    const { lookup } = open({ [`${WELL_KNOWN}/mcp`]: response })
    const reading = readProtection(lookup, [])
    if (text === undefined) expect(await reading).toMatchObject({ undescribed: true })
    else await expect(reading).rejects.toEqual(refusal(text))
  })
})

describe('the metadata of an authorization server', () => {
  const good = { issuer: ISSUER, token_endpoint: `${ISSUER}/token` }
  const PLACES = [
    'https://id.example.com/.well-known/oauth-authorization-server/tenant',
    'https://id.example.com/.well-known/openid-configuration/tenant',
    'https://id.example.com/tenant/.well-known/openid-configuration',
  ]

  it.each(PLACES)('H4 is at %s', async (place) => {
    const { asked, lookup } = open({ [place]: good })
    expect(await readIssuer(lookup, ISSUER)).toEqual(good)
    expect(asked).toEqual(PLACES.slice(0, PLACES.indexOf(place) + 1))
  })

  it('H4 is at two places for an issuer without a path, or at none', async () => {
    const origin = 'https://id.example.com'
    const { asked, lookup } = open({})
    await expect(readIssuer(lookup, origin)).rejects.toEqual(refusal(/publishes no metadata/))
    expect(asked).toEqual([
      `${origin}/.well-known/oauth-authorization-server`,
      `${origin}/.well-known/openid-configuration`,
    ])
    const slash = open({ [PLACES[0] ?? '']: { ...good, issuer: `${ISSUER}/` } })
    expect(await readIssuer(slash.lookup, `${ISSUER}/`)).toMatchObject({ issuer: `${ISSUER}/` })
  })

  it('has places of 2025-03-26 for a server without any metadata', async () => {
    const origin = 'https://mcp.example.com'
    expect(await readIssuer(open({}).lookup, origin, true)).toEqual({
      issuer: origin,
      authorization_endpoint: `${origin}/authorize`,
      token_endpoint: `${origin}/token`,
      registration_endpoint: `${origin}/register`,
      code_challenge_methods_supported: ['S256'],
    })
    const place = `${origin}/.well-known/oauth-authorization-server`
    const own = { issuer: origin, token_endpoint: `${origin}/own` }
    expect(await readIssuer(open({ [place]: own }).lookup, origin, true)).toEqual(own)
  })

  const place = PLACES[0] ?? ''
  it.each<[string, object, RegExp]>([
    [
      'another issuer',
      { issuer: 'https://evil.example' },
      /metadata found for .* was issued by https:\/\/evil\.example/,
    ],
    ['nobody', { issuer: 1 }, /was issued by nobody/],
    ...['authorization', 'token', 'registration', 'revocation'].flatMap(
      (name): [string, object, RegExp][] => [
        [
          `a ${name} endpoint without TLS`,
          { [`${name}_endpoint`]: 'http://id.example.com/x' },
          /must use https/,
        ],
        [
          `a ${name} endpoint that is a number`,
          { [`${name}_endpoint`]: 7 },
          /contains "7", which is not a URL/,
        ],
      ],
    ),
  ])('H4 T30 is refused if it names %s', async (_what, changes, text) => {
    const { lookup } = open({ [place]: { ...good, ...changes } })
    await expect(readIssuer(lookup, ISSUER)).rejects.toEqual(refusal(text))
  })

  it('H4 is quoted up to 200 characters', async () => {
    const issuer = `https://evil.example/${'x'.repeat(300)}`
    const { lookup } = open({ [place]: { ...good, issuer } })
    await expect(readIssuer(lookup, ISSUER)).rejects.toEqual(
      refusal(new RegExp(`by ${issuer.slice(0, 200)}$`)),
    )
  })

  it('H4 is not asked of an issuer that may not be named', async () => {
    const { asked, lookup } = open({})
    await expect(readIssuer(lookup, 'https://10.0.0.1')).rejects.toEqual(refusal(/private address/))
    expect(asked).toEqual([])
  })

  it('has lists of text, or nothing in their place', async () => {
    const lists = [
      'scopes_supported',
      'dpop_signing_alg_values_supported',
      'code_challenge_methods_supported',
      'token_endpoint_auth_methods_supported',
    ]
    for (const name of lists) {
      for (const [value, isKept] of [
        [['a'], true],
        [['a', 1], false],
        ['a', false],
      ] as const) {
        const as = await readIssuer(open({ [place]: { ...good, [name]: value } }).lookup, ISSUER)
        expect(as).toEqual(isKept ? { ...good, [name]: value } : good)
      }
    }
    const other = await readIssuer(open({ [place]: { ...good, other: 'a' } }).lookup, ISSUER)
    expect(other).toMatchObject({ other: 'a' })
  })
})

describe('a login', () => {
  const as = {
    issuer: ISSUER,
    authorization_endpoint: `${ISSUER}/authorize`,
    code_challenge_methods_supported: ['S256'],
  }
  it.each<[string, object, RegExp | undefined]>([
    ['PKCE with S256', {}, undefined],
    ['PKCE with S256 among others', { code_challenge_methods_supported: ['plain', 'S256'] }, undefined],
    ['PKCE without S256', { code_challenge_methods_supported: ['plain'] }, /does not support PKCE with S256/],
    ['no PKCE', { code_challenge_methods_supported: undefined }, /does not support PKCE with S256/],
    ['PKCE in text', { code_challenge_methods_supported: 'S256' }, /does not support PKCE with S256/],
    ['no place to log in', { authorization_endpoint: undefined }, /has no authorization endpoint/],
  ])('H4 T30 at an authorization server with %s is possible, or not', (_what, changes, text) => {
    const check = () => checkLogin({ ...as, ...changes })
    if (text === undefined) expect(check).not.toThrow()
    else expect(check).toThrow(refusal(text))
  })
})

describe('scopes', () => {
  it('are visible, short, different and few', () => {
    expect(readScopes('a  b a c"d e\\f ü !')).toEqual(['a', 'b', '!'])
    expect(readScopes('')).toEqual([])
    expect(readScopes(`${'x'.repeat(256)} ${'y'.repeat(257)}`)).toEqual(['x'.repeat(256)])
    const many = Array.from({ length: 101 }, (_, at) => `s${at}`)
    expect(readScopes(many.join(' '))).toEqual(many.slice(0, 100))
  })
})
