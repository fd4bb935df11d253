import { describe, expect, it } from 'vitest'
import { displayText } from './display-text.ts'

describe('text from a server', () => {
  it.each([
    ['plain ASCII, ünïcode and 👩‍💻', 'plain ASCII, ünïcode and 👩‍💻'],
    ['two\r\nlines\rand\ttabs', 'two\nlines\nand\ttabs'],
    ['\u001b[31mred\u001b[0m', '[31mred[0m'],
    ['\u009b2Jgone', '2Jgone'],
    ['a\u0000b\u0007c\u007fd\u0008', 'abcd'],
    ['pay \u202eevil\u202c now', 'pay evil now'],
    ['hid\u200bden\u2066x\u2069\ufeff', 'hiddenx'],
    ['tag\u{e0041}s', 'tags'],
    ['lone \ud800 half', 'lone  half'],
  ])('T22 shows %j as %j', (text, shown) => {
    expect(displayText(text)).toBe(shown)
  })
})
