import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { parseKeys } from './key-ring.ts'
import { type Claims, type Expected, openState, STATE_LIMITS, sealState } from './state.ts'

interface Vector {
  name: string
  keys: string
  audience: string
  expected: Expected
  token: string
}

interface Vectors {
  open: (Vector & { mint: string; random: string; claims: Claims; keyId: string })[]
  refuse: (Vector & { maxBytes: number; reason: string })[]
}

describe('the frozen vectors', () => {
  const file = new URL('./state.vectors.json', import.meta.url)
  const vectors: Vectors = JSON.parse(readFileSync(file, 'utf8'))

  it('the list is not empty and covers every reason', () => {
    expect(vectors.open).toHaveLength(4)
    const reasons = new Set(vectors.refuse.map(({ reason }) => reason))
    expect([...reasons]).toEqual([
      'size',
      'encoding',
      'key',
      'commitment',
      'tag',
      'shape',
      'early',
      'expired',
      'flow-expired',
      'principal',
      'method',
      'request',
      'protocol',
    ])
  })

  it.each(vectors.open)('B9 still open: $name', ({ keys, audience, token, expected, claims, keyId }) => {
    const opened = openState(parseKeys(keys), audience, token, expected)
    expect(opened).toEqual({ kind: 'open', claims, keyId })
  })

  it.each(vectors.open)(
    'are sealed to the same string: $name',
    ({ mint, audience, claims, random, token }) => {
      const sealed = sealState(parseKeys(mint), audience, claims, STATE_LIMITS, streamOf(random))
      expect(sealed).toMatchObject({ kind: 'sealed', token, bytes: token.length })
    },
  )

  it.each(vectors.refuse)('B4 R1 openState refuses a vector for $reason: $name', (vector) => {
    const { keys, audience, token, expected, maxBytes, reason } = vector
    const opened = openState(parseKeys(keys), audience, token, expected, { ...STATE_LIMITS, maxBytes })
    expect(opened).toMatchObject({ kind: 'refused', reason })
  })
})

/** Returns the bytes of the vector one after the other. */
function streamOf(random: string): (size: number) => Uint8Array {
  const bytes = Buffer.from(random, 'base64url')
  let at = 0
  return (size) => {
    at += size
    return bytes.subarray(at - size, at)
  }
}
