import { createCipheriv, createHash, createHmac } from 'node:crypto'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { AUDIENCE, ringOf } from '../../../../test/support/seal-fixtures.ts'
import {
  deriveShared,
  envelopeLength,
  isPaddedSize,
  openEnvelope,
  pad,
  paddedSize,
  unpad,
} from './envelope.ts'

describe('pad and unpad', () => {
  it('P1 restores the data without the padding', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 9_000, size: 'max' }), (data) => {
        expect(unpad(pad(data))).toEqual(Buffer.from(data))
      }),
    )
  })

  it('P1 restores data that fills its bucket, or leaves a few bytes of it', () => {
    for (let bytes = 240; bytes <= 256; bytes++) {
      expect(unpad(pad(Buffer.alloc(bytes, 1)))).toEqual(Buffer.alloc(bytes, 1))
    }
  })

  it('P14 grows with the data, by at most an eighth or one step of 256 bytes', () => {
    const broken = [...Array(60_000).keys()].filter((bytes) => {
      const size = paddedSize(bytes)
      const added = size - bytes - 4
      return (
        size > paddedSize(bytes + 1) || !isPaddedSize(size) || added < 0 || added >= Math.max(256, size / 8)
      )
    })
    expect(broken).toEqual([])
  })

  it('T21 allows a token of at most 64 KiB one of 43 lengths', () => {
    const lengths = new Set<number>()
    for (let bytes = 0; bytes < 60_000; bytes++) lengths.add(envelopeLength(bytes))
    expect([...lengths].filter((length) => length <= 64 * 1024)).toHaveLength(43)
  })

  it.each([
    ['a byte of padding that is not zero', corrupt((padded) => padded.writeUInt8(1, padded.length - 1))],
    ['a length beyond the end', corrupt((padded) => padded.writeUInt32BE(0xffff_ffff, 0))],
    ['a length of a larger bucket', corrupt((padded) => padded.writeUInt32BE(253, 0))],
    ['a length of a smaller bucket', Buffer.alloc(512)],
    ['a size that is no bucket', Buffer.alloc(300)],
    ['nothing at all', Buffer.alloc(0)],
  ])('refuses %s', (_name, padded) => {
    expect(unpad(padded)).toBeUndefined()
  })
})

describe('a token of ours whose padding is not', () => {
  const ring = ringOf('a')

  it.each([
    ['opens with the padding of its data', pad(Buffer.from('data')), { kind: 'open' }],
    ['is refused with any other', Buffer.alloc(512), { kind: 'refused', reason: 'shape', keyId: 'a' }],
  ])('B4 %s', (_name, padded, expected) => {
    const header = Buffer.of(1, 2, 0, 0, 0, 0)
    header.writeUInt32BE(ring.mint.id, 2)
    const [salt, nonce] = [Buffer.alloc(16, 1), Buffer.alloc(12, 2)]
    const { aesKey, commitmentKey } = deriveShared(ring.mint, header, salt)
    const audience = createHash('sha256').update(JSON.stringify(AUDIENCE)).digest()
    const context = Buffer.concat([Buffer.from('rondo seal\0'), audience, header])
    const commitment = createHmac('sha256', commitmentKey).update(context).digest()
    const cipher = createCipheriv('aes-256-gcm', aesKey, nonce).setAAD(context)
    const ciphertext = Buffer.concat([cipher.update(padded), cipher.final(), cipher.getAuthTag()])
    const token = Buffer.concat([header, salt, nonce, commitment, ciphertext]).toString('base64url')
    expect(openEnvelope(ring, AUDIENCE, `r1.${token}`, 64 * 1024)).toMatchObject(expected)
  })
})

function corrupt(change: (padded: Buffer) => void): Buffer {
  const padded = pad(Buffer.from('data'))
  change(padded)
  return padded
}
