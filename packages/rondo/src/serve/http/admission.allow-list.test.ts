import { describe, expect, it } from 'vitest'
import { createAllowList } from './admission.ts'

describe('T12 hosts', () => {
  const list = createAllowList({ allowedHosts: ['MCP.example.com', 'api.example.com:8443'] }, '192.168.1.5')

  it.each([
    'localhost',
    'localhost:3000',
    'LOCALHOST:3000',
    '127.0.0.1',
    '127.0.0.1:65535',
    '[::1]',
    '[::1]:3000',
    '192.168.1.5:3000',
    'mcp.example.com',
    'mcp.example.com:443',
    'api.example.com:8443',
  ])('allow %s', (host) => {
    expect(list.host(host)).toBe(true)
    expect(list.host(host)).toBe(true)
  })

  it.each([
    undefined,
    '',
    'example.com',
    'evil.com',
    'localhost.evil.com',
    'evil.com:localhost',
    'localhost@evil.com',
    'evil.com/localhost',
    'localhost, evil.com',
    'localhost:3000:4000',
    'localhost:',
    'localhost:x',
    'localhost:999999',
    'localhost.',
    '127.0.0.2',
    '127.1',
    '2130706433',
    '::1',
    '0.0.0.0',
    'api.example.com',
    'api.example.com:443',
    'sub.mcp.example.com',
    '*',
  ])('refuse %s', (host) => {
    expect(list.host(host)).toBe(false)
  })

  it('are checked again after one that was allowed', () => {
    expect(list.host('localhost')).toBe(true)
    expect(list.host('evil.com')).toBe(false)
    expect(list.host(undefined)).toBe(false)
  })

  it('include the IPv6 address that the server listens on', () => {
    expect(createAllowList({}, 'fe80::1').host('[fe80::1]:3000')).toBe(true)
  })

  it.each(['0.0.0.0', '::'])('do not include a name for listening on %s', (address) => {
    const every = createAllowList({}, address)
    expect(every.host(address)).toBe(false)
    expect(every.host('evil.com')).toBe(false)
    expect(every.host('localhost')).toBe(true)
  })

  it('allow anything with `*`', () => {
    expect(createAllowList({ allowedHosts: ['*'] }).host('evil.com')).toBe(true)
  })
})

describe('T12 origins', () => {
  const list = createAllowList({
    allowedHosts: ['mcp.example.com'],
    allowedOrigins: ['https://app.example.com', 'partner.example.com'],
  })

  it.each([
    undefined,
    'http://localhost:3000',
    'http://127.0.0.1',
    'http://[::1]:8080',
    'https://mcp.example.com',
    'https://app.example.com',
    'https://partner.example.com',
    'http://partner.example.com:8080',
  ])('allow %s', (origin) => {
    expect(list.origin(origin)).toBe(true)
  })

  it.each([
    'null',
    '',
    'https://evil.com',
    'http://app.example.com',
    'https://app.example.com.evil.com',
    'https://localhost@evil.com',
    'https://evil.com/localhost',
    'localhost',
    'file://',
    'http://localhost evil.com',
  ])('refuse %j', (origin) => {
    expect(list.origin(origin)).toBe(false)
  })

  it('allow anything with `*`', () => {
    expect(createAllowList({ allowedOrigins: ['*'] }).origin('https://evil.com')).toBe(true)
    expect(createAllowList({ allowedOrigins: ['null'] }).origin('null')).toBe(true)
  })
})
