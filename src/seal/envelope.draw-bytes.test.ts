import crypto from 'node:crypto'
import { syncBuiltinESMExports } from 'node:module'
import { describe, expect, it, vi } from 'vitest'
import { drawBytes, drawId } from './envelope.ts'

describe('drawBytes', () => {
  it('returns the requested number of bytes, also more than its stock', () => {
    for (const size of [0, 1, 16, 32, 4096, 5000]) expect(drawBytes(size)).toHaveLength(size)
  })

  it('never returns the same bytes twice, over many refills', () => {
    const seen = new Set<string>()
    for (let i = 0; i < 5000; i++) seen.add(Buffer.from(drawBytes(16)).toString('hex'))
    expect(seen.size).toBe(5000)
    expect(seen.has('0'.repeat(32))).toBe(false)
  })

  it('returns no byte twice: a draw begins neither with the end of the one before nor with what was wiped', () => {
    let suspicious = 0
    let last: number | undefined
    for (let i = 0; i < 5000; i++) {
      const bytes = drawBytes(12)
      if (bytes[0] === last || bytes[0] === 0) suspicious += 1
      last = bytes[11]
    }
    // By chance it is 39; 120 are 13 standard deviations away.
    expect(suspicious).toBeLessThan(120)
  })

  it('keeps no reference to the bytes it returned', () => {
    const bytes = drawBytes(16)
    const copy = Buffer.from(bytes)
    for (let i = 0; i < 600; i++) drawBytes(16)
    expect(bytes).toEqual(copy)
  })
})

describe('drawId', () => {
  it('returns 16 bytes in base64url, none of which is in another id or in bytes that were drawn', () => {
    const drawn: string[] = []
    for (let i = 0; i < 2_000; i++) {
      const id = drawId()
      expect(id).toMatch(/^[A-Za-z0-9_-]{22}$/)
      drawn.push(Buffer.from(id, 'base64url').toString('hex'))
      // Sizes of all kinds, so that refills come at every place.
      if (i % 3 === 0) drawn.push(drawBytes(4 + (i % 29)).toString('hex'))
    }
    // The four bytes that begin a draw occur nowhere else, except by chance: once in 20 runs.
    const all = drawn.join(' ')
    const repeated = drawn.filter((hex) => all.indexOf(hex.slice(0, 8)) !== all.lastIndexOf(hex.slice(0, 8)))
    expect(repeated.length).toBeLessThanOrEqual(6)
  })

  it('leaves no id in memory', () => {
    const filled = vi.spyOn(crypto, 'randomFillSync')
    syncBuiltinESMExports()
    let id = ''
    let stock = Buffer.alloc(0)
    try {
      drawBytes(4096)
      id = drawId()
      stock = filled.mock.lastCall?.[0] as unknown as Buffer<ArrayBuffer>
    } finally {
      filled.mockRestore()
      syncBuiltinESMExports()
    }
    expect(stock).toHaveLength(4096)
    expect(stock.includes(Buffer.from(id, 'base64url'))).toBe(false)
    expect(stock.subarray(0, 16)).toEqual(Buffer.alloc(16))
    expect(stock.subarray(16).includes(Buffer.alloc(16))).toBe(false)
  })
})
