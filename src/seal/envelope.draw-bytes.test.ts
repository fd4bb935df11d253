import { describe, expect, it } from 'vitest'
import { drawBytes } from './envelope.ts'

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
