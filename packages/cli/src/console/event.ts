/** The events of the console's supervisor, which it also sends to the page: one numbered list. */

import type { EventDelivery } from 'rondo'
import type { ApprovalVote, DeskRequest } from 'rondo/extension'
import type { Development, TracedOperation, UnendedRound } from 'rondo/internal'
import type { DoctorFinding } from '../doctor/probe.ts'

type LogEvent = Parameters<NonNullable<Development['log']>>[0]
type RoundEvent = Parameters<NonNullable<Development['round']>>[0]
type EngineEvent = Parameters<NonNullable<Development['task']>>[0]

/** An event as it happened; `seq` numbers them from 1, `at` is ms since the epoch. */
export type ConsoleEvent = { readonly seq: number; readonly at: number } & Happening

export type Happening =
  | { readonly kind: 'instance'; readonly instance: InstanceView }
  | RoundHappening
  | {
      readonly kind: 'log'
      readonly instance: string
      readonly exchange?: string
      readonly event: Exclude<Sendable<LogEvent>, RoundEvent>
    }
  | { readonly kind: 'running'; readonly instance: string; readonly round: UnendedRound }
  | {
      readonly kind: 'upstream'
      readonly instance: string
      readonly exchange?: string
      readonly request: UpstreamRequest
    }
  | { readonly kind: 'task'; readonly instance: string; readonly event: Sendable<EngineEvent> }
  | { readonly kind: 'stored'; readonly task: StoredTask }
  | { readonly kind: 'examined'; readonly tool?: string; readonly findings: readonly ExaminedFinding[] }
  | { readonly kind: 'exchange'; readonly exchange: SeenExchange }
  | { readonly kind: 'action'; readonly action: Action }

export interface RoundHappening {
  readonly kind: 'round'
  readonly instance: string
  /** Absent for a turn of a task. */
  readonly exchange?: string
  readonly round: RoundEvent
  readonly operations: readonly TracedOperation[]
}

/** A request of a gateway to a server behind it. */
export interface UpstreamRequest {
  readonly upstream: string
  readonly revision: string
  readonly method: string
  readonly target?: string
  readonly began: number
  readonly ms: number
  /** As in the log, or the code of an error. */
  readonly outcome: string
}

/** A finding of `rondo doctor`, with a flow in which it was found. */
export interface ExaminedFinding extends DoctorFinding {
  readonly flow?: string
}

/** A task as its store has it, and how often clients have polled it. */
export interface StoredTask {
  readonly id: string
  readonly status: 'working' | 'input_required' | 'completed' | 'failed' | 'cancelled'
  readonly createdAt: number
  readonly updatedAt: number
  readonly expiresAt: number
  readonly failures: number
  readonly worker?: string
  /** When a worker may claim it; for a task that a worker has, when its lease ends. */
  readonly dueAt?: number
  readonly openKeys: readonly string[]
  /** The keys of its hooks that wait for an event. */
  readonly openHooks: readonly string[]
  readonly entries: number
  readonly owner: { readonly tenant: string; readonly principal: string }
  readonly polls?: { readonly count: number; readonly at: number }
}

/** Errors travel as plain objects. */
type Sendable<E> = E extends { error?: unknown } ? Omit<E, 'error'> & { error?: PlainError } : E

export interface PlainError {
  readonly name: string
  readonly message: string
  readonly code?: string
  readonly stack?: string
}

export interface InstanceView {
  readonly name: string
  readonly pid?: number
  readonly state: 'starting' | 'up' | 'draining' | 'down'
  /** The reason why it is down, or the report of a reload. */
  readonly note?: string
}

/** One HTTP request to the proxy, and its response. */
export interface SeenExchange {
  readonly id: string
  /** When the request arrived, ms since the epoch. */
  readonly began: number
  readonly ms: number
  /** The instance that served it; absent if none was up. */
  readonly instance?: string
  readonly status: number
  readonly method?: string
  readonly target?: string
  readonly client?: string
  readonly revision?: string
  readonly principal?: string
  /** Parsed bodies; absent if they are not JSON, or too large to show. */
  readonly request?: Message
  readonly response?: Message
  /** The sender: a client, or an action of the console. */
  readonly by: 'client' | 'console'
  /** The fault that was injected. */
  readonly fault?: string
}

export type Message = { readonly [name: string]: unknown }

export const ACTION_KINDS = [
  'kill',
  'start',
  'drain',
  'reload',
  'elsewhere',
  'lose',
  'twice',
  'reword',
  'flip',
  'principal',
  'expire',
  'answer',
  'fork',
] as const

export type ActionKind = (typeof ACTION_KINDS)[number]

/** The expected outcome: shown before the action, and compared with what happens. */
export const EXPECTED: Readonly<Record<ActionKind | 'kill-instance', string>> = {
  kill: 'The call lives in its state, not in the process: its next round runs on another instance',
  'kill-instance': 'The process is gone at once; open calls continue on the others',
  start: 'A new process takes calls',
  drain: 'Calls in flight are handed back at their next step or ask; then a new process takes its place',
  reload: 'New processes run the file as it is now; open calls continue on them',
  elsewhere: 'The next round runs on another instance than the last one, and replays what is recorded',
  lose: 'The client gets no reply and sends the round again; effects get the same idempotency keys',
  twice: 'Two instances get the same round; their effects get the same idempotency keys',
  reword: 'The answer was to a different wording: the question is asked again, and nothing new runs',
  flip: 'Refused: one changed character, and the state does not open',
  principal: 'Refused: the state belongs to another caller',
  expire: 'Refused: the state has expired',
  answer: 'What was recorded is replayed, and only what is new runs',
  fork: 'What was recorded up to that round is replayed; with another answer, effects run under other keys',
}

/** Something that was done on purpose: what should happen, and then what did. */
export interface Action {
  readonly id: string
  readonly kind: ActionKind
  readonly flow?: string
  readonly instance?: string
  readonly expected: string
  /** The step that is under way, while that takes time. */
  readonly phase?: string
  /** Absent while it waits, for example for the next round of the flow. */
  readonly happened?: string
  /** True if the outcome is the expected one. */
  readonly ok?: boolean
}

/** From an instance to the supervisor. */
export type InstanceMessage =
  /** `pages`: the port for the routes of extensions, if there are any. */
  | ({ readonly kind: 'listening'; readonly port: number; readonly pages?: number } & Served)
  | { readonly kind: 'failed'; readonly message: string }
  | {
      readonly kind: 'event'
      readonly happening: DistributiveOmit<Extract<Happening, { instance: string }>, 'instance'>
    }
  | { readonly kind: 'tasks'; readonly tasks: readonly StoredTask[] }
  | { readonly kind: 'delivered'; readonly id: number; readonly delivery: DeliveryReport }
  | { readonly kind: 'approvals'; readonly id: number; readonly reply: DeskReply }

/** From the supervisor to an instance: asks for the tasks in its store, or has it deliver an event to a hook, or vote. */
export type SupervisorMessage =
  | { readonly kind: 'look' }
  | { readonly kind: 'deliver'; readonly id: number; readonly hook: string; readonly event: unknown }
  /** Without a vote, the requests are listed. */
  | { readonly kind: 'approvals'; readonly id: number; readonly vote?: ApprovalVote }

/** The requests of an instance, or what became of a vote. */
export type DeskReply =
  | { readonly kind: 'requests'; readonly url: string; readonly requests: readonly SeenRequest[] }
  | { readonly kind: 'voted' }
  /** `none`: the server uses no approvals. */
  | { readonly kind: 'refused' | 'none'; readonly problem: string }

/** A request for approval, without the hook that wakes its task. */
export type SeenRequest = Omit<DeskRequest, 'hook'>

/** The outcome of an event, as `server.deliver` reports it; or why that is not known. */
export type DeliveryReport = EventDelivery | { readonly kind: 'failed'; readonly problem: string }

export function sayDelivery(delivery: EventDelivery): string {
  switch (delivery.kind) {
    case 'accepted':
      return 'The hook has the event. Its task continues where the server runs.'
    case 'duplicate':
      return 'The hook already has an event, and keeps it.'
    case 'closed':
      return 'The hook no longer accepts an event: its time is up, or its task has ended.'
    case 'rejected':
      return `The event was rejected, and the hook stays open: ${delivery.problem}`
    case 'unknown':
      return 'No hook has this id here. It is wrong or has expired, or a server with other keys, another name or another store opened it.'
  }
}

/** The export of a file: under which name, whether as a function, and created with which package. */
export interface Served {
  readonly exported: { readonly name: string; readonly isFunction: boolean }
  readonly isOfficial: boolean
  /** The paths that the extensions of the server serve. */
  readonly routes: readonly string[]
}

type DistributiveOmit<T, K extends PropertyKey> = T extends unknown ? Omit<T, K> : never

/** The variable in which an instance finds the origin of its pages. */
export const PAGES_VARIABLE = 'RONDO_CONSOLE_PAGES'

/** The name of the console's own client. */
export const CONSOLE_CLIENT = 'rondo-console'

export const EXCHANGE_HEADER = 'x-rondo-exchange'
export const SKEW_HEADER = 'x-rondo-skew'
export const REWORD_HEADER = 'x-rondo-reword'
export const PRINCIPAL_HEADER = 'x-rondo-principal'
