/** `rondo login`, `logout` and `whoami` against a real authorization server, and the commands that use the login. Needs the build. */

import { spawn } from 'node:child_process'
import { readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { EXITS } from '../../packages/cli/src/command-line.ts'
import {
  type AuthorizationServer,
  ROBOT_SECRET,
  startAuthorizationServer,
} from '../support/authorization-server.ts'
import { type ProtectedServer, startProtected } from '../support/login-server.ts'
import { CLI, type Ran } from '../support/run-cli.ts'
import { useCliHome } from '../support/use-cli.ts'

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

/** Runs `rondo login` and follows the link that it prints, after what `meanwhile` does with the redirect. */
function logIn(args: readonly string[] = [], meanwhile = async (_redirect: URL) => {}): Promise<Ran> {
  return new Promise((done, fail) => {
    const child = spawn(process.execPath, [CLI, 'login', server.url, ...args], { env: home.env })
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
      const visit = async () => {
        const redirect = await as.visit(link)
        await meanwhile(redirect)
        const page = await fetch(redirect)
        expect(await page.text()).toMatch(/You are logged in/)
      }
      visit().catch(fail)
    })
    child.on('error', fail)
    child.on('close', (code) => done({ code, ...texts }))
  })
}

const files = (): string[] =>
  readdirSync(join(home.path, 'logins')).map((name) => join(home.path, 'logins', name))
const kept = () => JSON.parse(readFileSync(files()[0] ?? '', 'utf8'))

it('H4 T31 rondo login logs in once for all commands, keeps the login readable by its owner only, and prints no token', async () => {
  const asked = await home.run(['tools', server.url])
  expect(asked.stderr.trimEnd().split('\n')).toEqual([
    expect.stringMatching(/^rondo: The server requires a login \(HTTP status 401(, \w+)?\) \[PEER_HTTP\]$/),
    `rondo: Pass a token with --bearer. Or log in: rondo login ${server.url}`,
  ])
  const login = await logIn()
  expect(login.stderr).toMatch(/Logged in at http/)
  expect(login.code).toBe(0)
  expect(files()).toHaveLength(1)
  expect(statSync(files()[0] ?? '').mode & 0o777).toBe(0o600)
  const { tokens } = kept()

  const pending = await home.json(['call', server.url, 'greet', '--detach'])
  expect(pending.value.status).toBe('input_required')
  const stored = readFileSync(join(home.path, 'pending', `${pending.value.id}.json`), 'utf8')
  const done = await home.run(['resume', String(pending.value.id), '--answers', '-'], {
    input: '{"name":{"name":"Ada"}}',
  })
  expect(done.stdout).toMatch(/Hello Ada, alice of /)

  const who = await home.run(['whoami', server.url])
  expect(who.stdout).toMatch(new RegExp(`${server.url} .*${as.issuer} +tickets:read.* valid`))
  const printed = [login, pending, done, who].map(({ stdout, stderr }) => stdout + stderr).join('') + stored
  for (const token of [tokens.accessToken, tokens.refreshToken]) {
    expect(token).toBeTypeOf('string')
    expect(printed).not.toContain(token)
  }

  const needed = await home.run(['call', server.url, 'refund'])
  expect(needed.stderr).toMatch(
    /requires a login with the scope tickets:read tickets:write \[PEER_LOGIN\]\nrondo: Log in: rondo login http\S+ --scope 'tickets:read tickets:write'$/m,
  )
  expect(needed.code).toBe(EXITS.refused.code)
  expect((await logIn(['--scope', 'tickets:write'])).code).toBe(0)
  expect((await home.run(['call', server.url, 'refund'])).stdout).toMatch(/refunded/)

  const { tokens: last } = kept()
  expect((await home.run(['logout', server.url])).stderr).toMatch(/^Logged out at http\S+\.$/m)
  expect(files()).toEqual([])
  await expect(as.refresh({ refreshToken: last.refreshToken, client: 'desk' })).rejects.toThrow()
  expect((await home.run(['whoami'])).stderr).toMatch(/There is no login/)
  expect((await home.run(['logout', server.url])).code).toBe(EXITS.stored.code)
})

it('H4 rondo login ignores a redirect with another state, and waits for the right one', async () => {
  const { code, stderr } = await logIn([], async (redirect) => {
    const forged = new URL(redirect)
    forged.searchParams.set('state', 'forged')
    forged.searchParams.set('code', 'injected')
    expect((await fetch(forged)).status).toBe(400)
    expect((await fetch(new URL('/', redirect))).status).toBe(400)
  })
  expect(stderr).toMatch(/Logged in/)
  expect(code).toBe(0)
})

it('H4 T31 the command refreshes in one process after the other, so that no refresh token is used twice', async () => {
  as.accessTokenSeconds = 5
  try {
    expect((await logIn()).code).toBe(0)
    const before = kept().tokens
    const ran = await Promise.all([1, 2, 3].map(() => home.run(['call', server.url, 'whoami'])))
    expect(ran.map(({ stdout, code }) => `${stdout.trim()} ${code}`)).toEqual(Array(3).fill('alice 0'))
    expect(kept().tokens.refreshToken).not.toBe(before.refreshToken)
  } finally {
    as.accessTokenSeconds = 600
  }
})

it('the command says what is wrong with a login that cannot be read, and replaces it', async () => {
  expect((await logIn(['--json'])).stdout).toMatch(/"status": "logged in"/)
  writeFileSync(files()[0] ?? '', '{')
  const damaged = await home.run(['tools', server.url])
  expect(damaged.stderr).toMatch(/is damaged. Remove it with: rondo logout/)
  expect(damaged.code).toBe(EXITS.stored.code)
  await home.run(['logout', server.url])
  expect((await logIn()).code).toBe(0)
})

it('rondo login logs in a client by its secret, which it takes from a variable and sends to the named issuer only', async () => {
  const words = [
    'login',
    server.url,
    '--client-id',
    'robot',
    '--client-credentials',
    '--client-secret-env',
    'SECRET',
  ]
  const env = { SECRET: ROBOT_SECRET }
  expect((await home.run(words, { env })).stderr).toMatch(/needs --issuer/)
  expect((await home.run([...words, '--issuer', as.issuer], { env })).code).toBe(0)
  expect((await home.run(['tools', server.url])).stdout).toMatch(/refund/)
  // The token is of no more use. The client gets another one by itself, with the secret that was kept.
  const [path = ''] = files()
  const before = kept()
  writeFileSync(path, JSON.stringify({ ...before, tokens: { accessToken: 'expired', expiresAt: 1 } }))
  expect((await home.run(['whoami', server.url])).stdout).toMatch(/refreshed at the next call/)
  expect((await home.run(['call', server.url, 'whoami'])).stdout.trim()).toBe('robot')
  expect(kept().tokens.accessToken).not.toBe('expired')
  const elsewhere = await home.run([...words, '--issuer', 'https://id.example'], { env })
  expect(elsewhere.stderr).toMatch(/does not accept tokens of https:\/\/id.example/)
})

it('the command sends a token that is given, and not the stored one', async () => {
  const { access_token: token } = await as.authorize({
    resource: server.url,
    scope: 'tickets:read',
    user: 'bob',
  })
  expect((await logIn()).code).toBe(0)
  const env = { BOB: token }
  const given = await home.run(['call', server.url, 'whoami', '--bearer', 'env:BOB'], { env })
  expect(given.stdout.trim()).toBe('bob')
  const missing = await home.run(['tools', server.url, '--bearer', 'env:NOBODY'])
  expect(missing.stderr).toMatch(/the variable has no token/)
  expect((await home.run(['login', 'node server.js'])).code).toBe(EXITS.usage.code)
})

it('rondo doctor examines how a server asks for a login, with and without one', async () => {
  const before = await home.run(['doctor', server.url])
  expect(before.stdout).toMatch(/^fail +era .*401/m)
  for (const id of ['auth-challenge', 'auth-metadata', 'auth-issuer', 'auth-token']) {
    expect(before.stdout).toMatch(new RegExp(`^pass +${id} `, 'm'))
  }
  expect(before.stdout).toMatch(/^skip +auth-audience /m)
  const robot = ['--client-id', 'robot', '--client-credentials', '--client-secret-env', 'SECRET']
  const words = ['login', server.url, ...robot, '--issuer', as.issuer, '--scope', 'tickets:write']
  expect((await home.run(words, { env: { SECRET: ROBOT_SECRET } })).code).toBe(0)
  const after = await home.run(['doctor', server.url])
  expect(after.stdout).toMatch(/^pass +era /m)
  expect(after.stdout).toMatch(/^pass +unknown-method /m)
  expect(after.stdout).toMatch(/^pass +auth-audience +a token for another server is refused/m)
  expect(after.stdout).toMatch(/^skip +auth-scope .*may list the tools/m)
  const older = await home.run(['doctor', server.url, '--revision', '2025-11-25'])
  expect(older.stdout).toMatch(/^pass +auth-audience +a token for another server is refused/m)
  const { access_token: good } = await as.authorize({ resource: server.url, scope: 'tickets:read' })
  const fooled = await home.run(['doctor', server.url, '--other-bearer', 'env:GOOD'], { env: { GOOD: good } })
  expect(fooled.stdout).toMatch(/^fail +auth-audience .*HTTP status 200/m)
})
