import { createHash, randomBytes } from 'node:crypto'
import { inspect } from 'node:util'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { createKeyRing, generateKey, parseKeys } from './key-ring.ts'

const SECRET = createHash('sha256').update('a secret').digest()
const BASE64 = SECRET.toString('base64')

describe('parseKeys', () => {
  it('B9 mints with the first key and finds them all', () => {
    const ring = parseKeys(`new:${BASE64},old:${randomBytes(48).toString('base64')}`)
    expect(ring.mint.name).toBe('new')
    expect(ring.names).toEqual(['new', 'old'])
    const id = createHash('sha256').update('old').digest().readUInt32BE(0)
    expect(ring.find(id)?.name).toBe('old')
    expect(ring.find(ring.mint.id)).toBe(ring.mint)
    expect(ring.find(id + 1)).toBeUndefined()
  })

  it.each([
    ['padded base64', `k:${BASE64}`],
    ['base64 without padding', `k:${BASE64.replace('=', '')}`],
    ['base64url', `k:${SECRET.toString('base64url')}`],
    ['lines and spaces', `\n k:${BASE64} \n\n`],
    ['a trailing comma', `k:${BASE64},`],
  ])('reads %s', (_name, text) => {
    expect(parseKeys(text).mint.secret.export()).toEqual(SECRET)
  })

  it.each([
    ['nothing', ' , ', /contains no key/],
    ['a key without a name', BASE64, /Key 1 has no name/],
    ['an empty name', `:${BASE64}`, /name of key 1/],
    ['a name with other characters', `k/2:${BASE64}`, /name of key 1/],
    ['a name and its secret the wrong way round', `${BASE64}:k`, /secret of key 1|name of key 1/],
    ['a secret that is not base64', `k:${BASE64.slice(0, -2)}!=`, /key 1 is not base64/],
    ['a secret in hex', `k:${SECRET.toString('hex').slice(0, 31)}`, /key 1 is (shorter|not base64)/],
    ['a short secret', `k:${SECRET.subarray(1).toString('base64')}`, /key 1 is shorter than 32 bytes/],
    ['a secret of zeros', `k:${Buffer.alloc(32).toString('base64')}`, /key 1 is not random/],
    ['a bad second key', `k:${BASE64},l:x`, /key 2/],
    [
      'two keys of one name',
      `k:${BASE64},k:${randomBytes(32).toString('base64')}`,
      /Key 2 has the same name/,
    ],
  ])('refuses %s with a TypeError that shows no part of it', (_name, text, message) => {
    const error = errorOf(() => parseKeys(text))
    expect(error).toBeInstanceOf(TypeError)
    expect(String(error)).toMatch(message)
    for (let at = 0; at + 6 <= BASE64.length; at++) {
      expect(inspect(error)).not.toContain(BASE64.slice(at, at + 6))
    }
  })

  it('T16 never shows its input, whatever it is', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'grapheme-ascii', minLength: 8 }), (text) => {
        const error = errorOf(() => parseKeys(`${text}:${text},${text}`))
        expect(String(error)).not.toContain(text)
      }),
    )
  })

  it('T16 shows no secret when a ring is printed', () => {
    const shown = inspect(parseKeys(`k:${BASE64}`), { depth: 10, showHidden: true })
    expect(shown).toContain('k')
    expect(shown).not.toContain(BASE64.slice(0, 10))
    expect(shown).not.toContain(SECRET.toString('hex').slice(0, 10))
  })
})

describe('generateKey', () => {
  it('returns an entry that parses, with a new name and secret each time', () => {
    const keys = Array.from({ length: 20 }, () => generateKey())
    expect(parseKeys(keys.join(',')).names).toHaveLength(20)
    expect(parseKeys(generateKey('2026-11')).mint.name).toBe('2026-11')
    expect(parseKeys(generateKey()).mint.secret.symmetricKeySize).toBe(32)
  })

  it('refuses a name that would not parse', () => {
    expect(() => generateKey('a:b')).toThrow(TypeError)
  })
})

describe('createKeyRing', () => {
  it('needs a key', () => {
    expect(() => createKeyRing([])).toThrow(TypeError)
  })
})

function errorOf(run: () => unknown): unknown {
  try {
    run()
  } catch (error) {
    return error
  }
  throw new Error('nothing was thrown')
}
