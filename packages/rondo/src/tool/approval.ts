/** Decisions by somebody other than the caller: what an author writes, and the port to the extension that asks people. Types only. */

import type { Duration } from '../lib/clock.ts'
import type { Principal } from '../protocol/call.ts'

/** What is to be decided, by whom, and until when. */
export interface ApprovalOptions {
  /** The group, or the groups, whose members may decide. */
  from: string | readonly string[]
  /** What approvers read. Keep clocks, rates and random values out of it: a reworded request is asked again. */
  message: string
  /** Exactly what will happen, as JSON: shown, and part of what is approved. */
  details?: Readonly<Record<string, unknown>>
  /** How long the request is open: milliseconds, or text such as `'2 days'`. After that it is denied. Default: a day. */
  within?: Duration
  /** How many people must approve. Default: 1. */
  quorum?: number
  /** How many denials end the request. Default: 1. */
  denials?: number
  /** Whether the caller may decide too. Default: false. */
  allowSelf?: boolean
  /** After a time without a decision, the members of these groups may decide as well. */
  escalate?: { readonly after: Duration; readonly to: string | readonly string[] }
  /** How often to remind approvers. Default: never. */
  remind?: Duration
  /**
   * Whether the handler gets the notes that their approvers let the caller see, and an uncaught denial quotes them. They are text of
   * people that a model may read as instructions. Default: false.
   */
  passNote?: boolean
}

/** Somebody who decided. */
export interface Decision {
  readonly id: string
  readonly name: string
  /** Ms since the epoch. */
  readonly at: number
  /** Through what: `page`, `slack`, `command`. */
  readonly via: string
  /** Present with `passNote`. Text of a person: quote it, and never follow it. */
  readonly note?: string
}

/** An approval: those whose decisions made it complete. */
export interface Approval {
  readonly by: readonly [Decision, ...Decision[]]
}

/** A request for approval, as the extension that asks people gets it. */
export interface ApprovalRequest {
  /** Derived from the flow, the key and everything that is shown: the same for a repeated turn, another one for other words. */
  readonly id: string
  /** Counts the hooks of this request: a decision that became void needs another one. */
  readonly attempt: number
  /** Takes one event when the request is decided. Whoever holds it can wake the task, and nothing more. */
  readonly hook: string
  readonly flow: string
  readonly task?: string
  readonly key: string
  readonly tool: string
  readonly args: unknown
  /** Absent for an anonymous caller. */
  readonly caller?: Principal
  readonly from: readonly string[]
  readonly message: string
  readonly details: Readonly<Record<string, unknown>>
  /** Ms since the epoch. */
  readonly until: number
  readonly quorum: number
  readonly denials: number
  readonly allowSelf: boolean
  readonly escalate?: { readonly afterMs: number; readonly to: readonly string[] }
  readonly remindMs?: number
  readonly passNote: boolean
}

/** What became of a request. */
export type ApprovalVerdict =
  | { readonly kind: 'approved'; readonly by: readonly Decision[] }
  | { readonly kind: 'denied'; readonly by: readonly Decision[] }
  | { readonly kind: 'expired' }
  /** There is no decision, or not any more: the request waits under another hook. */
  | { readonly kind: 'reopened' }

/** Asks people. Every method may be repeated with the same arguments, and has the same result then. */
export interface Approver {
  /** Resolves when the request is durable. Withdraws an earlier wording of it. */
  open(request: ApprovalRequest): Promise<void>
  /**
   * Resolves with the decision, if it still holds, or with what else became of the request. `expired` says that its time is up.
   * Rejects if that cannot be found out now; then it is asked again.
   */
  use(id: string, attempt: number, expired: boolean): Promise<ApprovalVerdict>
  /**
   * Votes as somebody would, under the same rules. Resolves with the reason if nothing has changed. For `rondo/testing`, whose tasks
   * have `approve` and `deny`.
   */
  vote?(vote: ApprovalVote): Promise<string | undefined>
  /** The requests and the record, for operators: the command `rondo approvals` uses it. */
  desk?(): ApprovalDesk
}

/** The requests and the record of a server, as `rondo approvals` needs them. */
export interface ApprovalDesk {
  /** The audience of the server, to which the requests and the record belong. */
  readonly tenant: string
  /** The address of the inbox. A request has its page at `/r/<id>` below it. */
  readonly url: string
  get(id: string): Promise<DeskRequest | undefined>
  /** Requests with any of these labels: `open`, `closed`. Default: the oldest first. */
  list(
    labels: readonly string[],
    limit: number,
    options?: { readonly newestFirst?: boolean },
  ): Promise<{ readonly requests: readonly DeskRequest[] }>
  history(id: string): Promise<readonly DeskEntry[]>
  /** Entries of the record after this number, in order. */
  entries(after: number, limit: number): Promise<readonly DeskEntry[]>
  /** The public keys that verify the record, by name. */
  publicKeys(): Promise<Readonly<Record<string, string>>>
  /** Checks the whole record, and that it contains an entry that was written down before. */
  verify(head?: { readonly seq: number; readonly hash: string }): Promise<{
    readonly entries: number
    readonly head?: { readonly seq: number; readonly hash: string }
    readonly problems: readonly string[]
  }>
  /** Decides as an operator. */
  decide(id: string, approve: boolean, operator: string, note?: DeskNote): Promise<DeskOutcome>
}

/** A note for the record. */
export interface DeskNote {
  readonly text: string
  /** Lets the caller see it, if the author passes notes on (`passNote`). Default: false. */
  readonly show?: boolean
}

/** What became of a decision by an operator, with a sentence that says so. */
export interface DeskOutcome {
  /** `counted`: the vote is recorded, and the request needs more. `refused`: nothing was changed. */
  readonly kind: 'decided' | 'counted' | 'refused'
  /** The state of the request afterwards. Absent if there is no such request. */
  readonly state?: string
  readonly message: string
}

/** A request with what became of it. */
export interface DeskRequest extends ApprovalRequest {
  readonly state: string
  /** Ms since the epoch. */
  readonly createdAt: number
  readonly closedAt?: number
  readonly votes: readonly unknown[]
}

/** An entry of the record as it is stored, with its content if that can be opened. */
export interface DeskEntry {
  readonly seq: number
  readonly previous: string
  readonly hash: string
  readonly key: string
  readonly signature: string
  /** Ms since the epoch. */
  readonly at: number
  readonly content: string
  readonly happening?: Readonly<Record<string, unknown>>
}

/** A vote on the open request of a task. */
export interface ApprovalVote {
  readonly task: string
  readonly key: string
  readonly approve: boolean
  readonly by: Voter
  readonly note?: string
  /** Lets the caller see the note, if the author passes notes on. */
  readonly showNote?: boolean
}

/** Somebody who votes, as a login identifies them. */
export interface Voter {
  readonly subject: string
  /** Default: the issuer of the caller. */
  readonly issuer?: string
  readonly name?: string
  readonly email?: string
  readonly claims?: Readonly<Record<string, unknown>>
}
