/** Keys and states on the command line. Needs the build. */

import { readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { generateKey } from 'rondo'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import type { Listening } from '../../packages/rondo/src/index.ts'
import { createDeskServer } from '../support/desk-server.ts'
import { type CliHome, createCliHome } from '../support/run-cli.ts'

// Many processes, on a machine that may have much to do.
vi.setConfig({ testTimeout: 300_000 })

let home: CliHome

beforeAll(() => {
  home = createCliHome()
})
afterAll(() => home.remove())

describe('rondo keys', () => {
  it('creates a key that "check" accepts, and shows no secret', async () => {
    const { stdout } = await home.run(['keys', 'new', '--name', '2026-11'])
    expect(stdout).toMatch(/^2026-11:[A-Za-z0-9+/]{43}=\n$/)
    const checked = await home.run(['keys', 'check'], { env: { RONDO_KEYS: stdout } })
    expect(checked).toMatchObject({ code: 0, stdout: 'seals with 2026-11, opens 2026-11\n' })
  })

  it.each([
    ['none', '', 2],
    ['a key without a name', 'abcdef', 1],
    ['a short secret', 'a:c2hvcnQ=', 1],
    ['a name twice', `${generateKey('a')},${generateKey('a')}`, 1],
  ])('check refuses %s and does not print any of it', async (_name, keys, code) => {
    const ran = await home.run(['keys', 'check'], { env: { RONDO_KEYS: keys } })
    expect(ran.code).toBe(code)
    const secret = keys.split(':')[1] ?? keys
    if (secret !== '') expect(ran.stderr).not.toContain(secret)
  })

  it('B9 rotates in three steps: learn, mint, drop', async () => {
    const file = join(home.path, 'ring')
    writeFileSync(file, generateKey('old'), { mode: 0o644 })
    const rotate = (...words: string[]) => home.json(['keys', 'rotate', ...words, '--keys', file, '--write'])
    expect((await rotate('learn', '--name', 'new')).value).toEqual({ seals: 'old', opens: ['old', 'new'] })
    expect((await rotate('mint')).value).toEqual({ seals: 'new', opens: ['new', 'old'] })
    expect((await rotate('drop')).value).toEqual({ seals: 'new', opens: ['new'] })
    expect(readFileSync(file, 'utf8')).toMatch(/^new:\S+\n$/)
    expect(statSync(file).mode & 0o777).toBe(0o600)
  })

  it('prints the next ring without --write, and refuses a step that is not possible', async () => {
    const env = { RONDO_KEYS: generateKey('old') }
    const { stdout } = await home.run(['keys', 'rotate', 'learn'], { env })
    expect(stdout).toMatch(new RegExp(`^${env.RONDO_KEYS.replace(/[+/]/g, '\\$&')},\\S+\n$`))
    for (const step of ['mint', 'drop', 'sideways']) {
      expect((await home.run(['keys', 'rotate', step], { env })).code).toBe(2)
    }
    const early = await home.run(['keys', 'rotate', 'drop'], {
      env: { RONDO_KEYS: `${env.RONDO_KEYS},${generateKey('new')}` },
    })
    expect(early.stderr).toContain('Kept old, removed new.\n')
  })
})

describe('rondo state', () => {
  const keys = generateKey('k1')
  const server = createDeskServer(keys)
  let listening: Listening
  let id: string

  beforeAll(async () => {
    listening = await server.listen({ port: 0, signals: false })
    const { value } = await home.json(['call', listening.url, 'pair'])
    id = String(value.id)
    await home.json(['answer', id, 'left.value=canary', 'right.value=:', '--hold'])
  })
  afterAll(() => server.close())

  const token = () => {
    const file = JSON.parse(readFileSync(join(home.path, 'pending', `${id}.json`), 'utf8'))
    return (file as { pending: { state: string } }).pending.state
  }
  const show = (...words: string[]) => home.run(['state', ...words], { env: { RONDO_KEYS: keys } })

  it('shows the contents to those who have the keys', async () => {
    const { stdout, code } = await show(token(), '--audience', 'desk', '--json')
    expect(JSON.parse(stdout)).toMatchObject({
      key: 'k1',
      round: 1,
      method: 'tools/call',
      principal: 'anonymous',
      asked: ['left', 'right'],
      expired: false,
      entries: [],
    })
    expect(code).toBe(0)
  })

  it('hides answers unless --content is given', async () => {
    const asked = await home.json(['call', listening.url, 'two'])
    const second = await home.json(['answer', String(asked.value.id), 'first.value=canary'])
    const shown = await show('--pending', String(second.value.id), '--audience', 'desk')
    expect(shown.stdout).toMatch(/^entry +\{"kind":"form","key":"first"/m)
    expect(shown.stdout).not.toContain('canary')
    const all = await show('--pending', String(second.value.id), '--audience', 'desk', '--content')
    expect(all.stdout).toContain('canary')
  })

  it.each([
    ['another audience', ['--audience', 'other'], keys, /another audience/],
    ['another key', ['--audience', 'desk'], generateKey('k2'), /none of these keys/],
  ])('does not open with %s', async (_name, words, ring, sentence) => {
    const ran = await home.run(['state', token(), ...words], { env: { RONDO_KEYS: ring } })
    expect(ran).toMatchObject({ code: 1, stdout: '' })
    expect(ran.stderr).toMatch(sentence)
  })

  it('uses the stored key if none is given', async () => {
    const begun = await home.json(['call', 'test/support/desk-file.ts', 'seat'])
    const shown = await home.run(['state', '--pending', String(begun.value.id), '--audience', 'desk'])
    expect(shown).toMatchObject({ code: 0, stdout: expect.stringMatching(/^key +local$/m) })
  })

  it('reports if a state of another server is readable by anybody', async () => {
    const ran = await home.run(['state', '-'], { input: '{"step":2}\n' })
    expect(ran.code).toBe(1)
    expect(ran.stdout).toContain('anyone can read it')
  })
})
