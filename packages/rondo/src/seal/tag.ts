/**
 * Keyed tags: a store finds what has a value by its tag, and nobody without the keys can tell the value, or test a guess.
 *
 * A value has one tag for each key of the ring. What is stored carries the tag of the key that seals; whoever searches looks for
 * the tags of all keys, so a rotation loses nothing.
 */

import { createHmac, createSecretKey, type KeyObject } from 'node:crypto'
import { deriveFromRing, type KeyRing } from './key-ring.ts'

const LABEL = 'rondo tag'
/** 128 bits. */
const TAG_BYTES = 16

/** Deriving a key costs more than a tag. */
const derived = new WeakMap<KeyRing, readonly KeyObject[]>()

/** The tags of a value of a kind, that of the key that seals first. No tag is a value that anybody could choose as a name. */
export function tagsOf(ring: KeyRing, kind: string, value: string): readonly string[] {
  const keys = derived.get(ring) ?? deriveFromRing(ring, LABEL).map(({ secret }) => createSecretKey(secret))
  derived.set(ring, keys)
  const text = JSON.stringify([kind, value])
  return keys.map((key) => {
    const mac = createHmac('sha256', key).update(text).digest()
    return `~${mac.subarray(0, TAG_BYTES).toString('base64url')}`
  })
}
