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

/** The files of both suites are frozen. */
const FILES = [
  { suite: 1, file: 'state.vectors.json' },
  { suite: 2, file: 'state.vectors-2.json' },
] as const

describe.each(FILES)('$file', ({ suite, file }) => {
  const vectors: Vectors = JSON.parse(readFileSync(new URL(`./${file}`, import.meta.url), 'utf8'))

  it('is not empty and covers every reason', () => {
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

  it.each(vectors.open)('B9 still opens: $name', ({ keys, audience, token, expected, claims, keyId }) => {
    const opened = openState(parseKeys(keys), audience, token, expected)
    expect(opened).toEqual({ kind: 'open', claims, keyId })
  })

  it.each(vectors.open)('seals to the same string: $name', ({ mint, audience, claims, random, token }) => {
    const ring = { ...parseKeys(mint), suite }
    const sealed = sealState(ring, audience, claims, STATE_LIMITS, streamOf(random))
    expect(sealed).toMatchObject({ kind: 'sealed', token, bytes: token.length })
  })

  it.each(vectors.refuse)('B4 R1 refuses for $reason: $name', (vector) => {
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
