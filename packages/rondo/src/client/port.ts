/**
 * The types that the parts of the client share. The file has no code, and nothing that it imports depends on it.
 *
 * A `Peer` sends requests to one server in its `Dialect`. A `Flight` is a request that waits for its response, within the
 * time of its `Leg`. `Flows` has what a call needs beyond the peer: handlers, policies, and the tools of the server.
 */

import type { Clock } from '../lib/clock.ts'
import type { Call, Envelope, FlowCall, ListenFilter, RequestId } from '../protocol/call.ts'
import type { ClientCodec } from '../protocol/codec.ts'
import type { ParamHeader } from '../protocol/common/headers.ts'
import type { QuestionKind } from '../protocol/common/request.ts'
import type { Observer } from '../protocol/observer.ts'
import type { Notice, Received, TaskState } from '../protocol/reply.ts'
import type {
  ClientCapabilities,
  Discovery,
  InputRequest,
  InputResponse,
  InputResponses,
  LogLevel,
  Tool,
} from '../protocol/wire.ts'
import type { FlowOptions, TaskMode } from './flow-options.ts'
import type { Limits } from './limits.ts'
import type { FlowLeg } from './pending.ts'
import type { RoundPolicy } from './policy.ts'
import type { Answers } from './question.ts'
import type { Outgoing, RequestBuffer, ResponseHead, Transport } from './transport/transport.ts'

type Message = Readonly<Record<string, unknown>>
type Body<C> = C extends Call ? Omit<C, keyof Envelope> : never
/** A call without its envelope. */
export type CallBody = Body<Call>

export interface SendOptions {
  readonly signal?: AbortSignal
  readonly timeoutMs?: number
  readonly deadlineAt?: number
  readonly capabilities?: ClientCapabilities
  readonly mirrored?: readonly ParamHeader[]
  /** Asks the server for log messages of this level and above. */
  readonly logLevel?: LogLevel
  /** Asks the server for progress. */
  readonly progress?: boolean
  readonly trace?: Readonly<Record<string, string>>
  /** Sent in `_meta`, beside the keys of the protocol. */
  readonly meta?: Readonly<Record<string, unknown>>
  readonly endless?: boolean
  readonly onNotice?: (notice: Notice) => unknown
  /** Has a question answered that an older server sends while it works on the request. */
  readonly onQuestion?: Asker
  /** Whether the deadline counts the time in which somebody is asked. */
  readonly countHumanTime?: boolean
  readonly onHead?: (head: ResponseHead) => void
}

export interface ClientInfo {
  readonly name: string
  readonly version: string
  readonly title?: string
}

/** Headers for every HTTP request; a function is called before each. */
export type HeaderSource =
  | Readonly<Record<string, string>>
  | (() => Readonly<Record<string, string>> | Promise<Readonly<Record<string, string>>>)

/** The parts from which a peer is made. */
export interface PeerOptions {
  readonly transport: Transport
  readonly clock: Clock
  readonly limits: Limits
  readonly info: ClientInfo
  /** Sent with every HTTP request, for authentication. */
  readonly headers?: HeaderSource
  readonly onWarning: (text: string) => void
  /** From 0 to 1, for the jitter before a retry. */
  readonly random: () => number
  /** Telemetry. It never throws. */
  readonly observer?: Observer
}

/** The way in which requests reach the server: each on its own, or in a session. */
export interface PeerChannel {
  /** Sends a request and returns its response. */
  exchange(outgoing: Outgoing, flight: Flight & { readonly logLevel?: LogLevel }): Promise<unknown>
  /** Reports changes until the signal is aborted or some may have been missed. Absent where a subscription is a request. */
  listen?(filter: ListenFilter, options: Pick<SendOptions, 'signal' | 'onNotice'>): Promise<never>
  /** Answers questions of the flight's task on whatever stream they arrive. Returns the function that stops it. */
  follow?(flight: Flight): () => void
  /** Sends a request of this session that is no call, and returns its result. */
  ask?(
    method: string,
    params: Readonly<Record<string, unknown>>,
    options: Pick<SendOptions, 'signal' | 'timeoutMs'>,
  ): Promise<Readonly<Record<string, unknown>>>
  /** The server's description of itself in the handshake. */
  readonly discovery?: Discovery
  close(): Promise<void>
}

export interface Peer extends PeerOptions {
  dialect: Dialect
  transport: Transport
  channel: PeerChannel
  /** Aborted when this client is closed. */
  readonly closed: AbortSignal
  /** Returns an id that was never used on this connection. */
  nextId(): number
  send(body: CallBody, options?: SendOptions): Promise<Received>
  close(): Promise<void>
}

/** A revision as a client speaks it. */
export interface Dialect extends ClientCodec {
  readonly version: string
  readonly tasks: TaskStrategy
  /** Whether headers repeat the arguments that a tool marks. */
  readonly mirrorsArguments: boolean
  /** The id of a request that continues an earlier one under its id. */
  legId?(body: Pick<Call, 'kind'> & Partial<Pick<FlowCall, 'requestState'>>): RequestId | undefined
  /** `maxSize` is that of all requests in it together. */
  createBuffer?(maxSize: number): RequestBuffer
}

/** The time of one request. Its signal is aborted when the request or the whole call takes too long, or the caller aborts. */
export interface Leg {
  readonly signal: AbortSignal
  /** Restarts the request's own timeout, never the deadline: the server reported progress. */
  touch(): void
  /** Stops the clock while somebody is asked. Returns the function that starts it again. */
  pause(): () => void
  /** Ends the time limit: a subscription was accepted. */
  relax(): void
  abort(reason: unknown): void
  /** Releases the timer; the request is over. */
  end(): void
}

/** Has a question answered as a round of its call. */
export type Asker = (question: InputRequest, signal: AbortSignal) => Promise<InputResponse>

/** A request of ours that waits for its response. */
export interface Flight {
  readonly leg: Leg
  /** The task it is about. */
  readonly task?: string
  readonly onQuestion?: Asker
  readonly onNotification?: (message: Message) => void
  /** Sends the answer to a question of this call. `hasState`: the server may continue the call there, and send what follows. */
  readonly answer?: (body: string, hasState: boolean) => Promise<void>
}

/**
 * Questions that an older server sends while it works on a call, as rounds of that call with the same limits, checks,
 * policies and handlers (C5). The server waits for the answers, so the call cannot be stored.
 */
export interface PushedRounds {
  /** How often the server has asked in this call. */
  readonly rounds: number
  readonly take: Asker
}

/** The state of a task, and the `requestState` that came with its questions, in revisions that have one. */
export type SeenTask = TaskState & { readonly requestState?: string }

type AnswerOptions = SendOptions & { readonly requestState?: string }

/** The differences between revisions in how tasks are requested, followed, answered and cancelled. */
export interface TaskStrategy {
  /** Whether the server can notify the client of changes; otherwise the task is polled. */
  readonly notifies: boolean
  /** Whether a key that was answered is never asked again. */
  readonly answersAreFinal: boolean
  /** The `task` field of a tool call, if it is to have one. Absent where the client cannot ask for a task. */
  request?(flows: Flows, tool: string, options: Driving): Promise<FlowLeg['task']>
  /** Completes a state that came without its result, error or questions. */
  fill(peer: Peer, task: TaskState, options: SendOptions): Promise<SeenTask>
  answer(peer: Peer, taskId: string, responses: InputResponses, options: AnswerOptions): Promise<void>
  cancel(peer: Peer, taskId: string, options: SendOptions): Promise<void>
  /** Answers questions of the task on whatever stream they arrive. Returns the function that stops it. */
  follow?(flows: Flows, taskId: string, leg: Leg, rounds: PushedRounds): () => void
  /** Waits for the next state of a task that asks, where its questions are pushed. */
  awaitPushed?(
    flows: Flows,
    task: TaskState,
    options: Driving,
    sending: SendOptions,
    rounds: PushedRounds,
  ): Promise<SeenTask>
}

/** The server's tools as listed: the arguments that headers repeat, and the tools that run as tasks. */
export interface ToolBook {
  /** Records the tools of a fresh list and returns the usable ones. Tools with bad header annotations are reported. */
  learn(tools: readonly Tool[], mirrors?: boolean): Tool[]
  /** Whether the tools were listed. */
  readonly learned: boolean
  /** Undefined for a tool that was never listed. */
  mirrored(name: string): readonly ParamHeader[] | undefined
  /** The tool's declaration about tasks; undefined for a tool that was never listed. */
  taskSupport(name: string): TaskSupport | undefined
}

/** A tool's declaration about tasks. */
export type TaskSupport = 'required' | 'optional' | 'forbidden'

/** A call that follows a task. */
export interface TaskFollower {
  readonly taskId: string
  changed(task: TaskState): void
  /** Called with `true` when the server notifies of the task from now on, with `false` when it no longer does. */
  live(isLive: boolean): void
}

export interface TaskStreams {
  /** Begins to follow a task. A notification contains only questions of the kinds in `capabilities`. Returns a function that ends it. */
  follow(follower: TaskFollower, capabilities: SendOptions['capabilities']): () => void
}

/** The parts of a client that its calls share. */
export interface Flows {
  readonly peer: Peer
  readonly answers: Answers
  readonly policies: readonly RoundPolicy[]
  readonly tools: ToolBook
  readonly tasks: TaskMode
  /** The notifications about all tasks that are followed. */
  readonly streams: TaskStreams
  /** From 0 to 1, for the jitter between polls. */
  readonly random: () => number
  /** Lists the tools again. */
  refreshTools(options: SendOptions): Promise<unknown>
}

/** The options of one call in progress. */
export interface Driving extends FlowOptions {
  /** The kinds of questions that the server may ask in this call. */
  readonly kinds: ReadonlySet<QuestionKind>
  /** Forms may be drawn by apps. */
  readonly apps?: boolean
  /** Return after every round, including those without questions. */
  readonly everyRound?: boolean
  /** Return the call to the caller where the server asks. */
  readonly suspends?: boolean
}
