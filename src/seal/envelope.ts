/**
 * Bytes in, one opaque string out, and back: authenticated encryption under a key ring.
 *
 *   "r1." + base64url( format 1 · suite 1 · key id 4 · salt 32 · commitment 32 · ciphertext · tag 16 )
 *                      └────── header ──────┘
 *   context    = "rondo seal" 0x00 · SHA-256(JSON of the audience) · header
 *   HKDF-SHA-256(ring key, salt, info = context)  →  AES key 32 · nonce 12 · commitment 32
 *   AES-256-GCM(AES key, nonce, aad = context)    →  ciphertext of the padded data, tag
 *   padded data = length of the data, 4 bytes, big endian · data · zeros up to the bucket
 *
 * envelope 1: Every token has its own AES key and nonce: a nonce is never used twice, however many tokens a ring key seals.
 * envelope 2: The commitment fixes the key: no token opens under two keys, and a wrong key shows before anything is decrypted.
 * envelope 3: One token is one string: another spelling of the same bytes is refused.
 * envelope 4: Opening never throws, and its refusal is one word.
 * envelope 5: The bucket follows from the length of the data alone, so a token's length says little about its content, and
 * one text has one padded form.
 *
 * What the data means, and who may use it when, is `state.ts`.
 */

import {
  createCipheriv,
  createDecipheriv,
  createHmac,
  hash,
  hkdfSync,
  randomFillSync,
  timingSafeEqual,
} from 'node:crypto'
import type { KeyRing, RingKey } from './key-ring.ts'

const PREFIX = 'r1.'
const FORMAT = 1
const SUITE = 1
const LABEL = Buffer.from('rondo seal\0')

const SALT_AT = 6
const COMMITMENT_AT = 38
const CIPHERTEXT_AT = 70
const TAG_BYTES = 16
const OVERHEAD_BYTES = CIPHERTEXT_AT + TAG_BYTES

const KEY_BYTES = 32
const NONCE_BYTES = 12
const COMMITMENT_BYTES = 32

export type Random = (size: number) => Uint8Array

export type EnvelopeRefusal = 'size' | 'encoding' | 'key' | 'commitment' | 'tag' | 'shape'

export type OpenedEnvelope =
  | { readonly kind: 'open'; readonly plaintext: Buffer; readonly keyId: string }
  | { readonly kind: 'refused'; readonly reason: EnvelopeRefusal; readonly keyId?: string }

/** The length of the token that holds this many bytes. */
export function envelopeLength(dataBytes: number): number {
  return PREFIX.length + Math.ceil(((OVERHEAD_BYTES + paddedSize(dataBytes)) * 4) / 3)
}

export function sealEnvelope(
  ring: KeyRing,
  audience: string,
  plaintext: Uint8Array | string,
  random: Random = drawBytes,
): { readonly token: string; readonly keyId: string } {
  const key = ring.mint
  const padded = pad(typeof plaintext === 'string' ? Buffer.from(plaintext) : plaintext)
  const salt = random(COMMITMENT_AT - SALT_AT)
  const context = contextOf(audience, key)
  const { aesKey, nonce, commitment } = derive(key, salt, context)

  const cipher = createCipheriv('aes-256-gcm', aesKey, nonce).setAAD(context)
  const ciphertext = cipher.update(padded)
  cipher.final()
  const raw = Buffer.allocUnsafe(OVERHEAD_BYTES + ciphertext.byteLength)
  raw.set(context.subarray(-SALT_AT), 0)
  raw.set(salt, SALT_AT)
  raw.set(commitment, COMMITMENT_AT)
  raw.set(ciphertext, CIPHERTEXT_AT)
  raw.set(cipher.getAuthTag(), CIPHERTEXT_AT + ciphertext.byteLength)
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
  const context = contextOf(audience, key)
  const { aesKey, nonce, commitment } = derive(key, raw.subarray(SALT_AT, COMMITMENT_AT), context)
  if (!timingSafeEqual(commitment, raw.subarray(COMMITMENT_AT, CIPHERTEXT_AT))) {
    return { kind: 'refused', reason: 'commitment', keyId }
  }
  const padded = decrypt(raw, aesKey, nonce, context)
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
  if (!isPaddedSize(raw.byteLength - OVERHEAD_BYTES)) return undefined
  return raw[0] === FORMAT && raw[1] === SUITE ? raw : undefined
}

/** The last context of each key. A server has one audience, and every request needs its context. */
const contexts = new WeakMap<RingKey, { readonly audience: string; readonly context: Buffer }>()

/** Label, audience and header, to which every derivation and every tag is bound. The header comes last. */
function contextOf(audience: string, key: RingKey): Buffer {
  const known = contexts.get(key)
  if (known?.audience === audience) return known.context
  // JSON escapes lone surrogates, which UTF-8 would map to one character.
  const audienceHash = hash('sha256', JSON.stringify(audience), 'buffer')
  const header = Buffer.of(FORMAT, SUITE, 0, 0, 0, 0)
  header.writeUInt32BE(key.id, 2)
  const context = Buffer.concat([LABEL, audienceHash, header])
  contexts.set(key, { audience, context })
  return context
}

function derive(key: RingKey, salt: Uint8Array, context: Buffer) {
  const length = KEY_BYTES + NONCE_BYTES + COMMITMENT_BYTES
  const okm = Buffer.from(hkdfSync('sha256', key.secret, salt, context, length))
  return {
    aesKey: okm.subarray(0, KEY_BYTES),
    nonce: okm.subarray(KEY_BYTES, KEY_BYTES + NONCE_BYTES),
    commitment: okm.subarray(KEY_BYTES + NONCE_BYTES),
  }
}

function decrypt(raw: Buffer, aesKey: Buffer, nonce: Buffer, context: Buffer): Buffer | undefined {
  const tagAt = raw.byteLength - TAG_BYTES
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
  const step = Math.max(SMALLEST_STEP, 2 ** (Math.floor(Math.log2(bytes)) - 3))
  return Math.ceil(bytes / step) * step
}

/** True if some data pads to exactly this size. */
export function isPaddedSize(bytes: number): boolean {
  return bytes >= SMALLEST_STEP && paddedSize(bytes - PREFIX_BYTES) === bytes
}

export function pad(data: Uint8Array): Buffer {
  const padded = Buffer.allocUnsafe(paddedSize(data.byteLength))
  padded.writeUInt32BE(data.byteLength, 0)
  padded.set(data, PREFIX_BYTES)
  return padded.fill(0, PREFIX_BYTES + data.byteLength)
}

/** The data; undefined if `pad` returns these bytes for no data. */
export function unpad(padded: Buffer): Buffer | undefined {
  if (!isPaddedSize(padded.byteLength)) return undefined
  const end = PREFIX_BYTES + padded.readUInt32BE(0)
  if (end > padded.byteLength || paddedSize(end - PREFIX_BYTES) !== padded.byteLength) return undefined
  for (let index = end; index < padded.byteLength; index++) {
    if (padded[index] !== 0) return undefined
  }
  return padded.subarray(PREFIX_BYTES, end)
}

const STOCK_BYTES = 4096

const stock = Buffer.alloc(STOCK_BYTES)
let taken = STOCK_BYTES

/**
 * Random bytes from the system, fetched in advance: a call costs the same for 4 KiB as for 16 bytes, and a request needs
 * three. Every byte is handed out once and wiped from the stock.
 */
export function drawBytes(size: number): Buffer {
  if (size > STOCK_BYTES) return randomFillSync(Buffer.alloc(size))
  if (taken + size > STOCK_BYTES) {
    randomFillSync(stock)
    taken = 0
  }
  const bytes = Buffer.from(stock.subarray(taken, taken + size))
  stock.fill(0, taken, taken + size)
  taken += size
  return bytes
}

/** Returns an id that nobody can guess. */
export function drawId(): string {
  return drawBytes(16).toString('base64url')
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
