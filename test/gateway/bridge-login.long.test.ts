/** Logins of `rondo login` in `rondo bridge`, and the token that protects them when it listens. Needs the build. */

import { spawn } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js'
import { connect } from 'rondo/client'
import { afterAll, beforeAll, beforeEach, describe, expect, it, onTestFinished } from 'vitest'
import { type AuthorizationServer, startAuthorizationServer } from '../support/authorization-server.ts'
import { type ProtectedServer, startProtected } from '../support/login-server.ts'
import { CLI } from '../support/run-cli.ts'
import { useCliHome } from '../support/use-cli.ts'
import { connectV1 } from '../support/v1-client.ts'
import { serveOfficial } from './peers.ts'

const home = useCliHome()
let as: AuthorizationServer
let server: ProtectedServer
beforeAll(async () => {
  as = await startAuthorizationServer()
  server = await startProtected(as)
})
afterAll(async () => {
  await server.close()
  await as.close()
})
beforeEach(() => logIn())

/** Runs a command, and calls `onText` with everything that it has written to stderr so far. */
function run(args: readonly string[], onText: (text: string) => void) {
  const child = spawn(process.execPath, [CLI, ...args], {
    env: home.env,
    stdio: ['ignore', 'ignore', 'pipe'],
  })
  let text = ''
  child.stderr.setEncoding('utf8').on('data', (more: string) => {
    text += more
    onText(text)
  })
  const ended = new Promise<number | null>((done) => child.on('close', done))
  return { child, ended }
}

async function logIn(): Promise<void> {
  let isVisited = false
  const { ended } = run(['login', server.url], (text) => {
    const link = /^ {2}(http\S+)\n/m.exec(text)?.[1]
    if (link === undefined || isVisited) return
    isVisited = true
    void as.visit(link).then((redirect) => fetch(redirect))
  })
  expect(await ended).toBe(0)
}

/** Starts a bridge that listens. Returns its URL and the token that it printed. */
async function listen(...args: string[]) {
  const { url, token } = await new Promise<{ url: string; token?: string }>((found, fail) => {
    const { child, ended } = run(['bridge', '--listen', '0', ...args], (text) => {
      const [, address, secret] = /serving (\S+)(?: with the token (\S+))?.*\n/.exec(text) ?? []
      if (address !== undefined) found({ url: address, ...(secret && { token: secret }) })
    })
    onTestFinished(() => void child.kill('SIGKILL'))
    void ended.then((code) => fail(new Error(`the bridge ended with ${code}`)))
  })
  const greet = async (headers: Record<string, string>) => {
    const form = () => ({ action: 'accept', content: { name: 'Ada' } }) as const
    const client = await connect(url, { headers, answers: { elicitation: { form } } })
    onTestFinished(() => client.close())
    return JSON.stringify((await client.callTool('greet')).content)
  }
  return { url, token, greet }
}

describe('W5 a login of rondo login', () => {
  it('is used by a bridge over stdio whose host sends no credentials', async () => {
    const args = [CLI, 'bridge', server.url]
    const transport = new StdioClientTransport({
      command: process.execPath,
      args,
      env: home.env,
      stderr: 'ignore',
    })
    const client = await connectV1(transport as never)
    onTestFinished(() => client.close())
    const call = { method: 'tools/call', target: 'greet' } as const
    expect((await client.run(call, { name: { name: 'Ada' } })).text).toMatch(/Hello Ada, alice of /)
  })

  it.each(['a URL', 'a configuration file'])(
    'of %s is protected by a token while the bridge listens',
    async (kind) => {
      const file = join(home.path, 'mcp.json')
      writeFileSync(file, JSON.stringify({ mcpServers: { desk: { url: server.url } } }))
      const {
        url,
        token = '',
        greet,
      } = await listen(...(kind === 'a URL' ? [server.url] : ['--config', file]))
      expect(token).toMatch(/^[\w-]{32}$/)
      const bearer = (one: string) => ({ Authorization: `Bearer ${one}` })
      const wrong = [{}, bearer(''), bearer(`${token}x`), bearer(token.slice(1)), { Authorization: token }]
      for (const headers of wrong) {
        const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/list' })
        const type = { 'Content-Type': 'application/json', Accept: 'application/json, text/event-stream' }
        const { status } = await fetch(url, {
          method: 'POST',
          body,
          headers: { ...type, ...headers } as Record<string, string>,
        })
        expect(status).toBe(401)
        await expect(greet(headers as Record<string, string>)).rejects.toThrow(/401|login/i)
      }
      expect(await greet(bearer(token))).toMatch(/Hello Ada, alice of /)
    },
  )

  it.each(['Authorization: Bearer secret', 'X-Key: secret'])(
    'is not needed for a token: what --header "%s" sends is protected as well',
    async (header) => {
      const { url, token, greet } = await listen(await serveOfficial(), '--header', header)
      expect(token).toMatch(/^[\w-]{32}$/)
      await expect(greet({})).rejects.toThrow(/401|login/i)
      const headers = { 'Content-Type': 'application/json', Accept: 'application/json, text/event-stream' }
      const inQuery = await fetch(`${url}?token=${token}`, { method: 'POST', body: '{}', headers })
      expect(inQuery.status).toBe(401)
      expect(await greet({ Authorization: `Bearer ${token}` })).toContain('Hello, Ada!')
    },
  )

  it('control: nothing is protected if no login is used', async () => {
    const { token, greet } = await listen(await serveOfficial())
    expect(token).toBeUndefined()
    expect(await greet({})).toContain('Hello, Ada!')
  })

  it('is asked for, with the command to log in, if there is none', async () => {
    expect((await home.run(['logout', server.url])).code).toBe(0)
    const { code, stderr } = await home.run(['bridge', server.url])
    expect(code).toBe(5)
    expect(stderr.trimEnd().split('\n')).toEqual([
      expect.stringMatching(/^rondo: The server requires a login \(HTTP status 401/),
      `rondo: Pass a token with --bearer. Or log in: rondo login ${server.url}`,
    ])
  })
})
