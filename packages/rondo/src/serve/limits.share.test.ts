import { describe, expect, it } from 'vitest'
import { createShares, NOBODY } from './limits.ts'

const from = (address: string | undefined, headers: Record<string, string> = {}, addressHeader?: string) =>
  createShares(addressHeader)(undefined, headers, { address })

describe('T18 the share of a caller', () => {
  it('belongs to its principal, whatever its address', () => {
    const shareOf = createShares()
    const alice = shareOf({ subject: 'alice' }, {}, { address: '192.0.2.1' })
    expect(shareOf({ subject: 'alice' }, {}, { address: '192.0.2.2' })).toBe(alice)
    expect(shareOf({ subject: 'bob' }, {}, { address: '192.0.2.1' })).not.toBe(alice)
  })

  it('belongs to the address of an anonymous caller', () => {
    expect(from('192.0.2.1')).toBe(from('::ffff:192.0.2.1'))
    expect(from('192.0.2.1')).not.toBe(from('192.0.2.2'))
    expect(from(undefined)).toBe(NOBODY)
  })

  it.each([
    ['2001:db8:0:1::1', '2001:DB8::1:ffff:0:0:2', true],
    ['2001:db8:0:1::1', '2001:db8:0:2::1', false],
    ['fe80::1%eth0', 'fe80::2', true],
    ['::1', '::2', true],
  ])('is shared by the addresses %s and %s: %s', (one, other, same) => {
    expect(from(one) === from(other)).toBe(same)
  })

  it('depends on a header only if addressHeader names it, and on its last entry', () => {
    const headers = { 'x-forwarded-for': '203.0.113.9, 192.0.2.7' }
    expect(from('10.0.0.1', headers)).toBe(from('10.0.0.1'))
    expect(from('10.0.0.1', headers, 'X-Forwarded-For')).toBe(from('192.0.2.7'))
    expect(from('10.0.0.1', {}, 'x-forwarded-for')).toBe(NOBODY)
  })

  it('has a short key, however long the header is', () => {
    expect(from('10.0.0.1', { 'x-forwarded-for': 'x'.repeat(8_000) }, 'x-forwarded-for').length).toBeLessThan(
      100,
    )
  })
})
