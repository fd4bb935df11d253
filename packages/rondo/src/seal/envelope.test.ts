import { createHash, randomBytes } from 'node:crypto'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { AUDIENCE, ringOf } from '../../../../test/support/seal-fixtures.ts'
import { type EnvelopeRefusal, envelopeLength, openEnvelope, sealEnvelope } from './envelope.ts'
import { createKeyRing } from './key-ring.ts'

const MAX = 64 * 1024
const ALPHABET = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_'
const ring = ringOf('a', 'b')

function reasonOf(token: unknown, audience: string = AUDIENCE): EnvelopeRefusal | 'open' {
  const opened = openEnvelope(ring, audience, token, MAX)
  return opened.kind === 'open' ? 'open' : opened.reason
}

function withByte(token: string, index: number, change: (byte: number) => number): string {
  const raw = Buffer.from(token.slice(3), 'base64url')
  const at = index < 0 ? raw.length + index : index
  raw[at] = change(raw[at] ?? 0)
  return `r1.${raw.toString('base64url')}`
}

/** Where the parts of a token begin, from docs/reference/token-format.md. */
const [commitmentAt, ciphertextAt, shortest] = [34, 66, 338]

describe('sealEnvelope and openEnvelope', () => {
  it('P1 restores every byte, and names the key', () => {
    fc.assert(
      fc.property(
        fc.uint8Array({ maxLength: 6_000, size: 'max' }),
        fc.string({ unit: 'binary' }),
        (data, to) => {
          const { token, keyId } = sealEnvelope(ring, to, data)
          expect(token).toHaveLength(envelopeLength(data.length))
          expect(openEnvelope(ring, to, token, token.length)).toEqual({
            kind: 'open',
            plaintext: Buffer.from(data),
            keyId,
          })
        },
      ),
    )
  })

  it('B3 reveals nothing of the plaintext, and never returns the same token twice', () => {
    const secret = 'the answer is Duplicate'
    const tokens = Array.from({ length: 50 }, () => sealEnvelope(ring, AUDIENCE, secret).token)
    const rest = (token: string): string => token.slice(3 + Math.ceil((ciphertextAt * 4) / 3))
    expect(new Set(tokens.map(rest)).size).toBe(50)
    for (const token of tokens) {
      expect(Buffer.from(token.slice(3), 'base64url').includes(secret)).toBe(false)
    }
  })

  it('B3 an independent implementation of the description opens a token', async () => {
    const secret = randomBytes(40)
    const one = createKeyRing([{ name: 'k', secret }])
    const { token } = sealEnvelope(one, AUDIENCE, 'hello')
    expect(await readByTheBook(secret, AUDIENCE, token)).toBe('hello')
  })

  it('T2 binds a token to the audience, even if two audiences differ only in a lone surrogate', () => {
    const { token } = sealEnvelope(ring, '\ud800', 'x')
    expect(reasonOf(token, '\ud800')).toBe('open')
    for (const other of ['\ud801', '\ufffd', '', '\ud800 ', '"\ud800"']) {
      expect(reasonOf(token, other)).toBe('commitment')
    }
  })

  it('opens a token of the first audience after one of a second', () => {
    const first = sealEnvelope(ring, 'one', 'x').token
    const second = sealEnvelope(ring, 'two', 'x').token
    expect([reasonOf(first, 'one'), reasonOf(second, 'two'), reasonOf(first, 'one')]).toEqual(
      Array(3).fill('open'),
    )
    expect([reasonOf(first, 'two'), reasonOf(second, 'one')]).toEqual(Array(2).fill('commitment'))
  })

  it('B4 checks size, encoding, key, commitment and tag, in this order', () => {
    const { token } = sealEnvelope(ring, AUDIENCE, 'data')
    const flip = (byte: number) => byte ^ 1
    const table: [string, unknown, EnvelopeRefusal | 'open'][] = [
      ['genuine', token, 'open'],
      ['too long', `r1.${'A'.repeat(MAX)}`, 'size'],
      ['too long and genuine in front', token + 'A'.repeat(MAX), 'size'],
      ['not a string', Buffer.from(token), 'encoding'],
      ['empty', '', 'encoding'],
      ['the prefix alone', 'r1.', 'encoding'],
      ['another prefix', token.replace('r1.', 'r2.'), 'encoding'],
      ['a length that no padding has', token.slice(0, -4), 'encoding'],
      ['another format', withByte(token, 0, () => 2), 'encoding'],
      ['no suite', withByte(token, 1, () => 0), 'encoding'],
      ['the suite before', withByte(token, 1, () => 1), 'encoding'],
      ['the suite after', withByte(token, 1, () => 3), 'encoding'],
      ['an unknown key', withByte(token, 5, flip), 'key'],
      ['another salt', withByte(token, 6, flip), 'commitment'],
      ['another commitment', withByte(token, commitmentAt, flip), 'commitment'],
      ['another end of the commitment', withByte(token, ciphertextAt - 1, flip), 'commitment'],
      ['another ciphertext', withByte(token, ciphertextAt, flip), 'tag'],
      ['another tag', withByte(token, -1, flip), 'tag'],
    ]
    for (const [name, given, reason] of table) expect([name, reasonOf(given)]).toEqual([name, reason])
  })

  it('B4 refuses a token whose key id names another key of the ring', () => {
    const { token } = sealEnvelope(ring, AUDIENCE, 'data')
    const other = sealEnvelope(ringOf('b'), AUDIENCE, 'data').token
    const raw = Buffer.from(token.slice(3), 'base64url')
    Buffer.from(other.slice(3), 'base64url').copy(raw, 2, 2, 6)
    expect(openEnvelope(ring, AUDIENCE, `r1.${raw.toString('base64url')}`, MAX)).toEqual({
      kind: 'refused',
      reason: 'commitment',
      keyId: 'b',
    })
  })

  it('P2 never throws and opens no string that was not sealed', () => {
    fc.assert(
      fc.property(
        fc.anything(),
        fc.uint8Array({ minLength: shortest, maxLength: shortest }),
        (thing, bytes) => {
          expect(reasonOf(thing)).not.toBe('open')
          expect(reasonOf(`r1.${Buffer.from(bytes).toString('base64url')}`)).not.toBe('open')
          bytes.set([1, 2], 0)
          new DataView(bytes.buffer).setUint32(2, ring.mint.id)
          expect(reasonOf(`r1.${Buffer.from(bytes).toString('base64url')}`)).toBe('commitment')
        },
      ),
    )
  })

  it.each([8, 300, 600])('P3 exactly one string opens for %i bytes of data', (size) => {
    const { token } = sealEnvelope(ring, AUDIENCE, Buffer.alloc(size, 65))
    expect(openings(token, reasonOf)).toEqual([token])
  })

  it('P3 control: the same search finds many strings for a lenient decoder', () => {
    const { token } = sealEnvelope(ring, AUDIENCE, Buffer.alloc(300, 65))
    const lenient = (text: string) => {
      const raw = Buffer.from(text.replace(/^r1\./i, ''), 'base64')
      return reasonOf(`r1.${raw.toString('base64url')}`)
    }
    expect(openings(token, lenient).length).toBeGreaterThan(50)
  })
})

/** Every string near `token` that opens: each character of its ends replaced, dropped, doubled, or joined by another. */
function openings(token: string, tryOpen: (text: string) => string): string[] {
  const strange = ['=', '+', '/', ' ', '\n', '\0', '.', '\u212a', '\uff21', '\u00e9', '\ud800']
  const characters = [...ALPHABET, ...strange]
  const spots = [...Array(16).keys()].flatMap((spot) => [spot, token.length - spot])
  const near = new Set<string>([token, `${token}==`, token.replaceAll('-', '+').replaceAll('_', '/')])
  for (const spot of spots) {
    near.add(token.slice(0, spot) + token.slice(spot + 1))
    for (const character of characters) {
      near.add(token.slice(0, spot) + character + token.slice(spot))
      near.add(token.slice(0, spot) + character + token.slice(spot + 1))
    }
  }
  near
    .add(token.toLowerCase())
    .add(token.toUpperCase())
    .add(`R${token.slice(1)}`)
  return [...near].filter((text) => tryOpen(text) === 'open')
}

/** Written from docs/reference/token-format.md with WebCrypto, sharing no code with the sealer. */
async function readByTheBook(secret: Buffer<ArrayBuffer>, audience: string, token: string): Promise<string> {
  const raw = Buffer.from(token.slice('r1.'.length), 'base64url')
  const context = contextByTheBook(audience, raw)
  const info = Buffer.concat([Buffer.from('rondo seal\0'), raw.subarray(0, 6)])
  const okm = await hkdfByTheBook(secret, raw.subarray(6, 22), info, 64)
  const mac = { name: 'HMAC', hash: 'SHA-256' }
  const commitmentKey = await crypto.subtle.importKey('raw', okm.subarray(32), mac, false, ['sign'])
  expect(Buffer.from(await crypto.subtle.sign('HMAC', commitmentKey, context))).toEqual(raw.subarray(34, 66))
  return decryptByTheBook(okm.subarray(0, 32), raw.subarray(22, 34), context, raw.subarray(66))
}

function contextByTheBook(audience: string, raw: Buffer): Buffer<ArrayBuffer> {
  const audienceHash = createHash('sha256').update(JSON.stringify(audience)).digest()
  return Buffer.concat([Buffer.from('rondo seal\0'), audienceHash, raw.subarray(0, 6)])
}

async function hkdfByTheBook(
  secret: Buffer<ArrayBuffer>,
  salt: Buffer<ArrayBuffer>,
  info: Buffer<ArrayBuffer>,
  bytes: number,
): Promise<Buffer<ArrayBuffer>> {
  const ikm = await crypto.subtle.importKey('raw', secret, 'HKDF', false, ['deriveBits'])
  const derivation = { name: 'HKDF', hash: 'SHA-256', salt, info }
  return Buffer.from(await crypto.subtle.deriveBits(derivation, ikm, bytes * 8))
}

async function decryptByTheBook(
  key: Buffer<ArrayBuffer>,
  iv: Buffer<ArrayBuffer>,
  additionalData: Buffer<ArrayBuffer>,
  ciphertext: Buffer<ArrayBuffer>,
): Promise<string> {
  const aes = await crypto.subtle.importKey('raw', key, 'AES-GCM', false, ['decrypt'])
  const cipher = { name: 'AES-GCM', iv, additionalData, tagLength: 128 }
  const padded = Buffer.from(await crypto.subtle.decrypt(cipher, aes, ciphertext))
  return padded.subarray(4, 4 + padded.readUInt32BE(0)).toString()
}
