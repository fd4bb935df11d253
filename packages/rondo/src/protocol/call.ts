/**
 * The requests of a client, in whatever dialect. A revision's `decode.ts` turns a message into a `Call`; no later stage knows
 * a wire field. A `Call` is complete: no connection, session or earlier request is needed to serve it.
 *
 * Clients up to 2025-11-25 open a session. What they declared then stands in for the envelope of a later request, and a few
 * calls exist for them alone.
 */

import type { ClientCapabilities, LogLevel } from './wire.ts'

export type RequestId = string | number

/** The caller, and its dialect. */
export interface Envelope {
  readonly id: RequestId
  readonly protocolVersion: string
  readonly capabilities: ClientCapabilities
  readonly clientInfo?: { readonly name: string; readonly version: string; readonly title?: string }
  readonly progressToken?: string | number
  readonly logLevel?: LogLevel
  readonly trace?: Readonly<Record<string, string>>
  /** The whole `_meta` of the request, reserved keys included. */
  readonly meta?: Readonly<Record<string, unknown>>
}

export type FlowMethod = 'tools/call' | 'prompts/get' | 'resources/read'

/** A request that may take several rounds. `target` is the tool's or prompt's name, or the resource's URI. */
export interface FlowCall extends Envelope {
  readonly kind: 'flow'
  readonly method: FlowMethod
  readonly target: string
  readonly args: Readonly<Record<string, unknown>>
  readonly inputResponses?: Readonly<Record<string, unknown>>
  readonly requestState?: string
  /** Tasks that the client considers related to this call. Of another caller or unknown, unless they were checked. */
  readonly relatedTaskIds?: readonly string[]
  /** The client asks for a task, in dialects in which the client decides. */
  readonly task?: { readonly ttlMs?: number }
  /** The reason why the arguments do not fit, if that was found out before the round: then no handler runs. */
  readonly badArguments?: string
}

export type Listing = 'tools' | 'prompts' | 'resources' | 'templates'

export interface ListCall extends Envelope {
  readonly kind: 'list'
  readonly listing: Listing
  readonly cursor?: string
}

export interface DiscoverCall extends Envelope {
  readonly kind: 'discover'
}

export type CompleteRef =
  | { readonly kind: 'prompt'; readonly name: string }
  | { readonly kind: 'template'; readonly uri: string }

export interface CompleteCall extends Envelope {
  readonly kind: 'complete'
  readonly ref: CompleteRef
  readonly argument: { readonly name: string; readonly value: string }
  readonly context: Readonly<Record<string, string>>
}

export interface ListenFilter {
  readonly toolsListChanged?: boolean
  readonly promptsListChanged?: boolean
  readonly resourcesListChanged?: boolean
  readonly resourceSubscriptions?: readonly string[]
  readonly taskIds?: readonly string[]
}

export interface ListenCall extends Envelope {
  readonly kind: 'listen'
  readonly filter: ListenFilter
}

/** A request about a task. */
export interface TaskCall extends Envelope {
  readonly kind: 'task'
  /** `result` waits until the task has ended or asks; it exists in revisions with sessions alone. */
  readonly action: 'get' | 'update' | 'cancel' | 'result'
  readonly taskId: string
  readonly inputResponses?: Readonly<Record<string, unknown>>
}

/** A method that no revision defines. An extension may serve it. */
export interface CustomCall extends Envelope {
  readonly kind: 'custom'
  readonly method: string
  readonly args: Readonly<Record<string, unknown>>
}

export type Call = TaskCall | FlowCall | ListCall | DiscoverCall | CompleteCall | ListenCall | CustomCall

/** The line back to the client while a request runs. */
export interface Line {
  /** Sends a notification (progress, log) on this request's own stream. Opens the stream if necessary. */
  notify(method: string, params: Record<string, unknown>): void
  /** True once the client has disconnected or cancelled. */
  readonly closed: boolean
  /** True if it was closed because another instance continues the call. */
  readonly left?: boolean
  /** Resolves with true if another instance continues the call, which may not be known here yet. Never rejects. */
  isTaken?(): Promise<boolean>
  /** Calls `listener` once when the client disconnects or cancels. Returns a function that stops listening. */
  onClose(listener: () => void): () => void
}

/** The authenticated caller. Absent means anonymous. */
export interface Principal {
  readonly subject: string
  readonly issuer?: string
  /** The OAuth client, if the subject alone does not identify the caller. */
  readonly client?: string
  /** Claims that handlers may see. Never the bearer token itself. */
  readonly claims?: Readonly<Record<string, unknown>>
  /** The scopes of the caller's token. Checked in every request; a state is not bound to them. */
  readonly scopes?: readonly string[]
}

/** The content of a client's `initialize`. */
export type PeerFacts = Pick<Envelope, 'protocolVersion' | 'capabilities' | 'clientInfo' | 'logLevel'>

export interface InitializeCall {
  readonly kind: 'initialize'
  readonly id: RequestId
  /** The version that the client prefers. */
  readonly requested: string
  readonly capabilities: ClientCapabilities
  readonly clientInfo?: Envelope['clientInfo']
}

export type SessionCall =
  | InitializeCall
  | { readonly kind: 'ping'; readonly id: RequestId }
  | { readonly kind: 'level'; readonly id: RequestId; readonly level: LogLevel }
  | { readonly kind: 'watch' | 'unwatch'; readonly id: RequestId; readonly uri: string }

/** A client's response to a request of ours. */
export type PeerAnswer =
  | { readonly kind: 'result'; readonly result: Readonly<Record<string, unknown>> }
  | { readonly kind: 'error'; readonly code: number; readonly message: string }

/** Requests a page of the caller's own tasks. */
export interface TaskListCall extends Envelope {
  readonly kind: 'tasks'
  readonly cursor?: string
  /** False for a task that the caller's token does not allow. Absent where tokens are not checked. */
  readonly allows?: (taskId: string) => boolean
}

/** The calls that exist up to 2025-11-25. */
export type OlderCall = Exclude<Call, ListenCall | DiscoverCall> | TaskListCall
