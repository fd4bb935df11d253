/**
 * The keys of suite 2: a process derives one from a fresh salt and seals with it for an hour; whoever opens its tokens derives
 * it from the salt once, and keeps it.
 *
 * shared 1: A key seals for at most an hour and at most 2^20 tokens. Nonces have 96 random bits, so that two tokens of a key
 * share one with a probability below 2^-57.
 * shared 2: A key enters the table of keys that were opened only after its commitment was found in a token, and only the
 * holder of the ring key can compute that. Salts that a caller makes up cost one derivation each, as every token of suite 1
 * does, and displace nothing.
 * shared 3: The table is bounded, and keys in use stay in it (`lib/collection.ts`).
 *
 * Why, and what it costs: docs/decisions/0016-shared-seal-keys.md.
 */

import { createHmac, createSecretKey, hash, hkdfSync, type KeyObject } from 'node:crypto'
import { createMemo, type Memo } from '../lib/collection.ts'
import type { RingKey } from './key-ring.ts'

const LABEL = Buffer.from('rondo seal\0')
const SALT_BYTES = 16
const KEY_BYTES = 32

const MAX_AGE_MS = 60 * 60_000
const MAX_TOKENS = 2 ** 20
const MAX_OPENED = 512

export interface SharedKey {
  readonly salt: Uint8Array
  readonly aesKey: KeyObject
  readonly commitmentKey: KeyObject
  readonly header: Buffer
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
        keys.opened.set(nameOf(shared.salt), shared)
      }
      minting.left -= 1
      return minting.shared
    },
    find: (key, header, salt) => of(key).opened.get(nameOf(salt)) ?? derive(key, header, Buffer.from(salt)),
    keep(key, shared) {
      const { opened } = of(key)
      const name = nameOf(shared.salt)
      if (opened.get(name) === undefined) opened.set(name, shared)
    },
  }
}

function nameOf(salt: Uint8Array): string {
  return Buffer.from(salt.buffer, salt.byteOffset, salt.byteLength).toString('latin1')
}

export function deriveShared(key: RingKey, header: Buffer, salt: Uint8Array): SharedKey {
  const info = Buffer.concat([LABEL, header])
  const okm = Buffer.from(hkdfSync('sha256', key.secret, salt, info, 2 * KEY_BYTES))
  const shared = {
    salt,
    header,
    aesKey: createSecretKey(okm.subarray(0, KEY_BYTES)),
    commitmentKey: createSecretKey(okm.subarray(KEY_BYTES)),
  }
  okm.fill(0)
  return shared
}

/** What binds a token of this key to an audience. */
export function bindTo(shared: SharedKey, audience: string): Bound {
  if (shared.bound?.audience === audience) return shared.bound
  const context = contextOf(audience, shared.header)
  const commitment = createHmac('sha256', shared.commitmentKey).update(context).digest()
  shared.bound = { audience, context, commitment }
  return shared.bound
}

/** Label, audience and header, to which every tag is bound. The header comes last. */
export function contextOf(audience: string, header: Buffer): Buffer {
  // JSON escapes lone surrogates, which UTF-8 would map to one character.
  return Buffer.concat([LABEL, hash('sha256', JSON.stringify(audience), 'buffer'), header])
}
