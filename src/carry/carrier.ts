/**
 * What a carrier is: it opens the journal of a flow before a round and keeps it afterwards; `runOnce` does what lies between.
 *
 *   token        sealed, in the client's hands (`token.ts`)
 *   push         in memory, while the client of an earlier era is asked (`push.ts`)
 *   task         in the store, entry by entry (`task/turn.ts`)
 *   turns        sealed with each question, for the drafts (`drafts/turns/carrier.ts`)
 */

import type { RondoError } from '../errors.ts'
import type { Journal } from '../journal/journal.ts'
import type { Reply } from '../protocol/reply.ts'
import type { InputRequests } from '../protocol/wire.ts'
import type { ReplayInput } from '../replay/replay.ts'
import type { RunReport } from '../replay/run-state.ts'
import type { RoundEvent } from './host.ts'
import type { Round } from './round.ts'

/** A run that stopped before its call was over: what the carrier keeps for the next one. */
export interface Pause {
  readonly report: RunReport
  readonly journal: Journal
  /** Digests of the open questions, by key. */
  readonly asked: Readonly<Record<string, string>>
  readonly inputRequests?: InputRequests
  /** When the call continues by itself, ms since the epoch: a time limit or a sleep is over. */
  readonly wakeAt?: number
  /** The names of events from outside that the handler waits for. */
  readonly events?: readonly string[]
  /** What the log says about it. */
  readonly facts: Pick<RoundEvent, 'outcome' | 'asks' | 'events' | 'moved'>
}

/** `To` is what a round leads to: a reply, the next run of the call, the outcome of a task's turn. */
export interface Carrier<From, To, R extends Round = Round> {
  /** Finds what was kept and returns the round that continues from it. */
  open(from: From): R | Promise<R>
  /** Keeps what the next round needs. */
  keep(round: R, pause: Pause): To | Promise<To>
  /** The call has ended with `reply`. `report` is absent if the handler did not run. */
  end(round: R, reply: Reply, report?: RunReport): To | Promise<To>
  /** The runtime refuses to continue. Default: the call ends with the error. */
  refuse?(round: R, error: RondoError, report: RunReport): To | Promise<To>
  /** The handler continues in the background (`ctx.background`). */
  leave?(round: R, report: RunReport): To | Promise<To>
  /** Called once the arguments are valid. A reply ends the round before the handler runs. */
  begin?(round: R): Reply | Promise<Reply> | undefined
  /** What this carrier changes about the run. */
  adapt?(round: R, input: ReplayInput): ReplayInput
  /** Called after the run. A value ends the round: the outcome of the run no longer counts. */
  abandon?(round: R): To | undefined
}
