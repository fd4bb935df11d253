/** The part of a store that keeps states, in memory, for tests that inspect it or make it fail. */

import type { BlobStore } from '../../packages/rondo/src/store/store.ts'

export interface MemoryBlobs extends BlobStore {
  readonly rows: Map<string, { sealed: string; expiresAt: number }>
  reads: number
  /** If set, every call rejects with it. */
  broken: Error | undefined
}

export function createMemoryBlobs(): MemoryBlobs {
  const blobs: MemoryBlobs = {
    rows: new Map(),
    reads: 0,
    broken: undefined,
    async put(id, sealed, expiresAt) {
      if (blobs.broken) throw blobs.broken
      if (!blobs.rows.has(id)) blobs.rows.set(id, { sealed, expiresAt })
    },
    async get(id) {
      blobs.reads += 1
      if (blobs.broken) throw blobs.broken
      return blobs.rows.get(id)?.sealed
    },
  }
  return blobs
}
