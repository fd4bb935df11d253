/** One instance of the console, as the supervisor runs it. Needs the build. */

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { request } from 'node:http'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { createFleet, type LocalFleet } from '../../packages/cli/src/console/fleet.ts'
import { deskSource } from '../support/console-process.ts'

const folder = mkdtempSync(join(tmpdir(), 'rondo-instance-'))
const file = join(folder, 'server.mjs')
let fleet: LocalFleet
let port = 0
beforeAll(async () => {
  writeFileSync(file, deskSource())
  const { PATH = '', HOME = '' } = process.env
  fleet = createFleet({
    io: { cwd: folder },
    args: [resolve('packages/cli/dist/console/instance.js'), file],
    env: { PATH, HOME, NODE_ENV: 'development' },
    count: 1,
    onHappening: () => {},
  })
  expect(await fleet.start()).toBe(undefined)
  port = fleet.pick()?.port ?? 0
})
afterAll(async () => {
  await fleet?.stop()
  rmSync(folder, { recursive: true, force: true })
})

/** Sends the head of a request whose body never comes, and resolves with the status of the response. */
function announce(headers: Record<string, string>): Promise<number | undefined> {
  return new Promise((done, fail) => {
    const req = request({ host: '127.0.0.1', port, path: '/mcp', method: 'POST', headers }, (res) => {
      done(res.statusCode)
      req.destroy()
    })
    req.once('error', fail)
    req.flushHeaders()
  })
}

const head = { 'content-type': 'application/json', 'content-length': '1000' }

it.each([
  ['T23 a page of another origin', { ...head, origin: 'https://evil.example' }, 403],
  ['T23 a name that points at its address', { ...head, host: 'evil.example' }, 403],
  ['R9 more than 4 MiB', { ...head, 'content-length': String(4 * 1024 * 1024 + 1) }, 413],
])('%s is refused before the body is read', async (_what, headers, status) => {
  expect(await announce(headers)).toBe(status)
})

it('control: a body that may come is waited for', async () => {
  const { status } = await fetch(`http://127.0.0.1:${port}/mcp`, { method: 'POST', body: '{' })
  expect([403, 413]).not.toContain(status)
})
