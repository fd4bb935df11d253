/** What is answered to clients that open a session: what all are answered, and what only these revisions have. */

import type { WireError } from './received.ts'
import type { Reply } from './reply.ts'
import type { TaskState } from './task.ts'

export type OlderReply =
  | Reply
  /** A page of the caller's own tasks. */
  | { readonly kind: 'tasks'; readonly tasks: readonly TaskState[]; readonly nextCursor?: string }
  /** The error a task ended with, as the call itself would have answered. */
  | { readonly kind: 'task_failed'; readonly error: WireError }
