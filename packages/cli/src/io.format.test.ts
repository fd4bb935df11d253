import { execFileSync } from 'node:child_process'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { exampleWord } from './describe.ts'
import { shellWord } from './io.ts'

describe('a word for a shell', () => {
  it('is not quoted if it is plain', () => {
    for (const word of ['who.name=…', 'http://127.0.0.1:3000/mcp', 'größe=…', 'a-b_c']) {
      expect(shellWord(word)).toBe(word)
    }
  })

  it('T22 is quoted so that a shell passes on exactly the word', () => {
    const text = fc.string({ unit: 'binary-ascii', minLength: 1, maxLength: 12 })
    const words = fc.array(
      text.filter((one) => !one.includes('\0')),
      { minLength: 1, maxLength: 40 },
    )
    fc.assert(
      fc.property(words, (given) => {
        const line = `printf '%s\\0' ${given.map(shellWord).join(' ')}`
        const printed = execFileSync('sh', ['-c', line], { encoding: 'utf8' })
        expect(printed.split('\0').slice(0, -1)).toEqual(given)
      }),
      { numRuns: 30 },
    )
  })

  it('T22 quotes the key that a server chose for its question', () => {
    const params = { mode: 'url', message: 'Go', url: 'https://example.com/' } as const
    const word = exampleWord('x$(touch /tmp/x);y', { method: 'elicitation/create', params })
    expect(word).toBe("'x$(touch /tmp/x);y=accept'")
  })
})
