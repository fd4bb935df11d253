import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { splitCommand } from './words.ts'

describe('a quoted command', () => {
  it.each([
    ['node server.js', ['node', 'server.js']],
    ['  node\t a  b ', ['node', 'a', 'b']],
    [`node 'a b' "c d"`, ['node', 'a b', 'c d']],
    [`a'b'"c"d`, ['abcd']],
    [`"a \\"b\\""`, ['a "b"']],
    ['a\\ b', ['a b']],
    [`'' ""`, ['', '']],
    ['$HOME * ; | `x`', ['$HOME', '*', ';', '|', '`x`']],
    ['', []],
  ])('%j is split into %j', (text, words) => expect(splitCommand(text)).toEqual(words))

  it.each([`'a`, `"a`, 'a\\'])('%j is refused because it is incomplete', (text) =>
    expect(() => splitCommand(text)).toThrow(/unclosed quote/),
  )

  it('is split into exactly the words that were put in single quotes', () => {
    const word = fc.string({ unit: 'grapheme' }).filter((text) => !text.includes("'"))
    fc.assert(
      fc.property(fc.array(word), (words) => {
        expect(splitCommand(words.map((one) => `'${one}'`).join(' '))).toEqual(words)
      }),
    )
  })
})
