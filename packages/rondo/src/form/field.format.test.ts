import { describe, expect, it } from 'vitest'
import { hasAnEnd } from '../../../../test/support/has-an-end.ts'
import { FORMATS, isFieldFormat } from './field.ts'

const table: Record<keyof typeof FORMATS, { fit: string[]; misfit: string[] }> = {
  email: {
    fit: [
      'a@b',
      'ada.l+x@example.org',
      'ada@sub.example.co.uk',
      'jörg@exämple.de',
      "o'neil@example.org",
      '"ada l@x"@example.org',
      'ada@[192.0.2.1]',
      'ada@[IPv6:2001:db8::1]',
    ],
    misfit: [
      '',
      'ada',
      '@b',
      'a@',
      'a b@c.d',
      'a@b@c',
      '.a@b.c',
      'a..b@c.d',
      'a@-b.c',
      'a@b..c',
      'a@b.c.',
      '<a@b.c>',
      '"a@b.c',
      '"a"b"@c.d',
      'a@[192.0.2.256]',
      'a@[2001:db8::1]',
      'a@[IPv6:1::2::3]',
      `${'a'.repeat(65)}@b.c`,
    ],
  },
  uri: {
    fit: [
      'https://example.org',
      'http://localhost:3000/a?b=c#d',
      'mailto:a@b.c',
      'urn:isbn:1',
      'file:///tmp/x',
      'http://user:pw@[2001:db8::1]:80/a%20b',
    ],
    misfit: [
      '',
      'example.org',
      '/path',
      'https://',
      'https://a b',
      'http://[::1',
      '1http://a',
      'https://a/<b>',
      'mailto:',
      'https://a/®',
      'https://a/%6G',
      'https://a/%',
      'https://a/[b]',
      'https://[@a/b',
    ],
  },
  date: {
    fit: ['2026-07-28', '2024-02-29', '2000-02-29', '0001-01-01'],
    misfit: [
      '',
      '2026-7-28',
      '2026-13-01',
      '2026-00-10',
      '2026-04-31',
      '2025-02-29',
      '1900-02-29',
      '28.07.2026',
      '2026-07-28T00:00:00Z',
    ],
  },
  'date-time': {
    fit: [
      '2026-07-28T09:30:00Z',
      '2026-07-28t09:30:00z',
      '2026-07-28T09:30:00.123+02:00',
      '2026-12-31T23:59:60Z',
      '2027-01-01T00:59:60+01:00',
      '2026-12-31T15:29:60-08:30',
    ],
    misfit: [
      '',
      '2026-07-28',
      '2026-07-28T09:30Z',
      '2026-07-28 09:30:00Z',
      '2026-07-28T09:30:00',
      '2026-07-28T24:00:00Z',
      '2026-02-30T09:30:00Z',
      '2026-07-28T09:60:00Z',
      '2026-07-28T09:30:00+24:00',
      '2026-12-31T23:58:60Z',
      '2026-12-31T23:59:60+01:00',
      '2026-12-31T23:59:61Z',
    ],
  },
}

describe.each(Object.entries(table))('the format %s', (name, { fit, misfit }) => {
  if (!isFieldFormat(name)) throw new Error(name)
  it.each(fit)('accepts %s', (text) => expect(FORMATS[name].test(text)).toBe(true))
  it.each(misfit)('refuses "%s"', (text) => expect(FORMATS[name].test(text)).toBe(false))

  it('T11 takes linear time on long texts', () => {
    for (const piece of ['a', 'a.', 'a@', '-', '0', '2026-07-28', 'http:', '%41']) {
      const text = piece.repeat(100_000 / piece.length)
      for (const hostile of [text, `${text}!`, `a@${text}`, `http://${text}`]) {
        hasAnEnd(() => FORMATS[name].test(hostile))
      }
    }
  })
})

it('inherited names are not names of formats', () => {
  expect(isFieldFormat('toString')).toBe(false)
  expect(isFieldFormat(undefined)).toBe(false)
})
