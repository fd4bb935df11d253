/**
 * The interfaces that a revision of the protocol implements. Everything outside of its folder knows a revision through
 * these alone; `revisions.ts` has the list.
 *
 * There are two kinds. In a revision of kind `request` every request says who sends it and stands alone. In one of kind
 * `session` the client introduces itself once, with `initialize`, and the versions of the kind differ in details only.
 */

import type { RondoError } from '../errors.ts'
import type { Call, OlderCall, PeerAnswer, PeerFacts, RequestId, SessionCall } from './call.ts'
import type { ParamHeader, RequestHeaders } from './common/headers.ts'
import type { DecodedResponse } from './common/received.ts'
import type { AnswerLimits } from './common/request.ts'
import type { OlderReply, Reply, TaskState } from './reply.ts'
import type { InputRequest, ServerInfo } from './wire.ts'

type Params = Readonly<Record<string, unknown>>

/** A message of a client without a session. */
export type RequestMessage =
  | { readonly kind: 'call'; readonly call: Call }
  | { readonly kind: 'notification'; readonly method: string; readonly params: Params }
  | { readonly kind: 'refused'; readonly id: RequestId | null; readonly error: RondoError }

/** The service's settings that decoding depends on. */
export interface DecodeContext {
  readonly supportedVersions: readonly string[]
  /** The versions named to a client that asks for another one. Default: the supported versions. */
  readonly namedVersions?: readonly string[]
  paramHeaders(tool: string): readonly ParamHeader[]
  readonly answerLimits?: AnswerLimits
  /** There is a store for tasks. */
  readonly tasks?: boolean
}

/** The service's settings that encoding depends on. */
export interface EncodeContext {
  readonly serverInfo: ServerInfo
}

export interface RequestCodec {
  readonly kind: 'request'
  /** Newest first. */
  readonly versions: readonly string[]
  /** `headers` are given over HTTP only. */
  decode(message: unknown, headers: RequestHeaders | undefined, context: DecodeContext): RequestMessage
  encodeReply(id: RequestId, reply: Reply, context: EncodeContext): string
  readonly client: ClientCodec
}

/** A request as a transport sends it. */
export interface EncodedRequest {
  /** One JSON-RPC message. */
  readonly body: string
  readonly headers: Readonly<Record<string, string>>
}

/** The client's half of a revision. */
export interface ClientCodec {
  methodOf(call: Call): string
  /** `mirrored` are the arguments that headers repeat, in revisions that have such headers. */
  encodeRequest(call: Call, mirrored?: readonly ParamHeader[]): EncodedRequest
  decodeResponse(call: Call, message: unknown): DecodedResponse
}

/** A message of a session. */
export type SessionMessage =
  | { readonly kind: 'call'; readonly call: OlderCall }
  | { readonly kind: 'session'; readonly call: SessionCall }
  | { readonly kind: 'notification'; readonly method: string; readonly params: Params }
  | { readonly kind: 'answer'; readonly id: RequestId; readonly answer: PeerAnswer }
  | { readonly kind: 'refused'; readonly id: RequestId | null; readonly error: RondoError }

/** The task and the trace that a request to a client belongs to. */
export interface RequestOrigin {
  /** The id of the task that asks. */
  readonly task?: string
  /** `traceparent` and its companions (SEP-414). */
  readonly trace?: Readonly<Record<string, string>>
}

/** One version of a revision with sessions. */
export interface SessionDialect {
  /** Input requests are part of a result, and the client retries; otherwise they are pushed while the call waits. */
  readonly rounds: boolean
  readonly tasks: boolean
  /** A stream begins with an event that has an id and no message. */
  readonly primesStreams: boolean
  readonly batches: boolean
  decode(message: unknown, peer: PeerFacts): SessionMessage
  encodeReply(id: RequestId, reply: OlderReply): string
  encodeError(id: RequestId | null, error: RondoError): string
  /** An input request that is pushed. `elicitationId` names a page to visit. */
  encodeRequest(id: string, request: InputRequest, elicitationId: string, origin?: RequestOrigin): string
  /** The notification that a task has changed. */
  encodeTaskStatus(task: TaskState): string
}

export interface SessionCodec {
  readonly kind: 'session'
  /** Newest first. */
  readonly versions: readonly string[]
  /**
   * Not published. A request may claim the version in `_meta`, and then needs no session. The version is named to a client
   * only if nothing else is served: official clients mistake its label for a later revision and give up.
   */
  readonly draft?: true
  dialect(version: string): SessionDialect
  readonly client: ClientCodec
}

export type Codec = RequestCodec | SessionCodec

/** The revisions of one server, by version. */
export interface Codecs {
  /** The versions that are served, the preferred one first. */
  readonly requestVersions: readonly string[]
  readonly sessionVersions: readonly string[]
  /** The members of `sessionVersions` that are drafts. */
  readonly draftVersions: readonly string[]
  readonly requests: ReadonlyMap<unknown, RequestCodec>
  /** Handles unknown versions, which it refuses. */
  readonly newest: RequestCodec
  session(version: string): SessionDialect
  /** True for a version that begins with `initialize`, whether or not it is served. */
  opensSession(version: string): boolean
}

/**
 * A client that shares no version of the new era opens a session anyway, so versions of sessions are named only if there
 * are no others. A draft is named only if there is nothing else: official clients take its label for a later revision,
 * and give up.
 */
export function namedVersions({
  requestVersions,
  sessionVersions,
  draftVersions,
}: Codecs): readonly string[] {
  if (requestVersions.length > 0) return requestVersions
  const published = sessionVersions.filter((version) => !draftVersions.includes(version))
  return published.length > 0 ? published : sessionVersions
}

/** The version to speak with a client that asks for `requested`: that one, or the preferred one. */
export function negotiate(requested: string, served: readonly string[]): string {
  return served.includes(requested) ? requested : (served[0] ?? requested)
}
