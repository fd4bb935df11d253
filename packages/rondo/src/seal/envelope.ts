/**
 * Bytes in, one opaque string out, and back: authenticated encryption under a key ring.
 *
 *   "r1." + base64url( format 1 · suite 1 · key id 4 · salt 16 · nonce 12 · commitment 32 · ciphertext · tag 16 )
 *                      └────── header ──────┘
 *   context    = "rondo seal" 0x00 · SHA-256(JSON of the audience) · header
 *   padded data = length of the data, 4 bytes, big endian · data · zeros up to the bucket
 *
 *   HKDF-SHA-256(ring key, salt, info = "rondo seal" 0x00 · header)  →  AES key 32 · commitment key 32
 *   HMAC-SHA-256(commitment key, context)  →  commitment 32
 *   AES-256-GCM(AES key, nonce, aad = context)  →  ciphertext of the padded data, tag
 *
 * A process seals for an hour with one key (see `shared 1` below).
 *
 * envelope 1: A nonce is never used twice under one AES key, which seals at most 2^20 times with random nonces. That holds
 * however many tokens a ring key seals.
 * envelope 2: The commitment fixes the key and the audience: no token opens under two keys, and a wrong key shows before
 * anything is decrypted.
 * envelope 3: One token is one string: another spelling of the same bytes is refused.
 * envelope 4: Opening never throws, and its refusal is one word.
 * envelope 5: The bucket follows from the length of the data alone, so a token's length says little about its content, and
 * one text has one padded form.
 *
 * `state.ts` gives the data its meaning, and checks who may use it when.
 */

import {
  createCipheriv,
  createDecipheriv,
  createHmac,
  createSecretKey,
  hash,
  hkdfSync,
  type KeyObject,
  timingSafeEqual,
} from 'node:crypto'
import { createMemo, type Memo } from '../lib/collection.ts'
import { drawBytes } from '../lib/random.ts'
import type { KeyRing, RingKey } from './key-ring.ts'

const PREFIX = 'r1.'
const FORMAT = 1
const SUITE = 2

const SALT_BYTES = 16
const NONCE_BYTES = 12
const COMMITMENT_BYTES = 32
const TAG_BYTES = 16
const KEY_BYTES = 32

/** Where the parts of a token begin. */
const SALT_AT = 6
const NONCE_AT = SALT_AT + SALT_BYTES
const COMMITMENT_AT = NONCE_AT + NONCE_BYTES
const CIPHERTEXT_AT = COMMITMENT_AT + COMMITMENT_BYTES
const OVERHEAD = CIPHERTEXT_AT + TAG_BYTES

export type Random = (size: number) => Uint8Array

export type EnvelopeRefusal = 'size' | 'encoding' | 'key' | 'commitment' | 'tag' | 'shape'

export type OpenedEnvelope =
  | { readonly kind: 'open'; readonly plaintext: Buffer; readonly keyId: string }
  | { readonly kind: 'refused'; readonly reason: EnvelopeRefusal; readonly keyId?: string }

/** The length of the token that holds this many bytes. */
export function envelopeLength(dataBytes: number): number {
  return PREFIX.length + Math.ceil(((OVERHEAD + paddedSize(dataBytes)) * 4) / 3)
}

const keys = createKeyTable()

/** `now` only decides how long a key is used, in ms of any clock that does not step back. */
export function sealEnvelope(
  ring: KeyRing,
  audience: string,
  plaintext: Uint8Array | string,
  random: Random = drawBytes,
  now: () => number = performance.now.bind(performance),
): { readonly token: string; readonly keyId: string } {
  const { mint: key } = ring
  const data = typeof plaintext === 'string' ? Buffer.from(plaintext) : plaintext
  const size = paddedSize(data.byteLength)
  const raw = Buffer.allocUnsafe(OVERHEAD + size)

  const shared = keys.mint(key, headerOf(key), random, now())
  const nonce = random(NONCE_BYTES)
  const { context, commitment } = bindTo(shared, audience)

  raw.set(shared.header, 0)
  raw.set(shared.salt, SALT_AT)
  raw.set(nonce, NONCE_AT)
  raw.set(commitment, COMMITMENT_AT)
  const cipher = createCipheriv('aes-256-gcm', shared.aesKey, nonce).setAAD(context)
  raw.set(cipher.update(padInto(raw.subarray(CIPHERTEXT_AT, CIPHERTEXT_AT + size), data)), CIPHERTEXT_AT)
  cipher.final()
  raw.set(cipher.getAuthTag(), CIPHERTEXT_AT + size)
  return { token: PREFIX + raw.toString('base64url'), keyId: key.name }
}

/** `maxBytes` limits the length of the token, prefix included. */
export function openEnvelope(
  ring: KeyRing,
  audience: string,
  token: unknown,
  maxBytes: number,
): OpenedEnvelope {
  if (typeof token !== 'string') return { kind: 'refused', reason: 'encoding' }
  if (!(token.length <= maxBytes)) return { kind: 'refused', reason: 'size' }
  const raw = decodeToken(token)
  if (raw === undefined) return { kind: 'refused', reason: 'encoding' }
  const key = ring.find(raw.readUInt32BE(2))
  if (key === undefined) return { kind: 'refused', reason: 'key' }

  const keyId = key.name
  const shared = keys.find(key, headerOf(key), raw.subarray(SALT_AT, NONCE_AT))
  const { context, commitment } = bindTo(shared, audience)
  if (!timingSafeEqual(commitment, raw.subarray(COMMITMENT_AT, CIPHERTEXT_AT))) {
    return { kind: 'refused', reason: 'commitment', keyId }
  }
  // Only now: the salts that anybody can make up do not get into the table.
  if (!shared.kept) keys.keep(key, shared)
  const padded = decrypt(raw, shared.aesKey, context)
  if (padded === undefined) return { kind: 'refused', reason: 'tag', keyId }
  const plaintext = unpad(padded)
  if (plaintext === undefined) return { kind: 'refused', reason: 'shape', keyId }
  return { kind: 'open', plaintext, keyId }
}

/** The bytes of a token in this format; undefined for any other text. */
function decodeToken(token: string): Buffer | undefined {
  if (!token.startsWith(PREFIX)) return undefined
  const text = token.slice(PREFIX.length)
  const raw = Buffer.from(text, 'base64url')
  // Buffer.from skips foreign characters and ignores spare bits: only the canonical text survives the round trip.
  if (raw.toString('base64url') !== text) return undefined
  const isOurs = raw[0] === FORMAT && raw[1] === SUITE && isPaddedSize(raw.byteLength - OVERHEAD)
  return isOurs ? raw : undefined
}

const headers = new WeakMap<RingKey, Buffer>()

function headerOf(key: RingKey): Buffer {
  let header = headers.get(key)
  if (header === undefined) {
    header = Buffer.of(FORMAT, SUITE, 0, 0, 0, 0)
    header.writeUInt32BE(key.id, 2)
    headers.set(key, header)
  }
  return header
}

function decrypt(raw: Buffer, aesKey: KeyObject, context: Buffer): Buffer | undefined {
  const tagAt = raw.byteLength - TAG_BYTES
  const nonce = raw.subarray(NONCE_AT, COMMITMENT_AT)
  const decipher = createDecipheriv('aes-256-gcm', aesKey, nonce, { authTagLength: TAG_BYTES })
  decipher.setAAD(context).setAuthTag(raw.subarray(tagAt))
  const padded = decipher.update(raw.subarray(CIPHERTEXT_AT, tagAt))
  try {
    decipher.final()
    return padded
  } catch {
    return undefined
  }
}

const PREFIX_BYTES = 4
const SMALLEST_STEP = 256

/**
 * The padded size of `dataBytes` bytes of data. Buckets are 256 bytes apart up to 4 KiB, and above that an eighth of the
 * next lower power of two. A 64 KiB token then has one of 43 lengths, and padding adds at most an eighth (or 255 bytes).
 */
export function paddedSize(dataBytes: number): number {
  const bytes = PREFIX_BYTES + dataBytes
  const step = Math.max(SMALLEST_STEP, 2 ** (28 - Math.clz32(bytes)))
  return Math.ceil(bytes / step) * step
}

/** True if some data pads to exactly this size. */
export function isPaddedSize(bytes: number): boolean {
  return bytes >= SMALLEST_STEP && paddedSize(bytes - PREFIX_BYTES) === bytes
}

export function pad(data: Uint8Array): Buffer {
  return padInto(Buffer.allocUnsafe(paddedSize(data.byteLength)), data)
}

/** `padded` has the right size. */
function padInto(padded: Buffer, data: Uint8Array): Buffer {
  padded.writeUInt32BE(data.byteLength, 0)
  padded.set(data, PREFIX_BYTES)
  return padded.fill(0, PREFIX_BYTES + data.byteLength)
}

const ZEROS = Buffer.alloc(SMALLEST_STEP)

/** The data; undefined if `pad` returns these bytes for no data. */
export function unpad(padded: Buffer): Buffer | undefined {
  if (!isPaddedSize(padded.byteLength)) return undefined
  const end = PREFIX_BYTES + padded.readUInt32BE(0)
  if (paddedSize(end - PREFIX_BYTES) !== padded.byteLength) return undefined
  for (let from = end; from < padded.byteLength; from += ZEROS.byteLength) {
    const to = Math.min(padded.byteLength, from + ZEROS.byteLength)
    if (padded.compare(ZEROS, 0, to - from, from, to) !== 0) return undefined
  }
  return padded.subarray(PREFIX_BYTES, end)
}

/**
 * Returns the SHA-256 of a text as 43 characters of base64url. Use it on the output of `canonicalJson`, which has no lone
 * surrogates: in UTF-8 they would all be the same.
 */
export function digest(text: string): string {
  return hash('sha256', text, 'base64url')
}

/** Returns the HMAC-SHA-256 of a label: bytes that depend on the seed and the label alone. */
export function deriveBytes(seed: string, label: string): Uint8Array {
  return createHmac('sha256', seed).update(label).digest()
}

// The keys: a process derives one from a fresh salt and seals with it for an hour; whoever opens its tokens derives
// it from the salt once, and keeps it.
//
// shared 1: A key seals for at most an hour and at most 2^20 tokens. Nonces have 96 random bits, so that two tokens of a key
// share one with a probability below 2^-57. Copies of a process continue with one key, and draw different nonces
// (`lib/random.ts`).
// shared 2: A key enters the table of keys that were opened only after its commitment was found in a token, and only the
// holder of the ring key can compute that. Salts that a caller makes up cost one derivation each, and displace nothing.
// shared 3: The table is bounded, and keys in use stay in it (`lib/collection.ts`).
//
// Why, and what it costs: docs/decisions/0016-shared-seal-keys.md.

const LABEL = Buffer.from('rondo seal\0')

const MAX_AGE_MS = 60 * 60_000
const MAX_TOKENS = 2 ** 20
const MAX_OPENED = 512

export interface SharedKey {
  readonly salt: Uint8Array
  readonly aesKey: KeyObject
  readonly commitmentKey: KeyObject
  readonly header: Buffer
  /** It is in the table, or was: whoever looks it up there again finds it, or derives another. */
  kept?: boolean
  /** The audience that it was last used for. Most tokens have the same. */
  bound?: Bound & { readonly audience: string }
}

interface Bound {
  readonly context: Buffer
  readonly commitment: Buffer
}

interface KeyTable {
  /** The key that seals now. */
  mint(key: RingKey, header: Buffer, random: (size: number) => Uint8Array, now: number): SharedKey
  /** The key of a token. */
  find(key: RingKey, header: Buffer, salt: Uint8Array): SharedKey
  /** Keeps a key that was found, once its commitment has been checked. */
  keep(key: RingKey, shared: SharedKey): void
}

interface KeysOfOne {
  readonly opened: Memo<SharedKey>
  minting?: { readonly shared: SharedKey; readonly since: number; left: number }
}

/** `derive` is a parameter so that tests can count derivations. */
export function createKeyTable(derive: typeof deriveShared = deriveShared): KeyTable {
  const table = new WeakMap<RingKey, KeysOfOne>()
  const of = (key: RingKey): KeysOfOne => {
    let keys = table.get(key)
    if (keys === undefined) {
      keys = { opened: createMemo(MAX_OPENED) }
      table.set(key, keys)
    }
    return keys
  }
  return {
    mint(key, header, random, now) {
      const keys = of(key)
      let { minting } = keys
      const age = minting ? now - minting.since : Number.NaN
      if (minting === undefined || minting.left === 0 || !(age >= 0 && age < MAX_AGE_MS)) {
        const shared = derive(key, header, random(SALT_BYTES))
        minting = { shared, since: now, left: MAX_TOKENS }
        keys.minting = minting
        shared.kept = true
        keys.opened.set(nameOf(shared.salt), shared)
      }
      minting.left -= 1
      return minting.shared
    },
    find: (key, header, salt) => of(key).opened.get(nameOf(salt)) ?? derive(key, header, Buffer.from(salt)),
    keep(key, shared) {
      const { opened } = of(key)
      shared.kept = true
      opened.set(nameOf(shared.salt), shared)
    },
  }
}

function nameOf(salt: Uint8Array): string {
  return Buffer.from(salt.buffer, salt.byteOffset, salt.byteLength).toString('latin1')
}

export function deriveShared(key: RingKey, header: Buffer, salt: Uint8Array): SharedKey {
  const info = Buffer.concat([LABEL, header])
  const okm = Buffer.from(hkdfSync('sha256', key.secret, salt, info, 2 * KEY_BYTES))
  const shared: SharedKey = {
    salt,
    header,
    aesKey: createSecretKey(okm.subarray(0, KEY_BYTES)),
    commitmentKey: createSecretKey(okm.subarray(KEY_BYTES)),
  }
  okm.fill(0)
  return shared
}

/** The bytes that bind a token of this key to an audience. */
function bindTo(shared: SharedKey, audience: string): Bound {
  if (shared.bound?.audience === audience) return shared.bound
  const context = contextOf(audience, shared.header)
  const commitment = createHmac('sha256', shared.commitmentKey).update(context).digest()
  shared.bound = { audience, context, commitment }
  return shared.bound
}

/** Label, audience and header, to which every tag is bound. The header comes last. */
function contextOf(audience: string, header: Buffer): Buffer {
  // JSON escapes lone surrogates, which UTF-8 would map to one character.
  return Buffer.concat([LABEL, hash('sha256', JSON.stringify(audience), 'buffer'), header])
}
