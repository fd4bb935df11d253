/**
 * A request for approval and everything that can happen to it, as pure functions of its state. Who may vote is decided before
 * (`people.ts`); the store makes each change atomic (`desk.ts`).
 *
 * request 1: Only an open request takes a vote, one for each person, and only before its time is up.
 * request 2: It is decided by the vote that completes the quorum, or by the denial that ends it. Nothing decides it again.
 * request 3: A decision is used once. What was found then is kept, and every later reading returns it.
 * request 4: A vote that became void before the decision was used counts no more, and the request is open again.
 */

import type { ApprovalRequest, ApprovalVerdict } from 'rondo/extension'

export type RequestState = 'open' | 'approved' | 'denied' | 'expired' | 'withdrawn'

/** Through what somebody voted. */
export type Channel = 'page' | 'slack' | 'command' | 'test'

export interface Vote {
  readonly approve: boolean
  /** The id of the person; of an operator, the name that the command gave. */
  readonly person: string
  readonly name: string
  readonly via: Channel
  readonly at: number
  readonly note?: string
  /** The approver lets the caller see the note. */
  readonly showNote?: true
  /** Cast by the command, and so by nobody's membership. */
  readonly operator?: true
}

/** A request as it is kept, sealed. */
export interface Request extends ApprovalRequest {
  readonly createdAt: number
  /** Who may decide: the groups that were asked, and those that it escalated to. */
  readonly groups: readonly string[]
  readonly votes: readonly Vote[]
  readonly state: RequestState
  readonly closedAt?: number
  /** The decision as the program received it. */
  readonly used?: ApprovalVerdict
  /** The value that each notifier returned, for its next message. */
  readonly refs: Readonly<Record<string, unknown>>
  /** How many messages each notifier has sent. */
  readonly sent?: Readonly<Record<string, number>>
  /** Notifiers that fail, with the number of attempts. */
  readonly trouble: Readonly<Record<string, number>>
}

/** An event for the record. */
export interface Happening {
  readonly event:
    | 'asked'
    | 'notified'
    | 'reminded'
    | 'escalated'
    | 'voted'
    | 'decided'
    | 'voided'
    | 'used'
    | 'expired'
    | 'withdrawn'
  readonly [fact: string]: unknown
}

/** How a request changes: its next state, and what the record says about it. */
export interface Change {
  readonly next: Request
  readonly happenings: readonly Happening[]
}

export function newRequest(given: ApprovalRequest, now: number): Change {
  const base = {
    createdAt: now,
    groups: given.from,
    votes: [],
    state: 'open',
    refs: {},
    trouble: {},
  } as const
  const { tool, flow, key, from, until, quorum, allowSelf, caller } = given
  const facts = {
    tool,
    flow,
    key,
    from,
    until,
    quorum,
    allowSelf,
    caller,
    message: given.message,
    args: given.args,
  }
  return { next: { ...given, ...base }, happenings: [{ event: 'asked', ...facts, details: given.details }] }
}

/** Why a vote changes nothing. */
export type Refusal = 'closed' | 'late' | 'voted'

export function whyNoVote(request: Request, person: string, now: number): Refusal | undefined {
  if (request.state !== 'open') return 'closed'
  if (now >= request.until) return 'late'
  return request.votes.some((vote) => vote.person === person) ? 'voted' : undefined
}

export function castVote(request: Request, vote: Vote): Change {
  const next = decide({ ...request, votes: [...request.votes, vote] }, vote.at)
  const voted: Happening = { event: 'voted', ...vote }
  if (next.state === 'open') return { next, happenings: [voted] }
  return { next, happenings: [voted, { event: 'decided', state: next.state }] }
}

/** Closes a request whose votes are complete. */
function decide(request: Request, now: number): Request {
  const approvals = request.votes.filter(({ approve }) => approve).length
  const denials = request.votes.length - approvals
  if (denials >= request.denials) return { ...request, state: 'denied', closedAt: now }
  return approvals >= request.quorum ? { ...request, state: 'approved', closedAt: now } : request
}

/** A decided request as the program sees it. */
function verdictOf({ state, votes, passNote }: Request): ApprovalVerdict {
  const approve = state === 'approved'
  const by = votes
    .filter((vote) => vote.approve === approve)
    .map(({ person, name, at, via, note, showNote }) => ({
      id: person,
      name,
      at,
      via,
      ...(passNote && showNote && note !== undefined && { note }),
    }))
  return { kind: approve ? 'approved' : 'denied', by }
}

/** Uses a decision whose votes hold; `isVoid` says which do not any more. */
export function useDecision(request: Request, isVoid: (vote: Vote) => boolean, now: number): Change {
  const gone = request.votes.filter(isVoid)
  const votes = request.votes.filter((vote) => !isVoid(vote))
  const { closedAt: _, ...open } = request
  const left = decide({ ...open, state: 'open', votes }, now)
  const voided = gone.map(
    (vote): Happening => ({ event: 'voided', person: vote.person, approve: vote.approve }),
  )
  if (left.state !== 'open') {
    const next = { ...left, closedAt: request.closedAt ?? now, used: verdictOf(left) }
    return { next, happenings: [...voided, { event: 'used', state: left.state }] }
  }
  if (now >= request.until) {
    const expired = expire(left, now)
    return { next: expired.next, happenings: [...voided, ...expired.happenings] }
  }
  return { next: { ...left, attempt: request.attempt + 1 }, happenings: voided }
}

export function expire(request: Request, now: number): Change {
  const next: Request = { ...request, state: 'expired', closedAt: now, used: { kind: 'expired' } }
  return { next, happenings: [{ event: 'expired' }] }
}

export function withdraw(request: Request, reason: 'reworded' | 'ended', now: number): Change {
  const next: Request = { ...request, state: 'withdrawn', closedAt: now }
  return { next, happenings: [{ event: 'withdrawn', reason }] }
}

/** Asks again what was withdrawn: a release words it as before. Votes hold, because they were cast for exactly this. */
export function reopen({ closedAt: _, ...request }: Request): Change {
  const { message, details } = request
  return { next: { ...request, state: 'open' }, happenings: [{ event: 'asked', message, details }] }
}

/** Adds people who may decide. */
export function escalate(request: Request): Change {
  const to = request.escalate?.to ?? []
  const groups = [...new Set([...request.groups, ...to])]
  return { next: { ...request, groups }, happenings: [{ event: 'escalated', to }] }
}
