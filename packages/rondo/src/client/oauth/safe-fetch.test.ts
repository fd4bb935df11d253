/** Requests to URLs that a server named: which are sent, what comes back, and what an error says. */

import { createHook } from 'node:async_hooks'
import { createServer as createHttpServer } from 'node:http'
import { type AddressInfo, createServer, type Server } from 'node:net'
import { createServer as createTlsServer } from 'node:tls'
import { AuthorizationResponseError, ResponseBodyError, WWWAuthenticateChallengeError } from 'oauth4webapi'
import { describe, expect, it, onTestFinished, vi } from 'vitest'
import { RondoError } from '../../errors.ts'
import {
  checkUrl,
  createSafeFetch,
  explain,
  type Network,
  oauthCode,
  type SafeFetchOptions,
  systemNetwork,
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

/** Opens a server on a free port until the end of the test. */
async function listen(server: Server): Promise<number> {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => void server.close())
  return (server.address() as AddressInfo).port
}

describe('the network of this machine', () => {
  const name = 'mcp.example.com'
  const network = (handshakeMs?: number) => systemNetwork(handshakeMs) as Network

  it('H4 sends requests to servers on this machine', async () => {
    const http = createHttpServer((request, response) => {
      response.writeHead(200, { Connection: 'close' }).end(request.url)
    })
    const origin = `http://127.0.0.1:${await listen(http)}`
    const response = await createSafeFetch({ server: new URL(origin) })(`${origin}/token`, { method: 'POST' })
    expect(await response.text()).toBe('/token')
  })

  it('H4 T30 is asked for the names that a server names, unless a fetch decides what can be reached', async () => {
    let lookups = 0
    const hook = createHook({
      init(_id, type) {
        if (type === 'GETADDRINFOREQWRAP') lookups += 1
      },
    })
    hook.enable()
    onTestFinished(() => void hook.disable())
    // No name may have 64 letters without a dot, so no other machine is asked for it; and nothing is sent.
    const url = `https://${'x'.repeat(64)}.example.com`
    const init = { signal: AbortSignal.abort(new Error('not sent')) }
    await expect(createSafeFetch({ server: SERVER, fetch })(url, init)).rejects.toThrow('not sent')
    expect(lookups).toBe(0)
    await expect(createSafeFetch({ server: SERVER })(url, init)).rejects.toThrow('not sent')
    expect(lookups).toBe(1)
  })

  it('H4 T30 resolves names to all of their addresses', async () => {
    expect(await network().lookup('127.0.0.1')).toEqual(['127.0.0.1'])
    expect(await network().lookup('[::1]')).toEqual(['::1'])
    const found = await network().lookup('localhost')
    expect(found.length).toBeGreaterThan(0)
    for (const one of found) expect(['127.0.0.1', '::1']).toContain(one)
  })

  it('H4 T30 holds a name where a server proves it, and tells it which name', async () => {
    const names: string[] = []
    const pem = (kind: string, base64: string) =>
      `-----BEGIN ${kind}-----\n${base64}\n-----END ${kind}-----\n`
    const server = createTlsServer({
      key: pem('PRIVATE KEY', KEY),
      cert: pem('CERTIFICATE', CERTIFICATE),
      SNICallback(asked, done) {
        names.push(asked)
        done(null)
      },
    })
    const port = await listen(server)
    // Nobody whom this machine trusts has signed the certificate.
    expect(await network().holds('127.0.0.1', name, port)).toBe(false)
    vi.stubEnv('NODE_TLS_REJECT_UNAUTHORIZED', '0')
    onTestFinished(() => void vi.unstubAllEnvs())
    expect(await network().holds('127.0.0.1', name, port)).toBe(true)
    expect(names).toEqual([name, name])
  })

  it('H4 T30 holds no name where a server has no certificate, or is silent, or is missing', async () => {
    const plain = createServer((socket) => socket.end('hello').on('error', () => {}))
    expect(await network().holds('127.0.0.1', name, await listen(plain))).toBe(false)
    let ended = false
    const silent = createServer((socket) => {
      socket.resume().on('close', () => {
        ended = true
      })
    })
    const port = await listen(silent)
    expect(await network(10).holds('127.0.0.1', name, port)).toBe(false)
    await expect.poll(() => ended).toBe(true)
    await new Promise((resolve) => silent.close(resolve))
    expect(await network().holds('127.0.0.1', name, port)).toBe(false)
  })

  it.each([undefined, {}])('is unknown where the process is %j', (process) => {
    vi.stubGlobal('process', process)
    const found = systemNetwork()
    vi.unstubAllGlobals()
    expect(found).toBeUndefined()
  })
})

/** For mcp.example.com, signed by itself, until 2126. */
const CERTIFICATE =
  'MIIBpzCCAU2gAwIBAgIUMUBVhLnw75BVBLkXNGmJS93vu80wCgYIKoZIzj0EAwIwGjEYMBYGA1UEAwwPbWNwLmV4YW1wbGUuY29t' +
  'MCAXDTI2MTExOTA0NDMxMFoYDzIxMjYxMDI2MDQ0MzEwWjAaMRgwFgYDVQQDDA9tY3AuZXhhbXBsZS5jb20wWTATBgcqhkjOPQIB' +
  'BggqhkjOPQMBBwNCAARXBi73eVSU/AAFyVxCJAuKJwXWaydBSmPzYsQ75FDZY+gWykB3aCrwvp1xLt+PAdSFO8kqReHlLjo0jNfC' +
  'KcJRo28wbTAdBgNVHQ4EFgQU6Rx5Snd74IdNSxIL15t6kpH8WNgwHwYDVR0jBBgwFoAU6Rx5Snd74IdNSxIL15t6kpH8WNgwDwYD' +
  'VR0TAQH/BAUwAwEB/zAaBgNVHREEEzARgg9tY3AuZXhhbXBsZS5jb20wCgYIKoZIzj0EAwIDSAAwRQIhAPEVEWEkDibYwwkJZdfU' +
  'H08ZO4pQ9hRe8J0hVuC17ih0AiBenvEzztbzZRP+MzixMr6IAv8WAB1OSTWtX+b0/atckA=='
const KEY =
  'MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgP4lYW/Kjae2Uv2XQ3CUu0dsjXnAn/AY7fx1cyosJ26qhRANCAARX' +
  'Bi73eVSU/AAFyVxCJAuKJwXWaydBSmPzYsQ75FDZY+gWykB3aCrwvp1xLt+PAdSFO8kqReHlLjo0jNfCKcJR'

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
