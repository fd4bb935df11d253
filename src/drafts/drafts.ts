/**
 * The drafts that a server speaks, for the one place that attaches them (`serve/options.ts`): their revisions, their
 * options, and what they add to sessions.
 */

import type { SessionCodec } from '../protocol/codec.ts'
import type { AttachDraft } from '../serve/session/older.ts'
import { DRAFT_2026_V1 } from './draft-2026-v1/codec.ts'
import { attachTurns } from './turns/serve.ts'
import type { TurnsOptions } from './turns/turn-state.ts'

export interface DraftOptions {
  /**
   * How questions go to clients that declare the experimental capabilities `multi-turn-sse` and `request-state`.
   * `false`: these clients are served like any other of their revision.
   */
  turns?: TurnsOptions | false
}

interface Drafts {
  readonly codecs: readonly SessionCodec[]
  /** What they add to the sessions of a server with these options. */
  attach(options: DraftOptions): AttachDraft | undefined
}

export const DRAFTS: Drafts = {
  codecs: [DRAFT_2026_V1],
  attach: ({ turns }) => (turns === false ? undefined : attachTurns(turns)),
}
