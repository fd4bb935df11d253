/**
 * The keys a fleet seals with: the first one mints, all of them open.
 *
 * A key is written `name:secret`, the secret in base64 (32 bytes or more), several keys separated by commas or white
 * space. The name is for people and logs; a token carries the first 4 bytes of the name's SHA-256 instead. A name stands
 * for one secret for ever: a new secret needs a new name.
 *
 * Rotation, each step rolled out to every instance before the next:
 *   learn  old,new   everyone can open what the new key will seal
 *   mint   new,old   new tokens use the new key, open flows go on
 *   drop   new       once no flow and no task can be left that began before the last instance minted with the new key
 *
 * No message of this file contains any part of what was given as a key.
 */

import { createSecretKey, hash, type KeyObject, randomBytes } from 'node:crypto'
import { misuse } from '../errors.ts'

const MIN_SECRET_BYTES = 32
const NAME = /^[A-Za-z0-9._-]{1,64}$/
/** Of 32 random bytes, fewer than this many different values has a chance below 2^-120. */
const MIN_DIFFERENT_BYTES = 8

export interface RingKey {
  readonly name: string
  /** The 4 bytes a token carries, as an unsigned number. */
  readonly id: number
  readonly secret: KeyObject
}

export interface KeyRing {
  readonly kind: 'key-ring'
  /** The key that seals. */
  readonly mint: RingKey
  /** Names in order, for logs. */
  readonly names: readonly string[]
  find(id: number): RingKey | undefined
}

export interface KeyMaterial {
  readonly name: string
  readonly secret: Uint8Array
}

export function createKeyRing(materials: readonly KeyMaterial[]): KeyRing {
  const keys = materials.map(toRingKey)
  const [mint] = keys
  if (mint === undefined) throw misuse('A key ring needs at least one key')
  const byId = new Map<number, RingKey>()
  for (const [index, key] of keys.entries()) {
    if (byId.has(key.id)) {
      throw misuse(`Key ${index + 1} has the same name as an earlier key. Give every key its own name`)
    }
    byId.set(key.id, key)
  }
  return { kind: 'key-ring', mint, names: keys.map((key) => key.name), find: (id) => byId.get(id) }
}

/** Reads `name:base64,name2:base64`. */
export function parseKeys(text: string): KeyRing {
  const entries = text.split(/[\s,]+/).filter((entry) => entry !== '')
  if (entries.length === 0) throw misuse(`No key was given. Write ${KEY_FORM}`)
  return createKeyRing(entries.map(parseEntry))
}

/** A new key as one entry for `RONDO_KEYS`. */
export function generateKey(name: string = randomBytes(4).toString('hex')): string {
  if (!NAME.test(name)) throw misuse(`A key's name has 1 to 64 characters of ${NAME_CHARACTERS}`)
  return `${name}:${randomBytes(MIN_SECRET_BYTES).toString('base64')}`
}

const NAME_CHARACTERS = 'A-Z a-z 0-9 . _ -'
const KEY_FORM = '"name:secret", the secret being 32 random bytes in base64'

function toRingKey({ name, secret }: KeyMaterial, index: number): RingKey {
  if (!NAME.test(name)) {
    throw misuse(`The name of key ${index + 1} must have 1 to 64 characters of ${NAME_CHARACTERS}`)
  }
  if (secret.byteLength < MIN_SECRET_BYTES) {
    throw misuse(`The secret of key ${index + 1} is shorter than ${MIN_SECRET_BYTES} bytes`)
  }
  if (new Set(secret).size < MIN_DIFFERENT_BYTES) {
    throw misuse(`The secret of key ${index + 1} is not random. Make one with "openssl rand -base64 32"`)
  }
  return { name, id: hash('sha256', name, 'buffer').readUInt32BE(0), secret: createSecretKey(secret) }
}

function parseEntry(entry: string, index: number): KeyMaterial {
  const colon = entry.indexOf(':')
  if (colon === -1) throw misuse(`Key ${index + 1} has no name. Write ${KEY_FORM}`)
  const secret = decodeBase64(entry.slice(colon + 1))
  if (secret === undefined) throw misuse(`The secret of key ${index + 1} is not base64. Write ${KEY_FORM}`)
  return { name: entry.slice(0, colon), secret }
}

/** Either alphabet, padded or not; anything else is undefined, where `Buffer.from` would skip it. */
function decodeBase64(text: string): Buffer | undefined {
  const bare = text
    .replace(/={1,2}$/, '')
    .replaceAll('+', '-')
    .replaceAll('/', '_')
  const bytes = Buffer.from(bare, 'base64url')
  return bytes.toString('base64url') === bare ? bytes : undefined
}
