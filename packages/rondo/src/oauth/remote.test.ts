/** Requests to an authorization server: how often, where to, and what of the answers counts. */

import { describe, expect, it } from 'vitest'
import { CLAIM_CHECKS, type ClaimRules, clientOf, grantedBy } from './claims.ts'
import {
  createIntrospection,
  createKeySet,
  type IntrospectionOptions,
  isSecure,
  type KeySetOptions,
  type PublishedKey,
  RemoteFault,
  type RemoteLimits,
} from './remote.ts'

const ISSUER = 'https://id.example.com/tenant'
const CONFIGURATION = `${ISSUER}/.well-known/openid-configuration`
const METADATA = 'https://id.example.com/.well-known/oauth-authorization-server/tenant'
const JWKS = 'https://keys.example.com/jwks'
const KEY = { kid: 'a', kty: 'EC' }

type Answer = () => Response | Promise<Response>
const json =
  (value: unknown): Answer =>
  () =>
    Response.json(value)

/** The key set of an issuer that answers like this; everything else is not found. */
function open(answers: Record<string, Answer>, changes: Partial<KeySetOptions> = {}) {
  const clock = { now: 1_000_000 }
  const asked: string[] = []
  const inits: RequestInit[] = []
  const set = createKeySet({
    issuer: ISSUER,
    now: () => clock.now,
    cooldownMs: 30_000,
    maxAgeMs: 600_000,
    async fetch(url, init) {
      asked.push(url)
      inits.push(init)
      return answers[url]?.() ?? new Response('', { status: 404 })
    },
    ...changes,
  })
  const find = (kid = 'a') => set.keys((keys: readonly PublishedKey[]) => keys.some((key) => key.kid === kid))
  return { clock, asked, inits, find }
}

const fault = (problem: RegExp) => expect.objectContaining({ message: expect.stringMatching(problem) })
const found = { [CONFIGURATION]: json({ issuer: ISSUER, jwks_uri: JWKS }), [JWKS]: json({ keys: [KEY] }) }

describe('the keys of an issuer', () => {
  it('H1 are found through its metadata, and are records', async () => {
    const { asked, inits, find } = open({ ...found, [JWKS]: json({ keys: [KEY, null, 'key', [KEY]] }) })
    expect(await find()).toEqual([KEY])
    expect(asked).toEqual([CONFIGURATION, JWKS])
    for (const init of inits)
      expect(init).toMatchObject({ redirect: 'manual', headers: { accept: 'application/json' } })
  })

  it('H1 may be given, and then nothing is asked', async () => {
    const { asked, find } = open({}, { jwks: { keys: [KEY] } })
    expect(await find('other')).toEqual([KEY])
    expect(asked).toEqual([])
  })

  it('H1 may be at an address that the operator names', async () => {
    const { asked, find } = open(found, { jwks: JWKS })
    expect(await find()).toEqual([KEY])
    expect(asked).toEqual([JWKS])
  })

  it.each<[string, string, string[]]>([
    ['a path', ISSUER, [CONFIGURATION, METADATA]],
    ['a slash at its end', `${ISSUER}/`, [CONFIGURATION, METADATA]],
    [
      'no path',
      'https://id.example.com',
      [
        'https://id.example.com/.well-known/openid-configuration',
        'https://id.example.com/.well-known/oauth-authorization-server',
      ],
    ],
  ])('H1 are looked for in both places for an issuer with %s', async (_what, issuer, urls) => {
    for (const url of urls) {
      const { asked, find } = open(
        { [url]: json({ issuer, jwks_uri: JWKS }), [JWKS]: json({ keys: [KEY] }) },
        { issuer },
      )
      expect(await find()).toEqual([KEY])
      expect(asked.at(-2)).toBe(url)
    }
    const nowhere = open({}, { issuer })
    await expect(nowhere.find()).rejects.toEqual(fault(/status 404$/))
    expect(nowhere.asked).toEqual(urls)
    await expect(nowhere.find()).rejects.toEqual(fault(new RegExp(`^${urls[0]}`)))
  })

  it('H1 are not taken from the metadata of another issuer, but from the next', async () => {
    const other = json({ issuer: 'https://id.example.com', jwks_uri: 'https://evil.example/jwks' })
    const { find } = open({ [CONFIGURATION]: other })
    await expect(find()).rejects.toEqual(
      fault(/metadata of another issuer than "https:\/\/id\.example\.com\/tenant"/),
    )
    const next = open({
      ...found,
      [CONFIGURATION]: other,
      [METADATA]: json({ issuer: ISSUER, jwks_uri: JWKS }),
    })
    expect(await next.find()).toEqual([KEY])
  })

  it.each<[string, string, unknown, RegExp | undefined]>([
    ['nowhere', ISSUER, undefined, /metadata has no jwks_uri/],
    ['at a list of addresses', ISSUER, [JWKS], /metadata has no jwks_uri/],
    ['at a number', ISSUER, 1, /metadata has no jwks_uri/],
    ['at a path', ISSUER, '/jwks', /metadata has no jwks_uri/],
    ['without TLS', ISSUER, 'http://keys.example.com/jwks', /not an https address/],
    ['on the own machine without TLS', ISSUER, 'http://127.0.0.1/jwks', /not an https address/],
    ['on the own machine', ISSUER, 'https://127.0.0.1/jwks', /internal address/],
    ['in a private network', ISSUER, 'https://10.0.0.1/jwks', /internal address/],
    ['in the same private network', 'https://10.0.0.1', 'https://10.0.0.1:8443/jwks', undefined],
    ['on a machine of development', 'http://localhost:9000', 'http://localhost:9001/jwks', undefined],
    [
      'away from a machine of development',
      'http://localhost:9000',
      'http://keys.example.com/jwks',
      /not an https/,
    ],
    ['at another public host', ISSUER, JWKS, undefined],
  ])('H1 that are %s are judged by that', async (_what, issuer, address, problem) => {
    const url = `${issuer}/.well-known/openid-configuration`
    const { asked, find } = open(
      { [url]: json({ issuer, jwks_uri: address }), [String(address)]: json({ keys: [KEY] }) },
      { issuer },
    )
    if (problem === undefined) expect(await find()).toEqual([KEY])
    else await expect(find()).rejects.toEqual(fault(problem))
    expect(asked).toHaveLength(problem === undefined ? 2 : 1)
  })
})

describe('requests for keys', () => {
  it('I3 T34 are made once per cooldown for keys that are unknown, and not for known ones', async () => {
    const { clock, asked, find } = open(found, { jwks: JWKS })
    await Promise.all([find(), find('b'), find('c')])
    expect(asked).toHaveLength(1)
    clock.now += 29_999
    await find('b')
    expect(asked).toHaveLength(1)
    clock.now += 1
    await find()
    expect(asked).toHaveLength(1)
    await Promise.all([find('b'), find('c')])
    expect(asked).toHaveLength(2)
    clock.now += 29_999
    await find('b')
    expect(asked).toHaveLength(2)
  })

  it('I3 T34 are made every five seconds while there are no keys, or in a shorter cooldown', async () => {
    for (const [cooldownMs, pause] of [
      [30_000, 5_000],
      [2_000, 2_000],
    ] as const) {
      const { clock, asked, find } = open({}, { jwks: JWKS, cooldownMs })
      await expect(find()).rejects.toBeInstanceOf(RemoteFault)
      clock.now += pause - 1
      await expect(find()).rejects.toBeInstanceOf(RemoteFault)
      expect(asked).toHaveLength(1)
      clock.now += 1
      await expect(find()).rejects.toBeInstanceOf(RemoteFault)
      expect(asked).toHaveLength(2)
    }
  })

  it('H1 are made again when the keys are old', async () => {
    const { clock, asked, find } = open(found, { jwks: JWKS })
    await find()
    clock.now += 599_999
    await find()
    expect(asked).toHaveLength(1)
    clock.now += 1
    await find()
    expect(asked).toHaveLength(2)
  })

  it('H1 that fail leave the keys in use for an hour, and tokens with others undecided', async () => {
    const answers: Record<string, Answer> = { [JWKS]: json({ keys: [KEY] }) }
    const { clock, find } = open(answers, { jwks: JWKS })
    await find()
    answers[JWKS] = () => new Response('', { status: 500 })
    clock.now += 600_000
    expect(await find()).toEqual([KEY])
    await expect(find('new')).rejects.toEqual(fault(/status 500/))
    clock.now += 3_599_999
    expect(await find()).toEqual([KEY])
    clock.now += 1
    await expect(find()).rejects.toEqual(fault(/status 500/))
    answers[JWKS] = json({ keys: [{ kid: 'new' }] })
    clock.now += 30_000
    expect(await find('new')).toEqual([{ kid: 'new' }])
    expect(await find('unknown')).toEqual([{ kid: 'new' }])
  })

  it('H1 ask the metadata again after a failure: the keys may have moved', async () => {
    const answers: Record<string, Answer> = { ...found }
    const { clock, asked, find } = open(answers)
    await find()
    asked.length = 0
    clock.now += 600_000
    delete answers[JWKS]
    await find()
    expect(asked).toEqual([JWKS])
    answers[CONFIGURATION] = json({ issuer: ISSUER, jwks_uri: 'https://keys.example.com/moved' })
    answers['https://keys.example.com/moved'] = json({ keys: [{ kid: 'b' }] })
    clock.now += 30_000
    expect(await find('b')).toEqual([{ kid: 'b' }])
    expect(asked).toEqual([JWKS, CONFIGURATION, 'https://keys.example.com/moved'])
  })

  it('H1 are waited for by tokens that come meanwhile', async () => {
    let release = (_response: Response) => {}
    const gate = new Promise<Response>((resolve) => {
      release = resolve
    })
    const { clock, asked, find } = open({ [JWKS]: () => gate }, { jwks: JWKS })
    const all = [find()]
    clock.now += 60_000
    all.push(find())
    release(Response.json({ keys: [KEY] }))
    expect(await Promise.all(all)).toEqual([[KEY], [KEY]])
    expect(asked).toHaveLength(1)
  })
})

describe('a response', () => {
  const limits: RemoteLimits = { timeoutMs: 60_000, maxBytes: 30 }
  const opaque = Object.defineProperty(new Response(), 'type', { value: 'opaqueredirect' })
  Object.defineProperty(opaque, 'status', { value: 0 })
  const broken = () =>
    new Response(
      new ReadableStream({
        start: (controller) => controller.error(new Error('reset')),
      }),
    )
  it.each<[string, Answer, RegExp]>([
    ['is no redirect', () => new Response('', { status: 299 }), /responded with status 299/],
    ['redirects', () => new Response('', { status: 300 }), /redirects elsewhere/],
    ['redirects permanently', () => new Response('', { status: 399 }), /redirects elsewhere/],
    ['fails', () => new Response('', { status: 400 }), /responded with status 400/],
    ['redirects, as a browser says it', () => opaque, /redirects elsewhere/],
    ['is too long', () => Response.json({ keys: [], pad: 'x'.repeat(30) }), /longer than 30 bytes/],
    ['breaks off', broken, /is incomplete/],
    ['is a list', json([]), /not a JSON object/],
    ['is no JSON', () => new Response('{'), /not a JSON object/],
    ['has no keys', json({}), /not a set of keys/],
    ['has keys by name', json({ keys: {} }), /not a set of keys/],
    ['cannot be fetched', () => Promise.reject(new TypeError('fetch failed')), /cannot be reached$/],
    [
      'cannot be fetched for a reason',
      () => Promise.reject(new TypeError('fetch failed', { cause: { code: 'ECONNREFUSED' } })),
      /cannot be reached \(ECONNREFUSED\)$/,
    ],
    [
      'cannot be fetched for an unknown reason',
      () => Promise.reject(new TypeError('fetch failed', { cause: { code: 7 } })),
      /cannot be reached$/,
    ],
    ['cannot be fetched, without an error', () => Promise.reject('no'), /cannot be reached$/],
  ])('H1 I3 that %s is a fault of its own', async (_what, answer, problem) => {
    await expect(open({ [JWKS]: answer }, { jwks: JWKS, limits }).find()).rejects.toEqual(fault(problem))
  })

  it('H1 that cannot be fetched, or breaks off, has the error of the connection as its cause', async () => {
    const refused = () => Promise.reject(new TypeError('fetch failed'))
    for (const [answer, cause] of [
      [refused, new TypeError('fetch failed')],
      [broken, new Error('reset')],
    ] as const) {
      await expect(open({ [JWKS]: answer }, { jwks: JWKS }).find()).rejects.toMatchObject({ cause })
    }
  })

  it('H1 I3 that never comes is a fault of its own', async () => {
    const never = { [JWKS]: () => new Promise<Response>(() => {}) }
    const { find } = open(never, { jwks: JWKS, limits: { ...limits, timeoutMs: 20 } })
    await expect(find()).rejects.toEqual(fault(/did not answer within 20 ms/))
  })

  it('I3 may be as long as the limit', async () => {
    const text = '{"keys":[]}'
    const answer = { [JWKS]: () => new Response(text) }
    const within = (maxBytes: number) =>
      open(answer, { jwks: JWKS, limits: { timeoutMs: 5_000, maxBytes } }).find()
    expect(await within(text.length)).toEqual([])
    await expect(within(text.length - 1)).rejects.toEqual(fault(/longer/))
  })

  it('I3 may have 256 KiB unless a test says otherwise', async () => {
    const sized = (bytes: number): Answer => json({ keys: [], pad: 'x'.repeat(bytes - 20) })
    expect(await open({ [JWKS]: sized(256 * 1024) }, { jwks: JWKS }).find()).toEqual([])
    await expect(open({ [JWKS]: sized(256 * 1024 + 1) }, { jwks: JWKS }).find()).rejects.toEqual(
      fault(/longer than 262144/),
    )
  })

  it('I2 that is an error is not read to its end', async () => {
    let cancelled = false
    const body = new ReadableStream({
      cancel() {
        cancelled = true
        throw new Error('cannot be cancelled')
      },
    })
    const { find } = open({ [JWKS]: () => new Response(body, { status: 500 }) }, { jwks: JWKS })
    await expect(find()).rejects.toEqual(fault(/status 500/))
    expect(cancelled).toBe(true)
  })
})

describe('an address is secure', () => {
  it.each([
    ['https://id.example.com', true],
    ['http://id.example.com', false],
    ['http://localhost:9000', true],
    ['http://127.0.0.1', true],
    ['ws://localhost', false],
    ['https://10.0.0.1', true],
  ])('%s: %s', (url, secure) => {
    expect(isSecure(new URL(url))).toBe(secure)
  })
})

describe('introspection', () => {
  const ENDPOINT = 'https://id.example.com/introspect'
  const NOW = 1_800_000_000
  const CLAIMS = { aud: 'mcp', sub: 'alice', client_id: 'desk', exp: NOW + 600 }
  const configured = { [CONFIGURATION]: json({ issuer: ISSUER, introspection_endpoint: ENDPOINT }) }

  function ask(
    answers: Record<string, Answer>,
    options: Partial<IntrospectionOptions> = {},
    rules: Partial<ClaimRules> = {},
  ) {
    const asked: [string, RequestInit][] = []
    const verify = createIntrospection(
      { client: { id: 'a b', secret: 'c&d' }, ...options },
      {
        issuers: [{ issuer: ISSUER }],
        rules: {
          issuers: [ISSUER],
          audiences: ['mcp'],
          skew: 60,
          client: clientOf,
          granted: grantedBy,
          bindings: new Set(['jkt']),
          ...rules,
        },
        async fetch(url, init) {
          asked.push([url, init])
          return answers[url]?.() ?? new Response('', { status: 404 })
        },
        now: () => NOW * 1_000,
      },
      CLAIM_CHECKS,
    )
    return { asked, verify }
  }

  it('H1 finds its endpoint once, and sends the token with the credentials of the server', async () => {
    const { asked, verify } = ask({ ...configured, [ENDPOINT]: json({ active: true, ...CLAIMS }) })
    const claims = { iss: ISSUER, ...CLAIMS }
    expect(await verify('o&p')).toEqual({ kind: 'claims', claims })
    expect(await verify('o&p')).toEqual({ kind: 'claims', claims })
    expect(asked.map(([url]) => url)).toEqual([CONFIGURATION, ENDPOINT, ENDPOINT])
    expect(asked[1]?.[1]).toMatchObject({
      method: 'POST',
      redirect: 'manual',
      body: 'token=o%26p&token_type_hint=access_token',
      headers: {
        accept: 'application/json',
        'content-type': 'application/x-www-form-urlencoded',
        authorization: `Basic ${Buffer.from('a+b:c%26d').toString('base64')}`,
      },
    })
  })

  it('H1 asks the endpoint that the operator names', async () => {
    const endpoint = 'http://localhost:9000/introspect'
    const { asked, verify } = ask({ [endpoint]: json({ active: true, ...CLAIMS }) }, { endpoint })
    expect(await verify('a')).toMatchObject({ kind: 'claims' })
    expect(asked.map(([url]) => url)).toEqual([endpoint])
  })

  it.each([
    ['nowhere', undefined, /metadata has no introspection_endpoint/],
    ['without TLS', 'http://id.example.com/introspect', /not an https address/],
    ['in a private network', 'https://192.168.0.1/introspect', /leads to an internal address/],
  ])(
    'H1 leaves the token undecided if its endpoint is %s',
    async (_what, introspection_endpoint, problem) => {
      const { verify } = ask({ [CONFIGURATION]: json({ issuer: ISSUER, introspection_endpoint }) })
      expect(await verify('a')).toEqual({
        kind: 'undecided',
        problem: expect.stringMatching(new RegExp(`^The token cannot be introspected: .*${problem.source}`)),
      })
    },
  )

  it.each<[string, object, boolean]>([
    ['a bearer token', { token_type: 'bearer' }, true],
    ['a bearer token in capitals', { token_type: 'BEARER' }, true],
    ['a token that is bound to a key', { token_type: 'DPoP', cnf: { jkt: 'key' } }, true],
    ['a bearer token that is bound to a key', { token_type: 'Bearer', cnf: { jkt: 'key' } }, true],
    ['a bound token without a key', { token_type: 'DPoP' }, false],
    ['a bound token whose key is text', { token_type: 'DPoP', cnf: 'key' }, false],
    ['a token of an unknown type', { token_type: 'mac' }, false],
    ['a bound token of an unknown type', { token_type: 'mac', cnf: { jkt: 'key' } }, false],
    ['a token with a number as its type', { token_type: 1 }, false],
    ['a token with null as its type', { token_type: null }, false],
  ])('H1 judges %s by its type', async (_what, answer, isAccepted) => {
    const { verify } = ask({ ...configured, [ENDPOINT]: json({ active: true, ...CLAIMS, ...answer }) })
    expect(await verify('a')).toMatchObject({ kind: isAccepted ? 'claims' : 'refused' })
  })

  it('R11 reports a fault of its own as what it is', async () => {
    const answers = { ...configured, [ENDPOINT]: json({ active: true, ...CLAIMS }) }
    const client = () => {
      throw new RangeError('ours')
    }
    await expect(ask(answers, {}, { client }).verify('a')).rejects.toThrow('ours')
  })

  it('I3 T34 frees its place when the issuer has answered, or failed, and counts none that is refused', async () => {
    const gates: ((response: Response) => void)[] = []
    const { verify } = ask(
      { [ENDPOINT]: () => new Promise((resolve) => void gates.push(resolve)) },
      { endpoint: ENDPOINT, maxConcurrent: 1 },
    )
    const full = { kind: 'undecided', problem: expect.stringContaining('Too many tokens') }
    const first = verify('a')
    expect(await verify('b')).toEqual(full)
    expect(await verify('b')).toEqual(full)
    await expect.poll(() => gates.length).toBe(1)
    gates[0]?.(new Response('', { status: 500 }))
    expect(await first).toMatchObject({ kind: 'undecided' })
    const second = verify('a')
    expect(await verify('b')).toEqual(full)
    await expect.poll(() => gates.length).toBe(2)
    gates[1]?.(Response.json({ active: true, ...CLAIMS }))
    expect(await second).toMatchObject({ kind: 'claims' })
  })
})
