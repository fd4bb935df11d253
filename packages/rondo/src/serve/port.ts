/**
 * The seam between the entrances, the service and the sessions of older clients: types only. Whoever serves a call
 * (`service.ts`, `session/`) and whoever brings one (`http/`, `stdio/`) imports these types, and not each other. This file
 * imports nothing of `serve/` or `session/`.
 */

import type { Need } from '../carry/scope.ts'
import type { ErrorCode, RondoError } from '../errors.ts'
import type { Every } from '../lib/clock.ts'
import type { InFlight } from '../lib/collection.ts'
import type { JsonLimits } from '../lib/json.ts'
import type {
  Call,
  CustomCall,
  Line,
  ListenCall,
  Listing,
  Principal,
  SessionCall,
  TaskListCall,
} from '../protocol/call.ts'
import type { Codecs } from '../protocol/codec.ts'
import type { ParamHeader, RequestHeaders } from '../protocol/common/headers.ts'
import type { Reply, TaskState } from '../protocol/reply.ts'
import type { ClientCapabilities } from '../protocol/wire.ts'

/** Either `send` is called once, or `open`, then `write` any number of times, then `end`. Nothing is written to a client that has gone. */
export interface Outlet {
  send(response: HttpResponse): void
  /** Begins a response of unknown length. */
  open(headers: HttpHeaders): void
  write(text: string): void
  end(): void
  /** Sends `response` if nothing was sent yet, and cuts the connection otherwise. */
  fail(response: HttpResponse): void
  /** Cuts the connection to a client that does not read. */
  drop(): void
  /** True once the client has gone. */
  readonly gone: boolean
  /** True once the response is complete. */
  readonly ended: boolean
  /** The remote address, if the runtime knows it. */
  readonly address: string | undefined
  /** Bytes written that the client has not read yet. */
  readonly backlog: number
  /** Calls `listener` if the client goes away before the end; returns a function that stops listening. */
  onGone(listener: () => void): () => void
}

export type HttpHeaders = Readonly<Record<string, string>>

/** A response that is complete when it begins. */
export interface HttpResponse {
  readonly status: number
  readonly headers: HttpHeaders
  readonly body: string
}

/** Settings that keep a stream of events open. */
export interface StreamOptions {
  readonly keepAliveMs: number
  readonly every: Every
  /** Bytes that a client may leave unread. */
  readonly maxBacklog: number
}

/** One request, as an entrance passes it on. */
export interface HttpRequest {
  readonly method: string
  readonly headers: RequestHeaders
  readonly principal: Principal | undefined
  readonly outlet: Outlet
  /** The weight of the message, unless it is light. */
  readonly load?: Load
}

/** The arriving or running work for one message, with its weight; see `lib/json.ts`. */
export interface Load {
  /** Counts this weight from now on. Returns false, and changes nothing, if there is no room for it. */
  weigh(weight: number): boolean
  /** Keeps the weight counted until the returned function is called. When nobody holds it any more, it is released. */
  hold(): () => void
  /** Holds this weight again, as soon as there is room for it. */
  reclaim(weight: number): Promise<() => void>
  /** The weight that is counted now. */
  readonly weight: number
}

/** The weight of everything that is in flight (N2). */
export interface Loads {
  /** The limits of one message. */
  readonly json: JsonLimits
  open(share: string): Load
  /** The refusal of what has no room. */
  refusal(): RondoError
  /** Weight that is counted now, in all. */
  readonly weight: number
}

/** Returns the caller whose share of a limit a request uses. */
export type ShareOf = (
  principal: Principal | undefined,
  headers: RequestHeaders,
  connection: { readonly address: string | undefined },
) => string

/** Checks what a caller's token allows. */
export interface Access {
  /** False as long as nothing asks for a scope. */
  readonly active: boolean
  /** Returns what each of the calls needs. Rejects if the token does not allow all of it and `also`. */
  admit(
    calls: readonly Checked[],
    principal: Principal | undefined,
    also?: readonly string[],
  ): Promise<readonly Need[]>
  /** True if the token allows what needs these scopes. */
  allows(scopes: readonly string[], principal: Principal | undefined): boolean
}

/** A request whose scopes are checked. */
export type Checked = Parameters<Service['needOf']>[0]

/** A call in flight, as far as the watch needs it. */
export interface WatchedCall {
  readonly call?: { readonly progressToken?: string | number }
  readonly line?: WatchedLine
}

interface WatchedLine {
  /** False while nothing was sent, so that a failure can still have a status of its own. */
  readonly begun?: boolean
  /** Shows that the call is alive if it has been silent since the last beat. */
  beat(progressToken: string | number | undefined): unknown
}

/** Logs handlers that have run for `limits.slowHandlerMs`, each once per round. */
export interface SlowHandlers {
  /** How often to look. */
  readonly everyMs: number
  check(): void
}

/** The context in which a call is served. */
export interface CallContext {
  readonly service: Service
  readonly inFlight: InFlight<WatchedCall>
  readonly stream: StreamOptions
  readonly shareOf: ShareOf
  readonly access: Access
  /** The headers of a refusal while this instance drains. */
  readonly whenDraining: HttpHeaders
  readonly onError: (error: unknown) => void
}

/** A change of what is served, of which clients are notified. */
export type Change =
  | { readonly kind: 'tools' }
  | { readonly kind: 'prompts' }
  | { readonly kind: 'resources' }
  | { readonly kind: 'resource'; readonly uri: string }
  /** Changes may have been missed. */
  | { readonly kind: 'everything' }

/** Carries changes to open subscriptions. Instances that share a bus notify each other's subscribers too. */
export interface ChangeBus {
  publish(change: Change): void
  subscribe(listener: (change: Change) => void): () => void
}

/** The reason why an instance takes no calls. */
export type NotReady = 'draining' | 'keys' | 'store'

/** Reports whether this instance can take calls. */
export interface Readiness {
  /** Never rejects. */
  check(): Promise<NotReady | undefined>
  /** From now on the instance is not ready. */
  leave(): void
}

/** A call in progress. Subscriptions are served by the entrances, from `changes`. */
export interface ActiveCall {
  readonly call: Exclude<Call, ListenCall>
  readonly principal: Principal | undefined
  readonly line: Line
}

/** The service behind the entrances (HTTP, fetch, stdio); see `service.ts`. */
export interface Service {
  readonly serverInfo: { readonly name: string; readonly version: string; readonly title?: string }
  readonly codecs: Codecs
  readonly supportedVersions: readonly string[]
  /** The versions named to a client that speaks none of them. */
  readonly namedVersions?: readonly string[]
  readonly changes: ChangeBus
  /** The changes to which a client may subscribe: those whose capability is declared. */
  readonly changeKinds: readonly Exclude<Change['kind'], 'everything'>[]
  /** Absent where nothing can be added. */
  readonly extensions?: ServedExtensions
  /** Never rejects. */
  handle(active: ActiveCall): Reply | Promise<Reply>
  /** Serves clients of earlier eras. Absent if these are closed. */
  readonly older?: OlderService
  paramHeaders(tool: string): readonly ParamHeader[]
  /** True if something that is served asks for scopes. */
  readonly scoped: boolean
  /** Returns the scopes that a request needs. Throws or rejects if the author's function does. */
  needOf(call: Call | SessionCall | TaskListCall): Promise<Need>
  /** Tasks are served. */
  readonly tasks?: boolean
  readonly watchTasks?: WatchTasks
  /**
   * Reports changes of another server's resource to one caller, never before it returns. Returns a function that ends this, or
   * undefined if the resource cannot be watched. Throws if the caller watches too much.
   */
  watchResource?(uri: string, principal: Principal | undefined, changed: () => void): (() => void) | undefined
  /** The weights of the messages in flight. */
  readonly loads?: Loads
  /** Logs slow handlers. */
  readonly slow?: SlowHandlers
  /** Whether the store does not respond. */
  readonly isStuck?: () => boolean
  /** Whether this instance can take calls. */
  readonly readiness?: Readiness
  /** Logs a request that was refused before anything ran. */
  onRefused?(code: ErrorCode, status: number): void
  /** An entrance has closed after draining. Resolves when everything else has stopped too. */
  onClosed?(): Promise<void>
  /** `draining` is true once the process has begun to stop. */
  readonly state: { readonly draining: boolean }
  /** From now on this instance is not ready, but still serves. */
  leave?(): void
  /** Sets `state.draining`. */
  drain(): void
}

/** Serves one HTTP request. `request.signal` fires when the client disconnects. */
export type Route = (request: Request) => Response | Promise<Response>

/** The additions of extensions, as the entrances and the services see them; see `extension.ts`. */
export interface ServedExtensions {
  /** The routes, by path. A route serves every path below its own too. */
  readonly routes: ReadonlyMap<string, Route>
  /** Throws if a route would hide one of these paths, which are named by what they serve. */
  assertVisible(paths: Readonly<Record<string, string | undefined>>): void
  /** Serves a method that no revision defines. */
  serve(call: CustomCall, principal: Principal | undefined, line: Line): Promise<Reply>
}

/** Reports tasks as they change; returns a function that ends this. */
export type WatchTasks = (
  taskIds: readonly string[],
  principal: Principal | undefined,
  capabilities: ClientCapabilities,
  listener: (task: TaskState) => void,
) => Promise<() => void>

/** The output of all messages to a client over stdio. */
export interface StdioOutput {
  write(json: string): void
  /** True while too much of the output is unread. */
  readonly clogged: boolean
}

/** Serves clients of earlier eras. */
export interface OlderService {
  /** Serves them over HTTP. With `stateless` every request stands alone. */
  overHttp(context: CallContext, stateless: boolean): OlderExchange
  /** Serves the one client of a pair of byte streams. */
  overStdio(client: StdioClient): OlderPeer
  /** Called when something was declared or removed. */
  changed(listing: Listing): void
  /** Refuses the calls that wait and ends every session. Resolves when other instances can continue the calls. */
  close(): Promise<void>
}

/** Whether a message is of an earlier era. */
export type IsOlder = (message: unknown, headers: RequestHeaders | undefined) => boolean

/** Older clients over HTTP. Responses go to the outlet of each request. */
export interface OlderExchange {
  readonly isOlder: IsOlder
  post(message: unknown, request: HttpRequest): void
  /** GET and DELETE, which have no body. */
  bare(request: HttpRequest): void
}

/** A client over stdio, as the sessions need it. */
export interface StdioClient {
  readonly output: StdioOutput
  readonly principal?: Principal
  readonly inFlight: InFlight<WatchedCall>
  readonly service: Pick<Service, 'state'>
  onError(error: unknown): void
}

/** The one session of a client over stdio. */
export interface OlderPeer {
  /** True if the message is of an earlier era. */
  takes(message: unknown): boolean
  receive(message: unknown, load?: Load): void
  /** Ends the waiting of all calls, because the server stops. */
  refuseWaiting(): void
  end(): void
}
