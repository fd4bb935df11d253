import { randomBytes } from 'node:crypto'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { begin } from './pending.ts'
import { openPending, sealPending } from './stored-pending.ts'

const key = randomBytes(32)
const beginning = { id: 'c1', server: { target: 'memory:' }, protocolVersion: '2026-07-28', now: 1 }
const pending = begin({ method: 'tools/call', name: 'secret-tool', arguments: { pin: '0000' } }, beginning)

describe('a sealed pending call', () => {
  it('C11 opens with its key, and reveals nothing without it', () => {
    const sealed = sealPending(pending, key)
    expect(openPending(sealed, key)).toEqual(pending)
    expect(Buffer.from(sealed.slice(3), 'base64url').toString('latin1')).not.toContain('secret-tool')
    expect(sealPending(pending, key)).not.toBe(sealed)
  })

  it('does not open with another key', () => {
    expect(() => openPending(sealPending(pending, key), randomBytes(32))).toThrowError(/INPUT_PENDING/)
  })

  it('does not open if any character was changed, added or removed', () => {
    const sealed = sealPending(pending, key)
    const place = fc.nat(sealed.length - 1)
    const char = fc.constantFrom(...'AZaz09-_=. +/')
    fc.assert(
      fc.property(place, char, fc.constantFrom('change', 'add', 'cut'), (at, other, how) => {
        const rest = sealed.slice(how === 'add' ? at : at + 1)
        const changed = how === 'cut' ? sealed.slice(0, at) : sealed.slice(0, at) + other + rest
        fc.pre(changed !== sealed)
        expect(() => openPending(changed, key)).toThrowError(/INPUT_PENDING/)
      }),
    )
  })

  it('needs a key of 32 bytes', () => {
    expect(() => sealPending(pending, randomBytes(16))).toThrowError(TypeError)
  })
})
