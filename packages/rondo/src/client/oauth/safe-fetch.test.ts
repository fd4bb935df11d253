/** Requests to URLs that a server named: which are sent, what comes back, and what an error says. */

import { AuthorizationResponseError, ResponseBodyError, WWWAuthenticateChallengeError } from 'oauth4webapi'
import { describe, expect, it } from 'vitest'
import { RondoError } from '../../errors.ts'
import {
  checkUrl,
  createSafeFetch,
  explain,
  type Network,
  oauthCode,
  type SafeFetchOptions,
  unusable,
} from './safe-fetch.ts'

const SERVER = new URL('https://mcp.example.com/mcp')
const ISSUER = 'https://id.example.com/token'

/** Sends one request, with a transport that answers like this. */
function send(
  answer: (init: RequestInit) => Response | Promise<Response>,
  options: Partial<SafeFetchOptions> = {},
) {
  const sent: [string, RequestInit][] = []
  const request = createSafeFetch({
    server: SERVER,
    async fetch(url, init) {
      sent.push([url, init])
      return answer(init)
    },
    ...options,
  })
  return { sent, to: (url: string, init: RequestInit = {}) => request(url, init) }
}
const ok = () => new Response('text', { headers: { 'X-Own': 'yes' } })
const refusal = (code: string, text: RegExp) =>
  expect.objectContaining({ code, message: expect.stringMatching(text) })

describe('a request', () => {
  it('H4 is sent as it is, and follows no redirect', async () => {
    const { sent, to } = send(ok)
    const response = await to(ISSUER, { method: 'POST', body: 'a=b', redirect: 'follow' })
    expect([response.status, await response.text(), response.headers.get('x-own')]).toEqual([
      200,
      'text',
      'yes',
    ])
    expect(sent).toEqual([
      [ISSUER, expect.objectContaining({ method: 'POST', body: 'a=b', redirect: 'manual' })],
    ])
  })

  it('has a response without a body', async () => {
    const response = await send(() => new Response(null, { status: 204 })).to(ISSUER)
    expect([response.status, response.body]).toEqual([204, null])
  })

  it.each([300, 302, 399])(
    'H4 is refused if its response redirects with %i, whose body is not read',
    async (status) => {
      let cancelled = 0
      const body = () =>
        new ReadableStream({
          cancel() {
            cancelled += 1
            throw new Error('cannot be cancelled')
          },
        })
      const { to } = send(() => new Response(body(), { status }))
      await expect(to(ISSUER)).rejects.toEqual(
        refusal('PEER_AUTHORIZATION', /id\.example\.com redirects \/token, which is not followed/),
      )
      expect(cancelled).toBe(1)
      expect((await send(() => new Response('', { status: 299 })).to(ISSUER)).status).toBe(299)
      expect((await send(() => new Response('', { status: 400 })).to(ISSUER)).status).toBe(400)
    },
  )

  it('H4 is refused if its response redirects, as a browser says it', async () => {
    const opaque = Object.defineProperty(new Response(), 'type', { value: 'opaqueredirect' })
    await expect(send(() => opaque).to(ISSUER)).rejects.toEqual(refusal('PEER_AUTHORIZATION', /redirects/))
  })

  it('I3 has a response of at most 256 KiB', async () => {
    const sized = (bytes: number) => send(() => new Response('x'.repeat(bytes))).to(ISSUER)
    expect((await (await sized(262_144)).text()).length).toBe(262_144)
    await expect(sized(262_145)).rejects.toEqual(
      refusal('PEER_AUTHORIZATION', /The response of id\.example\.com is longer than 262144 bytes/),
    )
  })

  it.each<[string, () => Promise<Response>, RegExp]>([
    [
      'is not sent',
      () => Promise.reject(new TypeError('secret')),
      /^\[PEER_UNREACHABLE\] id\.example\.com cannot be reached$/,
    ],
    [
      'is not sent, for a reason',
      () => Promise.reject(new TypeError('secret', { cause: { code: 'ECONNRESET' } })),
      /cannot be reached \(ECONNRESET\)$/,
    ],
    [
      'is not sent, for a reason without a name',
      () => Promise.reject(new TypeError('secret', { cause: { code: 1 } })),
      /cannot be reached$/,
    ],
    ['is not sent, without an error', () => Promise.reject('secret'), /cannot be reached$/],
    [
      'breaks off',
      async () => new Response(new ReadableStream({ start: (out) => out.error(new Error('secret')) })),
      /cannot be reached$/,
    ],
  ])('R11 that %s is unreachable', async (_what, answer, text) => {
    const error = await send(answer)
      .to(ISSUER)
      .catch((reason: unknown) => reason)
    expect(error).toEqual(refusal('PEER_UNREACHABLE', text))
    expect(String(error)).not.toContain('secret')
  })

  const untilAborted = (init: RequestInit) =>
    new Promise<Response>((_resolve, reject) => {
      init.signal?.addEventListener('abort', () => reject(init.signal?.reason))
    })

  it('I2 waits no longer than its limit', async () => {
    const { to } = send(untilAborted, { timeoutMs: 10 })
    await expect(to(ISSUER)).rejects.toEqual(
      refusal('PEER_UNREACHABLE', /id\.example\.com did not respond within 10 ms/),
    )
    const { signal } = new AbortController()
    await expect(to(ISSUER, { signal })).rejects.toEqual(refusal('PEER_UNREACHABLE', /within 10 ms/))
  })

  it('ends with the reason of its caller', async () => {
    const stop = new AbortController()
    const running = send(untilAborted).to(ISSUER, { signal: stop.signal })
    stop.abort(new Error('enough'))
    await expect(running).rejects.toThrow('enough')
  })
})

describe('a URL that a server names', () => {
  it.each<[string, string, string | undefined, RegExp | undefined]>([
    ['https://id.example.com/a', 'https://mcp.example.com', undefined, undefined],
    ['no url', 'https://mcp.example.com', undefined, /contains "no url", which is not a URL/],
    [
      'http://id.example.com',
      'https://mcp.example.com',
      undefined,
      /http:\/\/id\.example\.com must use https/,
    ],
    ['ftp://localhost', 'http://localhost', undefined, /must use https/],
    ['http://localhost:9000', 'http://localhost:3000', undefined, undefined],
    [
      'http://localhost:9000',
      'https://mcp.example.com',
      undefined,
      /names localhost:9000, a private address/,
    ],
    ['http://localhost:9000', 'https://mcp.example.com', 'http://localhost:9000/x', undefined],
    ['http://localhost:9000', 'https://mcp.example.com', 'http://localhost:9001', /private address/],
    ['http://localhost:9000', 'https://mcp.example.com', 'no url', /private address/],
    ['https://10.0.0.1', 'https://10.0.0.2', undefined, undefined],
    [
      'https://user@id.example.com',
      'https://mcp.example.com',
      undefined,
      /URL of id\.example\.com contains credentials/,
    ],
    ['https://:secret@id.example.com', 'https://mcp.example.com', undefined, /contains credentials/],
  ])('H4 T30 %s is allowed to %s, or not', (url, server, trusted, text) => {
    const check = () => checkUrl(url, { server: new URL(server), trusted })
    if (text === undefined) expect(check()).toEqual(new URL(url))
    else expect(check).toThrow(refusal('PEER_AUTHORIZATION', text))
  })

  it('H4 is quoted up to 200 characters', () => {
    expect(() => checkUrl('x'.repeat(300), { server: SERVER })).toThrow(`"${'x'.repeat(200)}"`)
  })
})

describe('a name that a server names', () => {
  /** A network in which names stand for addresses, and one of the addresses has the certificate of the server. */
  function networkOf(addresses: Readonly<Record<string, readonly string[]>>, holder?: string) {
    const asked: string[] = []
    const network: Network = {
      async lookup(name) {
        asked.push(name)
        const found = addresses[name]
        if (found === undefined) throw new Error('not found')
        return found
      },
      async holds(address, name, port) {
        asked.push(`${address} ${name}:${port}`)
        return address === holder
      },
    }
    return { asked, network }
  }

  it.each<[string, Readonly<Record<string, readonly string[]>>, string | undefined, boolean]>([
    ['is public', { 'id.example.com': ['93.184.215.14'] }, undefined, true],
    ['is unknown', {}, undefined, true],
    ['is private', { 'id.example.com': ['10.0.0.1'] }, undefined, false],
    ['is also private', { 'id.example.com': ['93.184.215.14', '10.0.0.1'] }, undefined, false],
    [
      'is private like the server itself',
      { 'id.example.com': ['10.0.0.1'], 'mcp.example.com': ['10.0.0.2'] },
      '10.0.0.2',
      true,
    ],
    [
      'is private like the server claims to be',
      { 'id.example.com': ['10.0.0.1'], 'mcp.example.com': ['10.0.0.2'] },
      undefined,
      false,
    ],
    [
      'is private, and the server is not',
      { 'id.example.com': ['10.0.0.1'], 'mcp.example.com': ['93.184.215.14'] },
      '93.184.215.14',
      false,
    ],
  ])('H4 T30 and that %s is judged by that', async (_what, addresses, holder, isAllowed) => {
    const { network } = networkOf(addresses, holder)
    const { sent, to } = send(ok, { network })
    if (isAllowed) expect((await to(ISSUER)).status).toBe(200)
    else
      await expect(to(ISSUER)).rejects.toEqual(
        refusal('PEER_AUTHORIZATION', /names id\.example\.com, which is at the private address 10\.0\.0\.1/),
      )
    expect(sent).toHaveLength(isAllowed ? 1 : 0)
  })

  it.each<[string, string, Partial<SafeFetchOptions>]>([
    ['that is the host of the server', 'https://mcp.example.com/other', {}],
    ['that the caller named', ISSUER, { trusted: 'https://id.example.com' }],
    ['that a private server names', ISSUER, { server: new URL('https://10.0.0.9') }],
  ])('H4 is not resolved if it is one %s', async (_what, url, options) => {
    const { asked, network } = networkOf({ 'id.example.com': ['10.0.0.1'] })
    expect((await send(ok, { network, ...options }).to(url)).status).toBe(200)
    expect(asked).toEqual([])
  })

  it('H4 has the server asked once whether it is inside, at its own port', async () => {
    const addresses = { 'id.example.com': ['10.0.0.1'], 'mcp.example.com': ['10.0.0.2'] }
    for (const [server, port] of [
      ['https://mcp.example.com', 443],
      ['https://mcp.example.com:8443', 8443],
    ] as const) {
      const { asked, network } = networkOf(addresses, '10.0.0.2')
      const { to } = send(ok, { network, server: new URL(server) })
      await to(ISSUER)
      await to(ISSUER)
      expect(asked).toEqual([
        'id.example.com',
        'mcp.example.com',
        `10.0.0.2 mcp.example.com:${port}`,
        'id.example.com',
      ])
    }
  })
})

describe('what an authorization server refuses', () => {
  const failing = (error: unknown, secrets: (string | undefined)[] = []) =>
    explain('https://id.example.com', 'log in', secrets, () => Promise.reject(error)).catch(
      (reason: unknown) => reason,
    )
  const response = new Response('{}', { status: 400 })

  it('H4 is one sentence, with the code of OAuth', async () => {
    const cause = { error: 'invalid_grant', error_description: 'the code has expired' }
    const error = await failing(new ResponseBodyError('bad', { cause, response }))
    expect(error).toMatchObject({
      code: 'PEER_AUTHORIZATION',
      message:
        '[PEER_AUTHORIZATION] Could not log in at https://id.example.com: invalid_grant: the code has expired',
      data: { error: 'invalid_grant', issuer: 'https://id.example.com' },
    })
    expect(oauthCode(error)).toBe('invalid_grant')
  })

  it('H4 may have a code alone, in a redirect too', async () => {
    const cause = new URLSearchParams({ error: 'access_denied' })
    const error = await failing(new AuthorizationResponseError('bad', { cause }))
    expect(error).toMatchObject({ message: expect.stringMatching(/: access_denied$/) })
    expect(oauthCode(error)).toBe('access_denied')
  })

  it('H4 with status 401 is the client', async () => {
    const refused = new Response('', { status: 401 })
    const error = await failing(new WWWAuthenticateChallengeError('bad', { cause: [], response: refused }))
    expect(error).toMatchObject({
      message: expect.stringMatching(/: the client was refused \(HTTP status 401\)$/),
    })
    expect(oauthCode(error)).toBe('invalid_client')
  })

  it('H4 quotes no secret that was sent', async () => {
    const error = await failing(new Error('verifier abc and code xyz and abc'), ['abc', undefined, '', 'xyz'])
    expect((error as Error).message).toMatch(/: verifier … and code … and …$/)
    expect((error as RondoError).data).toBeUndefined()
    expect(oauthCode(error)).toBeUndefined()
  })

  it.each<[string, unknown]>([
    ['an error of ours', new RondoError('PEER_LOGIN', 'ours')],
    ['no error', 'text'],
    ['an abort', new DOMException('stopped', 'AbortError')],
  ])('passes on %s', async (_what, error) => {
    expect(await failing(error)).toBe(error)
  })

  it('is nothing else', async () => {
    expect(await explain('https://id.example.com', 'log in', [], async () => 'in')).toBe('in')
    expect(oauthCode(new RondoError('PEER_LOGIN', 'x', { data: { error: 'invalid_grant' } }))).toBeUndefined()
    expect(oauthCode(unusable('x', { error: 1 }))).toBeUndefined()
    expect(oauthCode(unusable('x'))).toBeUndefined()
    expect(oauthCode(new Error('x'))).toBeUndefined()
    expect(unusable('y'.repeat(2_000)).message.length).toBeLessThan(1_100)
  })
})
