/**
 * How one run of a handler ends. Waiting for input is an outcome, not an error (R8).
 */

import type { RondoError } from '../errors.ts'
import type { AskEntryKind, Journal } from '../journal/journal.ts'
import type { InputRequest } from '../protocol/wire.ts'

export interface OpenQuestion {
  readonly kind: AskEntryKind
  /** What goes out; after a misfit its message says what was wrong. */
  readonly request: InputRequest
  /** Digest of the question as the author wrote it. */
  readonly digest: string
}

/** Why a call goes on elsewhere: before an effect (R6), or because this instance wants to let go of it. */
export type MoveReason = 'effect' | 'drain' | 'shed' | 'time'

export type Ending =
  | { readonly kind: 'returned'; readonly value: unknown }
  | { readonly kind: 'threw'; readonly error: unknown }
  | { readonly kind: 'asking'; readonly questions: ReadonlyMap<string, OpenQuestion> }
  | { readonly kind: 'moved'; readonly reason: MoveReason }
  /** The handler wants to go on as a task, and can. */
  | { readonly kind: 'background' }
  /** The call cannot go on. The handler's `catch` never sees this. */
  | { readonly kind: 'refused'; readonly error: RondoError }

/** One thing the handler did, in the order it did them; what development mode compares. */
export interface Operation {
  readonly kind: string
  readonly key: string
  readonly question?: string
}

export interface RunReport {
  readonly ending: Ending
  readonly journal: Journal
  readonly operations: readonly Operation[]
  readonly replayed: number
  readonly executed: number
}
