import { describe, expect, it } from 'vitest'
import { hasAnEnd } from '../../../../test/support/has-an-end.ts'
import { cleanText, displayText, escapeUnsafe, oneLine } from './clean-text.ts'

const TAG = String.fromCodePoint(0xe0041)

describe('cleanText', () => {
  it.each([
    ['plain text', 'Grüße, 你好 👩‍👩‍👧', 'Grüße, 你好 👩‍👩‍👧'],
    ['terminal sequences', 'a\u001b[31mred\u001b[0m\u0007\u009b2Jb', 'a[31mred[0m2Jb'],
    ['line breaks', 'a\r\nb\nc\u2028d\te', 'a b c d e'],
    ['a reversed direction', 'file\u202egnp.exe\u2066x\u2069', 'filegnp.exex'],
    ['characters of no width', '\ufeffa\u200bb', 'ab'],
    ['a lone surrogate', 'a\ud800', 'a\ufffd'],
    ['surrounding white space', '  a ', 'a'],
    ['invisible marks', 'a\u061cb\u206ac\u206fd\u180ee\ufff9f', 'abcdef'],
    ['tags', `a${TAG}b`, 'ab'],
  ])('cleans %s', (_name, text, shown) => {
    expect(cleanText(text, 100)).toBe(shown)
  })

  it('keeps line breaks if asked to', () => {
    expect(cleanText('a\r\nb\u2029c', 100, 'many')).toBe('a\nb\nc')
  })

  it('cuts a long text before it does anything else', () => {
    expect(cleanText('abc', 3)).toBe('abc')
    expect(cleanText('abcd', 3)).toBe('abc…')
    expect(hasAnEnd(() => cleanText('x'.repeat(10_000_000), 10))).toHaveLength(11)
  })
})

describe('text from a server', () => {
  it.each([
    ['plain ASCII, ünïcode and 👩‍💻', 'plain ASCII, ünïcode and 👩‍💻'],
    ['two\r\nlines\rand\ttabs', 'two\nlines\nand\ttabs'],
    ['\u001b[31mred\u001b[0m', '[31mred[0m'],
    ['\u009b2Jgone', '2Jgone'],
    ['a\u0000b\u0007c\u007fd\u0008', 'abcd'],
    ['pay \u202eevil\u202c now', 'pay evil now'],
    ['hid\u200bden\u2066x\u2069\ufeff', 'hiddenx'],
    [`tag${TAG}s`, 'tags'],
    ['lone \ud800 half', 'lone \ufffd half'],
  ])('T22 shows %j as %j', (text, shown) => {
    expect(displayText(text)).toBe(shown)
  })

  it('T22 has no line break in one line', () => {
    expect(oneLine(' a\rb\u2028c\n\td ')).toBe('a b c d')
  })

  it('T22 means the same in JSON with escapes', () => {
    const value = { 'k\u202e': `\u009b31m\u061c${TAG}\u2029é👩‍💻`, control: '\u001b\u0000' }
    const json = escapeUnsafe(JSON.stringify(value, undefined, 2))
    expect(JSON.parse(json)).toEqual(value)
    expect(displayText(json)).toBe(json)
    expect(json).toContain('é👩‍💻')
    expect(json).toContain('\\udb40\\udc41')
  })
})
