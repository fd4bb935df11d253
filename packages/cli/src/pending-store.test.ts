import { randomBytes } from 'node:crypto'
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { PendingCall } from 'rondo/client'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { homeOf } from './home.ts'
import { createPendingStore } from './pending-store.ts'

let home: string

beforeEach(() => {
  home = mkdtempSync(join(tmpdir(), 'rondo-store-'))
})
afterEach(() => rmSync(home, { recursive: true, force: true }))

const pending = (id: string): PendingCall => ({
  version: 1,
  id,
  server: { target: 'http://127.0.0.1/' },
  protocolVersion: '2026-07-28',
  request: { method: 'tools/call', name: 'x', arguments: {} },
  round: 1,
  state: 'opaque "ünïcode" \u2028',
  questions: {
    q: { method: 'elicitation/create', params: { mode: 'url', message: 'm', url: 'https://example.org/' } },
  },
  answers: {},
  startedAt: 1,
  askedAt: 2,
  workMs: 3,
  idleRounds: 0,
})
const call = (id: string) =>
  ({
    target: { kind: 'url', url: 'http://127.0.0.1/' },
    accepts: ['form', 'url'],
    pending: pending(id),
  }) as const

describe('pending calls', () => {
  it.each([undefined, randomBytes(32)])('C2 C11 are loaded unchanged, key %#', (key) => {
    const store = createPendingStore(home, key)
    store.save(call('abcdef'))
    expect(createPendingStore(home, key).load('abcdef')).toEqual(call('abcdef'))
    expect(store.list()).toEqual([{ id: 'abcdef', call: call('abcdef') }])
    store.remove('abcdef')
    store.remove('abcdef')
    expect(store.list()).toEqual([])
  })

  it('are found by the beginning of their id if it is unique', () => {
    const store = createPendingStore(home)
    store.save(call('abcdef'))
    store.save(call('abcxyz'))
    expect(store.find('abcd')).toBe('abcdef')
    expect(store.find('abcxyz')).toBe('abcxyz')
    expect(() => store.find('abc')).toThrow(/More than one/)
    for (const start of ['a', 'zzz', '', '../abcdef'])
      expect(() => store.find(start)).toThrow(/No pending call/)
  })

  it('T22 are readable by their owner only, and their questions are checked again when they are loaded', () => {
    const store = createPendingStore(home)
    store.save(call('abcdef'))
    const path = join(store.folder, 'abcdef.json')
    expect([statSync(path).mode & 0o777, statSync(store.folder).mode & 0o777]).toEqual([0o600, 0o700])
    writeFileSync(path, readFileSync(path, 'utf8').replace('https://example.org/', 'javascript:alert(1)'))
    expect(() => store.load('abcdef')).toThrow(/PEER_LINK/)
  })

  it('leave no other files behind', () => {
    const store = createPendingStore(home)
    store.save(call('abcdef'))
    store.save(call('abcdef'))
    store.claim('abcdef')()
    expect(readdirSync(store.folder)).toEqual(['abcdef.json'])
  })

  it.each([
    ['no JSON', '{'],
    ['another format', '{"version":2}'],
    ['no target', '{"version":1,"pending":{}}'],
    ['no call', '{"version":1,"target":{"kind":"url","url":"x"}}'],
  ])('that are damaged (%s) are refused', (_name, text) => {
    const store = createPendingStore(home)
    store.save(call('abcdef'))
    writeFileSync(join(store.folder, 'abcdef.json'), text)
    expect(() => store.load('abcdef')).toThrow()
    expect(store.list()).toEqual([{ id: 'abcdef', problem: expect.any(String) }])
  })

  it('are not mistaken for one another', () => {
    const store = createPendingStore(home)
    store.save(call('abcdef'))
    writeFileSync(join(store.folder, 'ghijkl.json'), JSON.stringify({ version: 1, ...call('abcdef') }))
    expect(() => store.load('ghijkl')).toThrow(/another call/)
  })

  it('can be claimed by one process at a time', () => {
    const store = createPendingStore(home)
    const release = store.claim('abcdef')
    expect(() => store.claim('abcdef')).toThrow(/in use by process/)
    release()
    store.claim('abcdef')()
    writeFileSync(join(store.folder, 'abcdef.lock'), '2147483646\n')
    store.claim('abcdef')()
    writeFileSync(join(store.folder, 'abcdef.lock'), '')
    store.claim('abcdef')()
  })
})

describe('the folder of the command', () => {
  it.each([
    [{ RONDO_HOME: '/a/b' }, '/a/b'],
    [{ RONDO_HOME: 'c' }, '/cwd/c'],
    [{ XDG_DATA_HOME: '/d', HOME: '/h' }, '/d/rondo'],
    [{ XDG_DATA_HOME: 'relative', HOME: '/h' }, '/h/.local/share/rondo'],
    [{ HOME: '/h' }, '/h/.local/share/rondo'],
  ])('with %j is %s', (env, path) => expect(homeOf({ env, cwd: '/cwd' })).toBe(path))
})
