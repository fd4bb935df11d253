import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { digest } from '../seal/envelope.ts'
import { canonicalJson } from './json.ts'

/** Any JSON value, with keys and strings of any code units. */
const json = fc.jsonValue({ stringUnit: 'binary', maxDepth: 6 })

describe('canonicalJson', () => {
  it.each([
    [null, 'null'],
    [true, 'true'],
    [-0, '0'],
    [1e21, '1e+21'],
    [0.1 + 0.2, '0.30000000000000004'],
    [5e-324, '5e-324'],
    ['a"\\\n\u2028', '"a\\"\\\\\\n\u2028"'],
    ['\ud800', '"\\ud800"'],
    [[], '[]'],
    [{}, '{}'],
    [[1, [2, {}], 'x'], '[1,[2,{}],"x"]'],
    [{ b: 1, a: { d: 2, c: 3 } }, '{"a":{"c":3,"d":2},"b":1}'],
    [{ a: undefined, b: 1 }, '{"b":1}'],
    [JSON.parse('{"__proto__":1,"constructor":2}'), '{"__proto__":1,"constructor":2}'],
  ])('writes %j in canonical form', (value, text) => {
    expect(canonicalJson(value)).toBe(text)
  })

  it('sorts keys by UTF-16 code units, as RFC 8785 does', () => {
    const keys = ['\u20ac', '\r', '\ufb33', '1', '\ud83d\ude00', '\u0080', '\u00f6']
    const object = Object.fromEntries(keys.map((key) => [key, 0]))
    const sorted = ['\r', '1', '\u0080', '\u00f6', '\u20ac', '\ud83d\ude00', '\ufb33']
    expect(canonicalJson(object)).toBe(`{${sorted.map((key) => `${JSON.stringify(key)}:0`).join(',')}}`)
  })

  it('P4 is a fixed point of parsing, on all JSON including lone surrogates', () => {
    fc.assert(
      fc.property(json, (value) => {
        const text = canonicalJson(value)
        expect(canonicalJson(JSON.parse(text))).toBe(text)
      }),
    )
  })

  it('P5 has equal digests for equal values and different ones for different values', () => {
    fc.assert(
      fc.property(json, json, (a, b) => {
        const shuffled: unknown = JSON.parse(JSON.stringify(a), reverseKeys)
        expect(digest(canonicalJson(shuffled))).toBe(digest(canonicalJson(a)))
        const same = digest(canonicalJson(a)) === digest(canonicalJson(b))
        expect(same).toBe(equalJson(a, b))
      }),
      { examples: [[['\ud800'], ['\udfff']]] },
    )
  })

  it('accepts a depth at which a function that calls itself overflows', () => {
    const depth = 50_000
    let deep: unknown = []
    for (let level = 1; level < depth; level++) deep = [deep]
    expect(canonicalJson(deep)).toBe('['.repeat(depth) + ']'.repeat(depth))
    const count = (value: unknown): number => (Array.isArray(value) ? 1 + count(value[0]) : 0)
    expect(() => count(deep)).toThrow(RangeError)
  })

  it.each([
    ['NaN', Number.NaN],
    ['infinity', [Number.POSITIVE_INFINITY]],
    ['undefined', undefined],
    ['an undefined element', [undefined]],
    ['a bigint', { a: 1n }],
    ['a function', { a: () => 1 }],
    ['a symbol', Symbol('s')],
    ['a Date', new Date(0)],
    ['a Map', new Map([['a', 1]])],
    ['a cycle', cycle()],
  ])('rejects %s, which is not JSON', (_name, value) => {
    expect(() => canonicalJson(value)).toThrow(TypeError)
  })
})

describe('digest', () => {
  it('is the whole SHA-256 in base64url', () => {
    expect(digest('')).toBe('47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU')
  })
})

function reverseKeys(_key: string, value: unknown): unknown {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return value
  return Object.fromEntries(Object.entries(value).reverse())
}

/** Equality as a handler sees it, written without the code under test. */
function equalJson(a: unknown, b: unknown): boolean {
  if (typeof a !== 'object' || typeof b !== 'object' || a === null || b === null) return a === b
  if (Array.isArray(a) !== Array.isArray(b)) return false
  const left = Object.entries(a)
  const right = new Map<string, unknown>(Object.entries(b))
  return (
    left.length === right.size &&
    left.every(([key, value]) => right.has(key) && equalJson(value, right.get(key)))
  )
}

function cycle(): unknown[] {
  const self: unknown[] = []
  self.push(self)
  return self
}
