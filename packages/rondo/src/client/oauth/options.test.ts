/** Logins in a store: which values are one, and that work for one server runs in order. */

import { describe, expect, it } from 'vitest'
import { canonical, memoryTokenStore, parseLogin, type StoredLogin } from './options.ts'

const LOGIN = {
  version: 1,
  server: 'https://mcp.example.com/mcp',
  resource: 'https://mcp.example.com/mcp',
  issuer: 'https://id.example.com',
  client: { id: 'desk' },
  scopes: [],
}
const ENTERPRISE = {
  kind: 'enterprise',
  issuer: 'https://id.example',
  client: { id: 'a' },
  refreshToken: 'r',
}

describe('a stored login', () => {
  it.each<[string, object]>([
    ['nothing else', {}],
    ['scopes', { scopes: ['a', 'b'] }],
    ['a user', { user: 'alice' }],
    ['its own token', { grant: 'client_credentials' }],
    ['the token of a workload', { grant: { kind: 'workload', file: '/token' } }],
    ['the token of a workload in a variable', { grant: { kind: 'workload', env: 'TOKEN' } }],
    ['the token of a company', { grant: ENTERPRISE }],
    [
      'a whole client',
      { client: { id: 'desk', secret: 's', method: 'none', redirectUri: 'http://127.0.0.1', expiresAt: 1 } },
    ],
    [
      'tokens',
      { tokens: { accessToken: 'a', refreshToken: 'r', keyThumbprint: 'k', expiresAt: 1, granted: ['a'] } },
    ],
    ['an access token', { tokens: { accessToken: 'a' } }],
  ])('has %s', (_what, changes) => {
    const login = { ...LOGIN, ...changes }
    expect(parseLogin(login)).toBe(login)
  })

  it.each<[string, unknown]>([
    ['text', 'login'],
    ['nothing', null],
    ['a list', []],
    ['of another version', { ...LOGIN, version: 2 }],
    ['without a server', { ...LOGIN, server: undefined }],
    ['with a number as its resource', { ...LOGIN, resource: 1 }],
    ['without an issuer', { ...LOGIN, issuer: undefined }],
    ['without scopes', { ...LOGIN, scopes: undefined }],
    ['with a scope that is a number', { ...LOGIN, scopes: ['a', 1] }],
    ['with scopes in text', { ...LOGIN, scopes: 'a' }],
    ['without a client', { ...LOGIN, client: undefined }],
    ['with a client without an id', { ...LOGIN, client: {} }],
    ['with a secret that is a number', { ...LOGIN, client: { id: 'a', secret: 1 } }],
    ['with a method that is a number', { ...LOGIN, client: { id: 'a', method: 1 } }],
    ['with a redirect that is a number', { ...LOGIN, client: { id: 'a', redirectUri: 1 } }],
    ['with a client that expires in text', { ...LOGIN, client: { id: 'a', expiresAt: '1' } }],
    ['with a user that is a number', { ...LOGIN, user: 1 }],
    ['with tokens in text', { ...LOGIN, tokens: 'a' }],
    ['without an access token', { ...LOGIN, tokens: {} }],
    ['with a refresh token that is a number', { ...LOGIN, tokens: { accessToken: 'a', refreshToken: 1 } }],
    ['with a key that is a number', { ...LOGIN, tokens: { accessToken: 'a', keyThumbprint: 1 } }],
    ['with a token that expires in text', { ...LOGIN, tokens: { accessToken: 'a', expiresAt: '1' } }],
    ['with granted scopes in text', { ...LOGIN, tokens: { accessToken: 'a', granted: 'a' } }],
    ['with another grant', { ...LOGIN, grant: 'password' }],
    ['with a grant that is a number', { ...LOGIN, grant: 1 }],
    ['with a grant that is null', { ...LOGIN, grant: null }],
    ['with a grant of another kind', { ...LOGIN, grant: { ...ENTERPRISE, kind: 'other' } }],
    ['with a workload whose file is a number', { ...LOGIN, grant: { kind: 'workload', file: 1 } }],
    ['with a workload whose variable is a number', { ...LOGIN, grant: { kind: 'workload', env: 1 } }],
    ['with a company without an issuer', { ...LOGIN, grant: { ...ENTERPRISE, issuer: undefined } }],
    ['with a company without a token', { ...LOGIN, grant: { ...ENTERPRISE, refreshToken: undefined } }],
    ['with a company without a client', { ...LOGIN, grant: { ...ENTERPRISE, client: undefined } }],
  ])('is not %s', (_what, value) => {
    expect(parseLogin(value)).toBeUndefined()
  })

  it.each([
    ['https://mcp.example.com', 'https://mcp.example.com'],
    ['https://mcp.example.com/', 'https://mcp.example.com'],
    ['http://localhost:3000/', 'http://localhost:3000'],
    ['https://mcp.example.com/mcp/', 'https://mcp.example.com/mcp/'],
    ['https://mcp.example.com/mcp#a', 'https://mcp.example.com/mcp'],
    ['https://mcp.example.com/?a=/', 'https://mcp.example.com/?a=/'],
    ['https://MCP.example.com/#a#b', 'https://mcp.example.com'],
    [
      'https://mcp.example.com/mcp?of=https://a.example/',
      'https://mcp.example.com/mcp?of=https://a.example/',
    ],
  ])('H4 T30 of %s is that of %s', (url, key) => {
    expect(canonical(new URL(url))).toBe(key)
  })
})

describe('a store in memory', () => {
  it('keeps logins by server', async () => {
    const store = memoryTokenStore()
    const login = LOGIN as StoredLogin
    await store.save('a', login)
    expect([await store.load('a'), await store.load('b')]).toEqual([login, undefined])
    await store.remove('a')
    expect(await store.load('a')).toBeUndefined()
  })

  it('T31 runs work for one server in order, also after a failure, and for others meanwhile', async () => {
    const store = memoryTokenStore()
    const log: string[] = []
    const gates: (() => void)[] = []
    const work = (name: string) => async () => {
      log.push(`${name} begins`)
      await new Promise<void>((resolve) => gates.push(resolve))
      log.push(`${name} ends`)
      if (name === 'bad') throw new Error('bad')
      return name
    }
    const settled = () => new Promise((resolve) => setImmediate(resolve))
    const one = store.exclusively?.('a', work('bad'))
    const two = store.exclusively?.('a', work('good'))
    const other = store.exclusively?.('b', work('other'))
    const failed = expect(one).rejects.toThrow('bad')
    await settled()
    expect(log).toEqual(['bad begins', 'other begins'])
    for (const open of gates.splice(0)) open()
    await failed
    await settled()
    expect(log.slice(2)).toEqual(['bad ends', 'other ends', 'good begins'])
    for (const open of gates.splice(0)) open()
    expect([await two, await other]).toEqual(['good', 'other'])
    const three = store.exclusively?.('a', work('later'))
    await settled()
    for (const open of gates.splice(0)) open()
    expect(await three).toBe('later')
  })

  it('T31 runs work in order that comes while other work is waiting', async () => {
    const store = memoryTokenStore()
    const running = new Set<string>()
    let most = 0
    const gates: (() => void)[] = []
    const work = (name: string) => async () => {
      most = Math.max(most, running.add(name).size)
      await new Promise<void>((resolve) => gates.push(resolve))
      running.delete(name)
    }
    const settled = () => new Promise((resolve) => setImmediate(resolve))
    const all = ['one', 'two'].map((name) => store.exclusively?.('a', work(name)))
    await settled()
    for (let at = 0; at < 3; at += 1) {
      gates.shift()?.()
      await settled()
      if (at === 0) all.push(store.exclusively?.('a', work('three')))
      await settled()
    }
    await Promise.all(all)
    expect(most).toBe(1)
  })
})
