/**
 * What a client that opens a session asks beyond a `Call`: revisions up to 2025-11-25, and the draft between them and
 * 2026-07-28. What such a client said when it opened the session stands in for the envelope of a later request.
 */

import type { Call, DiscoverCall, Envelope, ListenCall, RequestId } from './call.ts'
import type { ClientCapabilities, LogLevel } from './wire.ts'

/** What is known of a client from its `initialize`. */
export type PeerFacts = Pick<Envelope, 'protocolVersion' | 'capabilities' | 'clientInfo' | 'logLevel'>

export interface InitializeCall {
  readonly kind: 'initialize'
  readonly id: RequestId
  /** The version the client would like. */
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

/** The caller's own tasks, a page of them. */
export interface TaskListCall extends Envelope {
  readonly kind: 'tasks'
  readonly cursor?: string
}

/** The calls that exist in these revisions. */
export type OlderCall = Exclude<Call, ListenCall | DiscoverCall> | TaskListCall
