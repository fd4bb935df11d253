/**
 * The seam between the entrances and what serves clients of earlier eras; the counterpart of `Service`.
 */

import type { AskingLine } from '../../carry/push.ts'
import type { TurnOutcome, TurnPeer, Turns } from '../../carry/turns.ts'
import type { FlowCall, Line, Listing, Principal } from '../../protocol/call.ts'
import type { TurnAnswers } from '../../protocol/draft-turns/turn.ts'
import type { OlderReply } from '../../protocol/older-reply.ts'
import type { OlderCall, PeerFacts } from '../../protocol/session-call.ts'
import type { SessionTable } from './session-table.ts'

/** Serves clients of the two drafts: their sessions, questions in turns, and states. Nothing here rejects but for keys that do not load. */
export interface TurnsService {
  sealSession(facts: PeerFacts, principal: Principal | undefined): Promise<string>
  /** Undefined for a session that is not this principal's. */
  openSession(id: string, principal: Principal | undefined): Promise<PeerFacts | undefined>
  begin(
    call: FlowCall,
    principal: Principal | undefined,
    line: Line,
    session: string,
    unaskable?: string,
  ): Promise<TurnOutcome>
  resume(answers: TurnAnswers, peer: TurnPeer, unaskable?: string): Promise<TurnOutcome>
  readonly hand: Turns['hand']
  readonly handTask: Turns['handTask']
}

/** What `initialize` offers depends on it. */
export interface Greeting {
  /** Without a session nothing is told that no request asked for. */
  readonly session: boolean
  /** The caller can be told from all others: it is authenticated, or the one client of this process. */
  readonly known: boolean
  /** Its tasks are served. */
  readonly tasks: boolean
}

export interface Older {
  /** What `initialize` may agree on, the preferred one first. */
  readonly versions: readonly string[]
  readonly sessions: SessionTable
  /** The result of `initialize`. */
  greet(protocolVersion: string, greeting: Greeting): Readonly<Record<string, unknown>>
  /** Never rejects. `unaskable` says why nobody can be asked, where the client's capabilities are not the reason. */
  answer(
    call: OlderCall,
    principal: Principal | undefined,
    line: AskingLine,
    unaskable?: string,
  ): Promise<OlderReply>
  /** Absent where the drafts are closed. */
  readonly turns?: TurnsService
  /** Something was declared or removed. */
  changed(listing: Listing): void
}
