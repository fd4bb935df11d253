/** Tokens of callers that are exchanged: for whom, for which server, and for how long they are kept. */

import { describe, expect, it } from 'vitest'
import { keepToken } from '../../lib/subject-token.ts'
import { type ExchangeOptions, exchange } from './exchange.ts'

const ISSUER = 'https://id.example.com'
const TABLES = 'https://tables.example.com/mcp'
const NOTES = 'https://notes.example.com/mcp'
const ACCESS_TOKEN = 'urn:ietf:params:oauth:token-type:access_token'
const NOW = 1_800_000_000_000

/** An exchange at an issuer that answers requests for tokens like this. */
function open(
  changes: Partial<ExchangeOptions> = {},
  answer?: (count: number) => object | Response | Promise<Response>,
) {
  const clock = { now: NOW }
  const sent: Record<string, string>[] = []
  const headersFor = exchange({
    issuer: ISSUER,
    client: { id: 'gateway', secret: 'the-secret' },
    resources: { tables: TABLES, notes: NOTES },
    subjectToken: ({ subject }) => subject,
    now: () => clock.now,
    async fetch(url, init) {
      if (url.includes('.well-known'))
        return Response.json({ issuer: ISSUER, token_endpoint: `${ISSUER}/token` })
      sent.push(Object.fromEntries(new URLSearchParams(String(init.body))))
      const given = await (answer?.(sent.length) ?? {})
      if (given instanceof Response) return given
      return Response.json({
        access_token: `token-${sent.length}`,
        token_type: 'Bearer',
        issued_token_type: ACCESS_TOKEN,
        expires_in: 60,
        ...given,
      })
    },
    ...changes,
  })
  const as = async (subject: string, server = 'tables') =>
    (await headersFor({ subject }, server)).Authorization
  return { clock, sent, headersFor, as }
}

describe('the token of a caller', () => {
  it('H8 is exchanged for one of a server, with the credentials of this program', async () => {
    const { sent, as } = open()
    expect(await as('alice')).toBe('Bearer token-1')
    expect(sent).toEqual([
      {
        grant_type: 'urn:ietf:params:oauth:grant-type:token-exchange',
        subject_token: 'alice',
        subject_token_type: ACCESS_TOKEN,
        requested_token_type: ACCESS_TOKEN,
        resource: TABLES,
      },
    ])
    const scoped = open({ scopes: ['a', 'b'] })
    await scoped.as('alice')
    expect(scoped.sent[0]).toMatchObject({ scope: 'a b' })
  })

  it('H8 T36 is exchanged for each caller and each server, and kept until shortly before it expires', async () => {
    const { clock, sent, as } = open()
    expect([await as('alice'), await as('bob'), await as('alice', 'notes'), await as('alice')]).toEqual([
      'Bearer token-1',
      'Bearer token-2',
      'Bearer token-3',
      'Bearer token-1',
    ])
    expect(sent.map(({ resource }) => resource)).toEqual([TABLES, TABLES, NOTES])
    clock.now += 49_999
    expect(await as('alice')).toBe('Bearer token-1')
    clock.now += 1
    expect(await as('alice')).toBe('Bearer token-4')
    expect(await as('alice')).toBe('Bearer token-4')
  })

  it('is exchanged every time for one whose end nobody knows', async () => {
    const { as } = open({}, () => ({ expires_in: undefined }))
    expect([await as('alice'), await as('alice')]).toEqual(['Bearer token-1', 'Bearer token-2'])
  })

  it('is exchanged once for requests that come together, the first time and later', async () => {
    const { clock, sent, as } = open()
    const together = () => Promise.all([1, 2, 3].map(() => as('alice')))
    expect(await together()).toEqual(['Bearer token-1', 'Bearer token-1', 'Bearer token-1'])
    // All of them find a token that has expired.
    clock.now += 60_000
    expect(await together()).toEqual(['Bearer token-2', 'Bearer token-2', 'Bearer token-2'])
    expect(sent).toHaveLength(2)
  })

  it('R11 is exchanged again after a refusal, which quotes no secret', async () => {
    const bad = { error: 'invalid_grant', error_description: 'alice and the-secret' }
    const { as } = open({}, (count) => (count === 1 ? Response.json(bad, { status: 400 }) : {}))
    await expect(as('alice')).rejects.toMatchObject({
      code: 'PEER_AUTHORIZATION',
      message: expect.stringMatching(
        /Could not exchange the token of the caller at .*: invalid_grant: … and …$/,
      ),
    })
    expect(await as('alice')).toBe('Bearer token-2')
  })

  it.each<[string, object]>([
    ['is bound to a key', { token_type: 'DPoP' }],
    ['is of another type', { issued_token_type: 'urn:ietf:params:oauth:token-type:jwt' }],
    ['has no type', { issued_token_type: undefined }],
  ])('T36 is of no use if its result %s', async (_what, answer) => {
    await expect(open({}, () => answer).as('alice')).rejects.toMatchObject({ code: 'PEER_AUTHORIZATION' })
  })

  it('T36 is never its own result', async () => {
    await expect(open({}, () => ({ access_token: 'alice' })).as('alice')).rejects.toThrow(
      /returned the token of the caller, which is not passed on/,
    )
  })
})

describe('a caller', () => {
  it('H8 has the token that was verified, unless the program says otherwise', async () => {
    const { sent, headersFor } = open({ subjectToken: undefined })
    const principal = { subject: 'alice' }
    await expect(headersFor(principal, 'tables')).rejects.toMatchObject({ code: 'PEER_LOGIN' })
    keepToken(principal, 'verified')
    await headersFor(principal, 'tables')
    expect(sent[0]).toMatchObject({ subject_token: 'verified' })
  })

  it.each<[string, Partial<ExchangeOptions>, { subject: string } | undefined, string, RegExp]>([
    [
      'without a token',
      { subjectToken: () => undefined },
      { subject: 'alice' },
      'tables',
      /no token to exchange for "tables"/,
    ],
    [
      'with an empty token',
      { subjectToken: () => '' },
      { subject: 'alice' },
      'tables',
      /no token to exchange/,
    ],
    [
      'without a token, where there are credentials for lists',
      { subjectToken: () => undefined, lists: () => ({}) },
      { subject: 'alice' },
      'tables',
      /no token to exchange/,
    ],
    ['that is anonymous', {}, undefined, 'tables', /no token to exchange/],
    ['of a server without a resource', {}, { subject: 'alice' }, 'other', /no resource for "other"/],
    [
      'of a server that is a member of every object',
      {},
      { subject: 'alice' },
      'constructor',
      /no resource for "constructor"/,
    ],
    [
      'that is anonymous, of a server without a resource',
      { lists: () => ({ a: 'b' }) },
      undefined,
      'other',
      /no resource/,
    ],
  ])('H8 T36 is refused %s', async (_what, changes, principal, server, text) => {
    const { sent, headersFor } = open(changes)
    await expect(headersFor(principal, server)).rejects.toMatchObject({
      code: 'PEER_LOGIN',
      message: expect.stringMatching(text),
    })
    expect(sent).toEqual([])
  })

  it('H8 is nobody where lists are read: these have credentials of their own', async () => {
    const { sent, headersFor } = open({ lists: (server) => ({ Authorization: `own for ${server}` }) })
    expect(await headersFor(undefined, 'tables')).toEqual({ Authorization: 'own for tables' })
    expect(sent).toEqual([])
    expect(await headersFor({ subject: 'alice' }, 'tables')).toEqual({ Authorization: 'Bearer token-1' })
  })
})

describe('exchange', () => {
  it.each<[string, Partial<ExchangeOptions>]>([
    ['an issuer', { issuer: 'id' }],
    ['a client', { client: { id: '' } }],
    ['a client at all', { client: undefined }],
    ['a resource', { resources: {} }],
  ])('needs %s', (_what, changes) => {
    expect(() => open(changes)).toThrow(
      /exchange needs the issuer, the client that it knows, and the resources/,
    )
  })

  it('has no other options', () => {
    expect(() => open({ resource: TABLES } as never)).toThrow(/^exchange has no option/)
  })
})
