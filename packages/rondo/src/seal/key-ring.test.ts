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

  it('reads base64 of every length, with both characters that base64url replaces', () => {
    const secret = Buffer.concat([Buffer.of(0xfb, 0xff), SECRET])
    const text = secret.toString('base64')
    expect(text).toMatch(/^\+\/.*==$/)
    expect(parseKeys(`k:${text}`).mint.secret.export()).toEqual(secret)
  })

  it('accepts a name of 1 to 64 characters', () => {
    const names = ['k', 'A-z_0.9', 'n'.repeat(64)]
    expect(parseKeys(names.map((name) => `${name}:${BASE64}`).join()).names).toEqual(names)
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
    ['a name of 65 characters', `${'n'.repeat(65)}:${BASE64}`, /name of key 1/],
    ['a name that begins with another character', `/k:${BASE64}`, /name of key 1/],
    ['a name that ends with another character', `k/:${BASE64}`, /name of key 1/],
    ['padding in the middle', `k:${BASE64.replace('=', '')}==A`, /key 1 is not base64/],
    ['three characters of padding', `k:${BASE64}==`, /key 1 is not base64/],
    ['a secret of 7 different bytes', `k:${bytesOf(7).toString('base64')}`, /key 1 is not random/],
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

  it('accepts a secret of 8 different bytes', () => {
    expect(parseKeys(`k:${bytesOf(8).toString('base64')}`).names).toEqual(['k'])
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

  it('makes up a name of 8 hexadecimal digits', () => {
    expect(generateKey()).toMatch(/^[0-9a-f]{8}:/)
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

/** 32 bytes, of which `different` differ. */
function bytesOf(different: number): Buffer {
  return Buffer.from(Array.from({ length: 32 }, (_, index) => index % different))
}

function errorOf(run: () => unknown): unknown {
  try {
    run()
  } catch (error) {
    return error
  }
  throw new Error('nothing was thrown')
}
