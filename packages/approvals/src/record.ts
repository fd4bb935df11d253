/**
 * The record: a chain of entries, each with a number, the hash of the one before and an Ed25519 signature. Who can write to the
 * database can neither forge an entry nor reorder, change or drop one unnoticed, except at the end; a head that was written down
 * elsewhere, such as in the log, finds that too. Verification needs public keys alone.
 *
 * The signing keys are derived from the server's key ring, one for each of its keys, and an entry names its own.
 *
 *   hash      = SHA-256 of JSON ["rondo-approvals-1", tenant, seq, previous, at, key, content]
 *   signature = Ed25519 of the 32 bytes of the hash
 */

import { createHash, createPrivateKey, createPublicKey, type KeyObject, sign, verify } from 'node:crypto'
import type { ChainEntry, ChainEntryAfter, ChainLink } from 'rondo/store'

export interface SigningKey {
  /** The name of the ring's key. */
  readonly name: string
  readonly secret: KeyObject
  /** The public key, 32 bytes in base64url. */
  readonly public: string
}

/** Before the 32 bytes of an Ed25519 key, in PKCS #8 and in SPKI (RFC 8410). */
const PKCS8 = Buffer.from('302e020100300506032b657004220420', 'hex')
const SPKI = Buffer.from('302a300506032b6570032100', 'hex')

export function toSigningKey(name: string, seed: Uint8Array): SigningKey {
  const key = Buffer.concat([PKCS8, seed.subarray(0, 32)])
  const secret = createPrivateKey({ key, format: 'der', type: 'pkcs8' })
  const der = createPublicKey(secret).export({ format: 'der', type: 'spki' })
  return { name, secret, public: der.subarray(SPKI.length).toString('base64url') }
}

type Hashed = Pick<ChainEntry, 'seq' | 'previous' | 'at' | 'key' | 'content'>

function hashOf(tenant: string, { seq, previous, at, key, content }: Hashed): Buffer {
  const text = JSON.stringify(['rondo-approvals-1', tenant, seq, previous, at, key, content])
  return createHash('sha256').update(text).digest()
}

/** Makes an entry with this content that follows whichever one is last. */
export function entryAfter(tenant: string, key: SigningKey, at: number, content: string): ChainEntryAfter {
  return (last: ChainLink) => {
    const entry = { seq: last.seq + 1, previous: last.hash, at, key: key.name, content }
    const hash = hashOf(tenant, entry)
    return {
      ...entry,
      hash: hash.toString('hex'),
      signature: sign(null, hash, key.secret).toString('base64url'),
    }
  }
}

/** The content of an entry that stands for all before it. In the clear, so that it can be verified without the ring. */
const CHECKPOINT = /^checkpoint (\d{1,15}) ([0-9a-f]{64})$/

export function checkpointContent({ seq, hash }: ChainLink): string {
  return `checkpoint ${seq} ${hash}`
}

export interface Verification {
  readonly entries: number
  readonly first: number
  readonly head?: ChainLink
  /** Sentences. None if the record is whole. */
  readonly problems: readonly string[]
}

export interface VerifyOptions {
  /** The audience of the server. */
  readonly tenant: string
  /** Public keys in base64url, by the name of the ring's key. */
  readonly keys: Readonly<Record<string, string>>
  /** A head that was written down before: the chain must contain it. Default: none. */
  readonly head?: ChainLink
  /** The head that the store named before the entries were read: the chain must contain it. Default: not compared. */
  readonly stored?: ChainLink
}

const MAX_PROBLEMS = 20

/**
 * Checks a record, entry by entry, with public keys alone. Holds one entry at a time.
 *
 * @example
 * ```ts
 * const { problems } = await verifyRecord(entries, { tenant: 'tools', keys: { '2026-07': publicKey } })
 * ```
 */
export async function verifyRecord(
  entries: AsyncIterable<ChainEntry>,
  { tenant, keys, head, stored }: VerifyOptions,
): Promise<Verification> {
  const publicKeys = new Map(Object.entries(keys).map(([name, text]) => [name, toPublicKey(name, text)]))
  const problems: string[] = []
  const report = (problem: string): void => void (problems.length < MAX_PROBLEMS && problems.push(problem))
  let last: ChainLink | undefined
  let first = 0
  let count = 0
  let pruned: ChainLink | undefined
  let isVouched = false
  for await (const entry of entries) {
    count += 1
    if (last === undefined) {
      first = entry.seq
      if (entry.seq !== 1) pruned = { seq: entry.seq - 1, hash: entry.previous }
    } else if (entry.seq !== last.seq + 1)
      report(`Entry ${last.seq + 1} is missing: ${entry.seq} follows ${last.seq}`)
    else if (entry.previous !== last.hash) report(`Entry ${entry.seq} does not follow entry ${last.seq}`)
    const problem = whyNotGenuine(tenant, entry, publicKeys)
    if (problem !== undefined) report(problem)
    const [, seq, hash] = CHECKPOINT.exec(entry.content) ?? []
    if (pruned && problem === undefined && Number(seq) === pruned.seq && hash === pruned.hash)
      isVouched = true
    if (head?.seq === entry.seq && head.hash !== entry.hash)
      report(`Entry ${head.seq} is another one than the head that was written down`)
    if (stored?.seq === entry.seq && stored.hash !== entry.hash)
      report(`Entry ${stored.seq} is another one than the head that the store names`)
    last = { seq: entry.seq, hash: entry.hash }
  }
  if (pruned && !isVouched)
    report(`Entries 1 to ${pruned.seq} are missing, and no signed checkpoint stands for them`)
  const end = last?.seq ?? 0
  if (head && head.seq > end)
    report(`The record ends at ${end}, before the head ${head.seq} that was written down`)
  // A server that runs appends entries meanwhile.
  if (stored && stored.seq > end)
    report(`The store names entry ${stored.seq} as the last, and the record ends at ${end}`)
  return { entries: count, first, head: last, problems }
}

function whyNotGenuine(
  tenant: string,
  entry: ChainEntry,
  keys: ReadonlyMap<string, KeyObject>,
): string | undefined {
  const hash = hashOf(tenant, entry)
  if (hash.toString('hex') !== entry.hash) return `Entry ${entry.seq} was changed`
  const key = keys.get(entry.key)
  if (key === undefined)
    return `Entry ${entry.seq} is signed with the key "${entry.key}", whose public key was not given`
  const isSigned = verify(null, hash, key, Buffer.from(entry.signature, 'base64url'))
  return isSigned ? undefined : `Entry ${entry.seq} is not signed by the key "${entry.key}"`
}

function toPublicKey(name: string, text: string): KeyObject {
  const bytes = Buffer.from(text, 'base64url')
  if (bytes.length !== 32) throw new TypeError(`The public key "${name}" must be 32 bytes in base64url.`)
  return createPublicKey({ key: Buffer.concat([SPKI, bytes]), format: 'der', type: 'spki' })
}
