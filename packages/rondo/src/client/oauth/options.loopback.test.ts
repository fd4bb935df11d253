/** The port that receives the redirect of a login: which requests end the login, and what everybody else gets. */

import { request } from 'node:http'
import { connect } from 'node:net'
import { describe, expect, it, onTestFinished, vi } from 'vitest'
import { type LoginLink, type LoopbackOptions, loopback } from './options.ts'

const STATE = 'the-state'

/** Opens the port of one login. */
async function open(options: Partial<LoopbackOptions> = {}) {
  const attempt = await loopback({ onLink: () => {}, ...options })()
  onTestFinished(() => attempt.close?.())
  const stop = new AbortController()
  const link: LoginLink = {
    url: new URL('https://id.example.com/authorize'),
    server: new URL('https://mcp.example.com/mcp'),
    issuer: 'https://id.example.com',
    scopes: [],
    state: STATE,
    signal: stop.signal,
  }
  const redirect = new URL(attempt.redirectUri)
  const send = (path: string, method = 'GET') =>
    new Promise<{ status?: number; text: string; headers: object }>((resolve, reject) => {
      request({ host: '127.0.0.1', port: redirect.port, path, method }, async (response) => {
        const chunks = await response.setEncoding('utf8').toArray()
        resolve({ status: response.statusCode, text: chunks.join(''), headers: response.headers })
      })
        .on('error', reject)
        .end()
    })
  return { attempt, redirect, link, stop, send }
}

/** The error with which a connection fails; undefined if there is somebody. */
const knock = (host: string, port: number) =>
  new Promise<string | undefined>((resolve) => {
    const socket = connect({ host, port }, () => resolve(undefined))
    socket
      .on('error', (error: NodeJS.ErrnoException) => resolve(error.code))
      .on('connect', () => socket.end())
  })

describe('the redirect of a login', () => {
  it('H4 ends it, with everything that the authorization server said', async () => {
    const shown: LoginLink[] = []
    const { attempt, redirect, link, send } = await open({ onLink: (one) => shown.push(one) })
    expect(attempt.redirectUri).toMatch(/^http:\/\/127\.0\.0\.1:\d+\/callback$/)
    const visiting = attempt.visit(link)
    expect(shown).toEqual([link])
    const { status, text, headers } = await send(`/callback?code=c&state=${STATE}`)
    expect([status, text]).toEqual([200, 'You are logged in. You may close this window.\n'])
    expect(headers).toMatchObject({
      'content-type': 'text/plain; charset=utf-8',
      'cache-control': 'no-store',
      'referrer-policy': 'no-referrer',
      connection: 'close',
    })
    expect(String(await visiting)).toBe(`${redirect.href}?code=c&state=${STATE}`)
  })

  it('H4 ends it with an error too, and the person is told', async () => {
    const { attempt, redirect, link, send } = await open()
    const visiting = attempt.visit(link)
    const query = `?error=access_denied&state=${STATE}`
    expect(await send(`/callback${query}`)).toMatchObject({
      status: 200,
      text: 'The login failed. You may close this window.\n',
    })
    expect(String(await visiting)).toBe(redirect.href + query)
  })

  it.each([
    ['has another state', '/callback?code=evil&state=other', 'GET'],
    ['has no state', '/callback?code=evil', 'GET'],
    ['has another path', `/other?code=evil&state=${STATE}`, 'GET'],
    ['has another method', `/callback?code=evil&state=${STATE}`, 'POST'],
    ['has no URL', '//', 'GET'],
  ])('H4 T30 is none if it %s', async (_what, path, method) => {
    const { attempt, link, send } = await open()
    const visiting = attempt.visit(link)
    expect(await send(path, method)).toMatchObject({
      status: 400,
      text: 'This is not the redirect of the login that is going on.\n',
    })
    await send(`/callback?code=good&state=${STATE}`)
    expect(String(await visiting)).toContain('code=good')
  })

  it('H4 T30 is none before the link was shown', async () => {
    const { attempt, link, send } = await open()
    for (const query of ['?code=evil', '?code=evil&state=', `?code=evil&state=${STATE}`])
      expect(await send(`/callback${query}`)).toMatchObject({ status: 400 })
    const visiting = attempt.visit(link)
    await send(`/callback?code=good&state=${STATE}`)
    expect(String(await visiting)).toContain('code=good')
  })

  it('arrives under the name, the port and the path that the program chooses', async () => {
    const first = await open()
    const port = Number(first.redirect.port)
    await first.attempt.close?.()
    const { attempt, link, send } = await open({ host: 'localhost', port, path: '/done' })
    expect(attempt.redirectUri).toBe(`http://localhost:${port}/done`)
    const visiting = attempt.visit(link)
    await send(`/done?code=c&state=${STATE}`)
    expect(String(await visiting)).toBe(`${attempt.redirectUri}?code=c&state=${STATE}`)
  })

  it('is not waited for when the login is over', async () => {
    const { attempt, redirect, link, stop } = await open()
    const visiting = attempt.visit(link)
    stop.abort(new Error('enough'))
    await expect(visiting).rejects.toThrow('enough')
    await attempt.close?.()
    expect(await knock('127.0.0.1', Number(redirect.port))).toBe('ECONNREFUSED')
  })

  it('H4 T30 can come from this machine only', async () => {
    const port = Number((await open()).redirect.port)
    expect(await knock('127.0.0.1', port)).toBeUndefined()
    // A port that is open to the network answers here too.
    expect(await knock('127.0.0.2', port)).toBe('ECONNREFUSED')
  })

  it('needs a port that is free', async () => {
    const port = Number((await open()).redirect.port)
    await expect(open({ port })).rejects.toMatchObject({
      code: 'PEER_LOGIN',
      message: expect.stringContaining(`Port ${port} cannot be used for the redirect (EADDRINUSE)`),
    })
  })
})

describe('loopback', () => {
  it.each<[object, RegExp]>([
    [{ onLink: undefined, onlink: () => {} }, /^loopback has no option "onlink"/],
    [{ onLink: 'link' }, /^loopback: onLink must be a function/],
    [{ port: 65_536 }, /^loopback: port must be a number from 0 to 65535/],
    [{ host: '0.0.0.0' }, /^loopback: host must be one of 127\.0\.0\.1, localhost/],
    [{ path: 1 }, /^loopback: path must be a string/],
  ])('refuses %j', (options, text) => {
    expect(() => loopback({ onLink: () => {}, ...options } as LoopbackOptions)).toThrow(text)
  })

  it.each([undefined, {}])('says that it needs Node where the process is %j', async (process) => {
    const begin = loopback({ onLink: () => {} })
    vi.stubGlobal('process', process)
    const attempt = begin()
    vi.unstubAllGlobals()
    await expect(attempt).rejects.toThrow('loopback needs Node; in a browser, pass a `login` of your own')
  })
})
