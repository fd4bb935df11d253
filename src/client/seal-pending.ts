/**
 * A pending call encrypted for storage: `p1.` + base64url( nonce 12 · ciphertext · tag 16 ), AES-256-GCM.
 *
 * Not the seal of `requestState`, on purpose: there a stranger carries the token and binding, audience and rotation
 * matter; here one party writes and reads its own file. The client also stays free of the server's folders.
 * `node:crypto` is looked up when it is used: the rest of the client runs wherever there is `fetch`.
 */

import { RondoError } from '../errors.ts'
import { parsePending } from './parse-pending.ts'
import type { PendingCall } from './pending.ts'

const PREFIX = 'p1.'
const PURPOSE = 'rondo pending call, format 1'
const NONCE_BYTES = 12
const TAG_BYTES = 16

/** Encrypts a pending call. `key` is 32 random bytes, the same for opening. Needs Node, or a runtime with its `node:crypto`. */
export function sealPending(pending: PendingCall, key: Uint8Array): string {
  assertKey(key)
  const { createCipheriv, randomBytes } = nodeCrypto()
  const nonce = randomBytes(NONCE_BYTES)
  const cipher = createCipheriv('aes-256-gcm', key, nonce).setAAD(Buffer.from(PURPOSE))
  const sealed = [nonce, cipher.update(JSON.stringify(pending), 'utf8'), cipher.final(), cipher.getAuthTag()]
  return PREFIX + Buffer.concat(sealed).toString('base64url')
}

/** Opens what `sealPending` made. Anything else, and any other key, is refused with one error. */
export function openPending(sealed: string, key: Uint8Array): PendingCall {
  assertKey(key)
  return parsePending(decrypt(sealed, key))
}

function nodeCrypto(): typeof import('node:crypto') {
  const found = globalThis.process?.getBuiltinModule?.('node:crypto')
  if (found !== undefined) return found
  const instead = 'encrypt JSON.stringify(pending) by other means, and read it back with parsePending'
  throw new TypeError(`Sealing a pending call needs node:crypto, which is not here: ${instead}`)
}

function decrypt(sealed: string, key: Uint8Array): string {
  const { createDecipheriv } = nodeCrypto()
  const bytes = Buffer.from(sealed.slice(PREFIX.length), 'base64url')
  try {
    if (PREFIX + bytes.toString('base64url') !== sealed) throw new Error('not the written form')
    const decipher = createDecipheriv('aes-256-gcm', key, bytes.subarray(0, NONCE_BYTES), {
      authTagLength: TAG_BYTES,
    })
      .setAAD(Buffer.from(PURPOSE))
      .setAuthTag(bytes.subarray(-TAG_BYTES))
    const opened = decipher.update(bytes.subarray(NONCE_BYTES, -TAG_BYTES))
    return Buffer.concat([opened, decipher.final()]).toString('utf8')
  } catch (cause) {
    throw new RondoError('INPUT_PENDING', 'The pending call cannot be opened with this key', { cause })
  }
}

function assertKey(key: Uint8Array): void {
  if (key.byteLength !== 32) throw new TypeError(`The key must have 32 bytes, not ${key.byteLength}`)
}
