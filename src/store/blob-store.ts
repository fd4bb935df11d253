/**
 * Keeps what is too large for a token. The token carries the id; what it may be used for, the caller checks after
 * opening the seal. A blob is written once: a second `put` under its id changes nothing.
 */

import type { Sealed } from './task-engine.ts'

export interface BlobStore {
  /** Resolves when the blob is durable. `expiresAt` in ms since the epoch. */
  put(id: string, sealed: Sealed, expiresAt: number): Promise<void>
  /** Nothing, once it has expired. */
  get(id: string): Promise<Sealed | undefined>
}
