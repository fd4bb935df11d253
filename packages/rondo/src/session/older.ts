/**
 * The parts that serve older clients, as the files of this folder see each other: types only. `service.ts` answers calls,
 * `entrance.ts` and `peer.ts` bring them, and a draft may add to both.
 */

import type { FlowHost } from '../carry/host.ts'
import type { AskingLine, MakePortable, PushOptions } from '../carry/push.ts'
import type { RondoError } from '../errors.ts'
import type { FlowCall, OlderCall, Principal, TaskCall } from '../protocol/call.ts'
import type { Codecs } from '../protocol/codec.ts'
import type { RequestHeaders } from '../protocol/common/headers.ts'
import type { OlderReply, TaskState } from '../protocol/reply.ts'
import type { InputRequests } from '../protocol/wire.ts'
import type { CallContext, Load, Outlet, Service } from '../serve/port.ts'
import type { Registry } from '../tool/registry.ts'
import type { Target } from '../tool/target.ts'
import type { Session } from './session.ts'
import type { SharedSessions } from './shared.ts'
import type { SessionTable } from './table.ts'

/** The part that a draft adds to sessions over HTTP. Its session ids contain the sealed session, so every instance knows it. */
export interface SessionDraft {
  /** Names of the experimental capabilities with which clients declare the draft. */
  readonly experimental: readonly string[]
  /** True if the message begins a session of the draft, or belongs to one. */
  takes(options: PostOptions, posted: Posted): boolean
  /** Serves such a message. Rejects if the request as a whole is wrong. */
  post(options: PostOptions, posted: Posted): Promise<void>
  /** Opens this instance's part of a session; undefined if the session belongs to another principal. */
  open(
    options: PostOptions,
    request: Pick<Posted, 'headers' | 'principal' | 'outlet'>,
  ): Promise<Session | undefined>
  /** The turn that a client waits for when it resumes another instance's stream after this event; see `SessionStreams.awaitAnswer`. */
  awaits(session: Session, eventId: string): string | undefined
  /** Seals the call into its questions, so that any instance can accept the responses; undefined if the client does not echo states. */
  hand(call: FlowCall): MakePortable | undefined
  /** Like `hand`, for the questions of a task. */
  handTask(
    call: TaskCall,
  ):
    | ((
        call: TaskCall,
        principal: Principal | undefined,
        questions: InputRequests,
      ) => ReturnType<MakePortable>)
    | undefined
}

/** `mismatch` says why a call cannot run the way its client asked for, with a task or without. */
export type AttachDraft = (
  host: FlowHost,
  registry: Registry,
  mismatch: (target: Target, call: FlowCall) => string | undefined,
) => SessionDraft

/** The service for older clients, as the entrances see it; the counterpart of `Service`. */
export interface Older {
  readonly codecs: Codecs
  /** The versions that `initialize` may agree on, the preferred one first. */
  readonly versions: readonly string[]
  readonly sessions: SessionTable
  /** Sessions over HTTP. */
  readonly shared: SharedSessions
  /** The result of `initialize`. */
  greet(protocolVersion: string, greeting: Greeting): Readonly<Record<string, unknown>>
  /** Never rejects. `unaskable` says why nobody can be asked, unless the reason is missing capabilities. */
  answer(
    call: OlderCall,
    principal: Principal | undefined,
    line: AskingLine,
    unaskable?: string,
  ): Promise<OlderReply>
  /** Continues a call that another instance began. Never rejects. */
  continue(
    call: FlowCall,
    principal: Principal | undefined,
    line: AskingLine,
    from: PushOptions['from'],
  ): Promise<OlderReply>
  readonly draft?: SessionDraft
  /** Reports changes of another server's resource, as `Service.watchResource`. */
  watchResource: NonNullable<Service['watchResource']>
  /** Notifies the client of a session of changes of its task, from `task` on. */
  notifyOfTask(session: Session, task: TaskState, call: OlderCall, principal: Principal | undefined): void
  /** Counts a request that failed because of the store, and logs it if the log does not say yet that the store fails. */
  storeFailed(error: RondoError): void
}

/** The capabilities of the server for the client that it greets. */
export interface Greeting {
  /** False if there is no session: then the server sends nothing that no request asked for. */
  readonly session: boolean
  /** True if the caller can be told apart from all others: it is authenticated, or the only client of this process. */
  readonly known: boolean
  /** True if tasks are served to it. */
  readonly tasks: boolean
}

/** The context in which older clients are served over HTTP. */
export interface PostOptions extends Omit<CallContext, 'service'> {
  readonly service: Pick<CallContext['service'], 'state' | 'onRefused' | 'loads'>
  readonly older: Older
  /** True if sessions are offered. */
  readonly sessions: boolean
}

export interface Posted {
  readonly message: unknown
  readonly headers: RequestHeaders
  readonly principal: Principal | undefined
  readonly outlet: Outlet
  readonly load?: Load
}
