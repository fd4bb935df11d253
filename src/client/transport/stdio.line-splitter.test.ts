import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { createLineSplitter } from './stdio.ts'

function split(chunks: readonly Uint8Array[], maxBytes = 1_000) {
  const lines: string[] = []
  let overflows = 0
  const splitter = createLineSplitter(
    maxBytes,
    (line) => lines.push(line),
    () => overflows++,
  )
  for (const chunk of chunks) splitter.push(chunk)
  return { lines, overflows }
}

describe('lines', () => {
  it('come out the same however the bytes arrive', () => {
    const text = fc.array(fc.string({ unit: 'grapheme' }).map((line) => `x${line.replaceAll('\n', '')}`))
    fc.assert(
      fc.property(text, fc.integer({ min: 1, max: 7 }), (lines, size) => {
        const bytes = Buffer.from(lines.map((line) => `${line}\n`).join(''))
        const chunks = Array.from({ length: Math.ceil(bytes.length / size) }, (_, i) =>
          bytes.subarray(i * size, (i + 1) * size),
        )
        expect(split(chunks, 100_000).lines).toEqual(lines)
      }),
    )
  })

  it('T22 that are too long are dropped to their end, and reported once', () => {
    const chunks = ['ok\n', ...Array<string>(50).fill('x'.repeat(100)), 'end\nfine\n\n  \n'].map((text) =>
      Buffer.from(text),
    )
    expect(split(chunks)).toEqual({ lines: ['ok', 'fine'], overflows: 1 })
  })
})
