import { describe, expect, it } from 'vitest'
import { hasAnEnd } from '../../test/support/has-an-end.ts'
import { cleanText } from './clean-text.ts'

describe('text to be shown', () => {
  it.each([
    ['plain', 'Grüße, 你好 👩‍👩‍👧', 'Grüße, 你好 👩‍👩‍👧'],
    ['terminal sequences', 'a\u001b[31mred\u001b[0m\u0007\u009b2Jb', 'a[31mred[0m2Jb'],
    ['line breaks', 'a\r\nb\nc\u2028d\te', 'a b c d e'],
    ['a reversed direction', 'file\u202egnp.exe\u2066x\u2069', 'filegnp.exex'],
    ['characters of no width', '\ufeffa\u200bb', 'ab'],
    ['a lone surrogate', 'a\ud800', 'a\ufffd'],
    ['blanks around it', '  a ', 'a'],
  ])('%s', (_name, text, shown) => {
    expect(cleanText(text, 100)).toBe(shown)
  })

  it('keeps line breaks where lines are wanted', () => {
    expect(cleanText('a\r\nb\u2029c', 100, 'many')).toBe('a\nb\nc')
  })

  it('has an end', () => {
    expect(cleanText('abc', 3)).toBe('abc')
    expect(cleanText('abcd', 3)).toBe('abc…')
    expect(hasAnEnd(() => cleanText('x'.repeat(10_000_000), 10))).toHaveLength(11)
  })
})
