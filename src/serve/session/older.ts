/**
 * The seam between the entrances and what serves clients of earlier eras; the counterpart of `Service`.
 */

import type { AskingLine } from '../../carry/push.ts'
import type { Listing, Principal } from '../../protocol/call.ts'
import type { Reply } from '../../protocol/reply.ts'
import type { OlderCall } from '../../protocol/session-call.ts'
import type { SessionTable } from './session-table.ts'

export interface Older {
  /** What `initialize` may agree on, the preferred one first. */
  readonly versions: readonly string[]
  readonly sessions: SessionTable
  /** The result of `initialize`. Without a session nothing is told that no request asked for. */
  greet(protocolVersion: string, session: boolean): Readonly<Record<string, unknown>>
  /** Never rejects. `unaskable` says why nobody can be asked, where the client's capabilities are not the reason. */
  answer(
    call: OlderCall,
    principal: Principal | undefined,
    line: AskingLine,
    unaskable?: string,
  ): Promise<Reply>
  /** Something was declared or removed. */
  changed(listing: Listing): void
}
