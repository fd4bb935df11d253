/** One database behind all ports, opened when it is first used. */

import type { BlobStore } from './blob-store.ts'
import type { OnceStore } from './once-store.ts'
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
