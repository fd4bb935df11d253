import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { decodeHeaderValue, encodeHeaderValue } from './headers.ts'

describe('header values', () => {
  it.each([
    ['us-west1', 'us-west1'],
    ['', ''],
    ['a b', 'a b'],
    ['test://a%20b', 'test://a%20b'],
    [' padded', '=?base64?IHBhZGRlZA==?='],
    ['tab\there', '=?base64?dGFiCWhlcmU=?='],
    ['日本', '=?base64?5pel5pys?='],
    ['=?base64?SGk=?=', '=?base64?PT9iYXNlNjQ/U0drPT89?='],
  ])('writes %j as %j', (text, value) => {
    expect(encodeHeaderValue(text)).toBe(value)
  })

  it.each([
    ['=?base64?SGVsbG8=?=', 'Hello'],
    ['  us-west1\t', 'us-west1'],
    ['=?base64?SGVsbG8=', '=?base64?SGVsbG8='],
    ['SGVsbG8=?=', 'SGVsbG8=?='],
    ['=?base64?=', '=?base64?='],
    ['=?base64??=', ''],
  ])('reads %j as %j', (value, text) => {
    expect(decodeHeaderValue(value)).toBe(text)
  })

  it.each([
    '=?base64?SGVsbG8?=',
    '=?base64?SGVs!!!bG8=?=',
    '=?base64?SGVsbG9=?=',
    '=?base64?SGVs bG8=?=',
    '=?base64?/w==?=',
  ])('T13 value 2: refuses the loose form %j', (value) => {
    expect(decodeHeaderValue(value)).toBeUndefined()
  })

  it('value 1: restores every text, from characters that a header can carry', () => {
    fc.assert(
      fc.property(fc.oneof(fc.string({ unit: 'grapheme' }), fc.string({ unit: 'binary' })), (text) => {
        const value = encodeHeaderValue(text)
        expect(value).toMatch(/^[ -~]*$/)
        expect(decodeHeaderValue(value)).toBe(text)
      }),
    )
  })
})
