import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { createLineReader } from './lines.ts'

function split(chunks: readonly Buffer[], maxBytes = 1_000): string[] {
  const lines: string[] = []
  const read = createLineReader(maxBytes, (line) =>
    lines.push(typeof line === 'string' ? `(${line})` : line.toString('utf8')),
  )
  for (const chunk of chunks) read(chunk)
  return lines
}

describe('the line reader', () => {
  it('returns the same lines however the bytes arrive', () => {
    const text = fc.array(fc.string({ unit: 'grapheme' }).map((line) => `x${line.replaceAll('\n', '')}`))
    fc.assert(
      fc.property(text, fc.integer({ min: 1, max: 7 }), (lines, size) => {
        const bytes = Buffer.from(lines.map((line) => `${line}\n`).join(''))
        const chunks = Array.from({ length: Math.ceil(bytes.length / size) }, (_, i) =>
          bytes.subarray(i * size, (i + 1) * size),
        )
        expect(split(chunks, 100_000)).toEqual(lines)
      }),
    )
  })

  it('T22 skips a line that is too long, and reports it once', () => {
    const chunks = ['ok\n', ...Array<string>(50).fill('x'.repeat(100)), 'end\nfine\n\n  \n'].map((text) =>
      Buffer.from(text),
    )
    expect(split(chunks)).toEqual(['ok', '(too-long)', 'fine', '', '  '])
  })
})
