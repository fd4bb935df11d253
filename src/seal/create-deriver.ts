/**
 * HKDF-SHA-256 (RFC 5869) for one secret and one info, from one-shot hashes: what does not change is laid out once.
 *
 *   prk = HMAC(salt, secret)     okm = HMAC(prk, info 1) · HMAC(prk, block before · info · 2) · …
 *   HMAC(key, message) = SHA-256(key ⊕ 5c… · SHA-256(key ⊕ 36… · message))
 *
 * Every token has keys of its own, so this runs on every round that seals or opens. `hkdfSync` finds its algorithm by
 * name and makes a job each time, which costs several times the hashing; a test holds the two against each other.
 */

import { hash } from 'node:crypto'

const HASH_BYTES = 32
const BLOCK_BYTES = 64

/** Gives the function that derives `length` bytes from a salt of 32 bytes. */
export function createDeriver(
  secret: Uint8Array,
  info: Uint8Array,
  length: number,
): (salt: Uint8Array) => Buffer {
  const blocks = Math.ceil(length / HASH_BYTES)
  const block = Buffer.alloc(HASH_BYTES)
  const extract = Buffer.concat([Buffer.alloc(BLOCK_BYTES, 0x36), secret])
  const first = Buffer.concat([Buffer.alloc(BLOCK_BYTES, 0x36), info, Buffer.of(1)])
  const later = Buffer.concat([Buffer.alloc(BLOCK_BYTES, 0x36), block, info, Buffer.of(0)])
  const outer = Buffer.concat([Buffer.alloc(BLOCK_BYTES, 0x5c), block])

  /** The HMAC whose inner message lies behind the key in `inner`; `outer` has the same key. */
  const mac = (inner: Buffer, into: Buffer, at: number): void => {
    outer.write(hash('sha256', inner, 'binary'), BLOCK_BYTES, 'latin1')
    into.write(hash('sha256', outer, 'binary'), at, 'latin1')
  }

  return (salt) => {
    const okm = Buffer.alloc(blocks * HASH_BYTES)
    setKey(salt, extract, outer)
    mac(extract, block, 0)
    setKey(block, first, outer)
    mac(first, okm, 0)
    later.set(first.subarray(0, HASH_BYTES))
    for (let n = 1; n < blocks; n++) {
      later.set(okm.subarray((n - 1) * HASH_BYTES, n * HASH_BYTES), BLOCK_BYTES)
      later[later.length - 1] = n + 1
      mac(later, okm, n * HASH_BYTES)
    }
    return okm.subarray(0, length)
  }
}

/** Keys here have 32 bytes; the rest of their block is zero, and never changes. */
function setKey(key: Uint8Array, inner: Buffer, outer: Buffer): void {
  for (let i = 0; i < HASH_BYTES; i++) {
    const byte = key[i] as number
    inner[i] = byte ^ 0x36
    outer[i] = byte ^ 0x5c
  }
}
