import { describe, expect, it } from 'vitest'
import { inspectLink } from './round.ts'

describe('a URL a server wants opened', () => {
  it.each([
    ['https://example.com/a?b=c#d', 'https://example.com/a?b=c#d', 'example.com', []],
    ['HTTPS://EXAMPLE.com:8443', 'https://example.com:8443/', 'example.com:8443', []],
    [
      'http://127.0.0.1:3000/x',
      'http://127.0.0.1:3000/x',
      '127.0.0.1:3000',
      ['not-encrypted', 'bare-address'],
    ],
    ['http://localhost/x', 'http://localhost/x', 'localhost', ['not-encrypted']],
    ['http://[::1]/', 'http://[::1]/', '[::1]', ['not-encrypted', 'bare-address']],
    ['https://93.184.216.34/', 'https://93.184.216.34/', '93.184.216.34', ['bare-address']],
    ['https://exa\tmple.com/\n', 'https://example.com/', 'example.com', []],
  ])('C14 is accepted: %j', (text, url, host, warnings) => {
    expect(inspectLink(text)).toEqual({ url, host, warnings })
  })

  it('C14 is shown with look-alike letters in their ASCII form', () => {
    const link = inspectLink('https://аррle.com/')
    expect(link?.host).toMatch(/^xn--/)
    expect(link?.warnings).toEqual(['look-alike-letters'])
  })

  it.each([
    'http://example.com/',
    'http://127.0.0.1.evil.com/',
    'http://localhost.evil.com/',
    'javascript:alert(1)',
    'data:text/html,x',
    'file:///etc/passwd',
    'ftp://example.com/',
    'vscode://x',
    'https://bank.com@evil.com/',
    'https://user:password@example.com/',
    'https://:password@example.com/',
    'not a url',
    '',
    '//example.com',
    `https://example.com/${'a'.repeat(9_000)}`,
  ])('T22 T23 is refused: %j', (text) => {
    expect(inspectLink(text)).toBeUndefined()
  })
})
