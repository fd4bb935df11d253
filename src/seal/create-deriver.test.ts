import { hkdfSync } from 'node:crypto'
import fc from 'fast-check'
import { expect, it } from 'vitest'
import { createDeriver } from './create-deriver.ts'

const bytes = (minLength: number, maxLength: number) => fc.uint8Array({ minLength, maxLength })

it('derives what HKDF-SHA-256 derives, again and again', () => {
  fc.assert(
    fc.property(
      bytes(1, 200),
      bytes(0, 100),
      fc.integer({ min: 1, max: 300 }),
      fc.array(bytes(32, 32), { minLength: 1, maxLength: 4 }),
      (secret, info, length, salts) => {
        const derive = createDeriver(secret, info, length)
        for (const salt of [...salts, ...salts]) {
          const expected = Buffer.from(hkdfSync('sha256', secret, salt, info, length))
          expect(derive(salt).toString('hex')).toBe(expected.toString('hex'))
        }
      },
    ),
  )
})

it('gives bytes that the next derivation leaves alone', () => {
  const derive = createDeriver(Buffer.alloc(32, 7), Buffer.from('info'), 76)
  const first = derive(Buffer.alloc(32, 1))
  const copy = Buffer.from(first)
  expect(derive(Buffer.alloc(32, 2)).equals(first)).toBe(false)
  expect(first.equals(copy)).toBe(true)
})
