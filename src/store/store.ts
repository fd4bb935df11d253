/** One database behind all ports, opened when it is first used. */

import type { Sealed } from './task-engine.ts'
import type { TaskStore } from './task-store.ts'

export interface Store {
  readonly tasks: TaskStore
  readonly once: OnceStore
  readonly blobs: BlobStore
  /** Opens the database and prepares its tables; every method does so by itself. */
  ready(): Promise<void>
  /** Deletes up to `limit` expired rows of each kind; gives how many went. */
  sweep(limit: number): Promise<number>
  close(): Promise<void>
}

/*
 * Keeps what is too large for a token. The token carries the id; what it may be used for, the caller checks after
 * opening the seal. A blob is written once: a second `put` under its id changes nothing.
 */

export interface BlobStore {
  /** Resolves when the blob is durable. `expiresAt` in ms since the epoch. */
  put(id: string, sealed: Sealed, expiresAt: number): Promise<void>
  /** Nothing, once it has expired. */
  get(id: string): Promise<Sealed | undefined>
}

/*
 * Single use: one request per round of a flow gets through, and the same request again gets the same response.
 *
 * The slot is (flow, round). Whoever comes first claims it with the digest of its request and stores its response
 * later, renewing its hold until then; a claimant that vanishes can be followed, `holdMs` after its last renewal, by the
 * same request only.
 *
 * OS1 One winner: of any number of claims at once, exactly one is `first`.
 * OS2 The first response stored is the only one; everybody else gets its bytes.
 * OS3 Another digest is refused for good.
 * OS4 A store that lost its records does not know it, so it has an epoch: callers seal it into what they hand out, and
 *     a claim that names another epoch is refused. So is one that comes after its own expiry.
 */

export interface OnceSlot {
  readonly flow: string
  readonly round: number
  /** Tells this request from any other that would use the same slot. */
  readonly digest: string
  /** The epoch under which the round was handed out. */
  readonly epoch: string
  /** After this no claim is taken, and the record may go; ms since the epoch. */
  readonly expiresAt: number
}

export interface OnceAttempt {
  /** Random; lets a claim be repeated after a lost connection. */
  readonly claimant: string
  /** How long the slot is held for a claimant that neither stored anything nor renewed its hold. */
  readonly holdMs: number
}

export type OnceClaim =
  | { readonly kind: 'first' }
  | { readonly kind: 'stored'; readonly response: Sealed }
  /** The same request is being answered right now, or its claimant died; `retryMs` is left of the hold. */
  | { readonly kind: 'busy'; readonly retryMs: number }
  | { readonly kind: 'refused'; readonly reason: 'used' | 'epoch' | 'expired' }

export interface OnceStore {
  /** Names the life of this store: another one after it was emptied, or restored as far as that can be seen. */
  epoch(): Promise<string>
  /** Begins a new life by hand: after restoring a backup in place. Everything handed out before is refused. */
  renewEpoch(): Promise<string>
  claim(slot: OnceSlot, attempt: OnceAttempt): Promise<OnceClaim>
  /** Holds the slot for `holdMs` from now on; false if it is no longer the claimant's. With `holdMs: 0` it is let go. */
  renew(slot: OnceSlot, attempt: OnceAttempt): Promise<boolean>
  /** Stores the response unless there is one; gives the one that counts. */
  settle(slot: OnceSlot, response: Sealed): Promise<Sealed>
}
