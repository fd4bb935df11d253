/**
 * Extensions: what a package adds to a server with `server.use`, without touching the runtime. Pages and webhooks beside the
 * MCP endpoint, methods of its own, and a step around every call.
 */

import type { EventDelivery } from '../carry/task/hook.ts'
import type { Principal } from '../protocol/call.ts'
import type { OlderReply } from '../protocol/reply.ts'
import type { EngineStore, Store } from '../store/store.ts'

/** An addition to a server. Every part except the name is optional. */
export interface Extension {
  /** Names the extension in errors and in the log. */
  readonly name: string
  /**
   * Web-standard handlers beside the MCP endpoint, by path. `/approvals` serves that path and every path below it. The option
   * `authenticate` does not apply to them: a route identifies its callers itself.
   */
  readonly routes?: Readonly<Record<string, Route>>
  /** JSON-RPC methods that the protocol does not define, such as `vendor/thing`. */
  readonly methods?: Readonly<Record<string, MethodHandler>>
  /**
   * Runs around every request that the server serves and around every turn of a task, once each, and never inside a replay.
   * Returns the reply of `next`, or another one. The extension that was used first is the outermost.
   */
  around?(call: CallFacts, next: () => Promise<CallReply>): Promise<CallReply>
  /** Called once, by `server.use`. The function that it returns runs when the server closes. */
  attach?(host: ExtensionHost): undefined | (() => void | Promise<void>)
}

/** Serves one HTTP request. `request.signal` fires when the client disconnects. */
export type Route = (request: Request) => Response | Promise<Response>

/** Serves a method of an extension. Resolves with the result; throws a `RondoError` for an error. */
export type MethodHandler = (
  params: Readonly<Record<string, unknown>>,
  call: MethodCall,
) => Readonly<Record<string, unknown>> | Promise<Readonly<Record<string, unknown>>>

/** The request that a method of an extension serves. */
export interface MethodCall extends CallFacts {
  /** Fires when the client disconnects or cancels. */
  readonly signal: AbortSignal
}

/** A request or a turn, as the steps around it see it. */
export interface CallFacts {
  /** `turn`: a worker runs a task, without a request. */
  readonly kind: 'request' | 'turn'
  /** The JSON-RPC method; in a turn, that of the request that began the task. */
  readonly method: string
  /** The name of the tool or prompt, the URI of the resource, or the id of the task. */
  readonly target?: string
  /** The arguments of a tool or prompt, or the params of a method that an extension defines. */
  readonly args: Readonly<Record<string, unknown>>
  /** The position in a list. */
  readonly cursor?: string
  /** True if the call began in an earlier request. */
  readonly continues: boolean
  /** Absent for an anonymous caller. */
  readonly principal?: Principal
  /** The name and version that the client reports. */
  readonly client?: { readonly name: string; readonly version: string; readonly title?: string }
  readonly protocolVersion: string
  /** The id of the flow. A request has it only inside its sealed state, so it is known in turns alone. */
  readonly flow?: string
  /** The id of the task, and the number of its turn. */
  readonly task?: string
  readonly turn?: number
}

/** The reply to a call, independent of revisions. */
export type CallReply =
  | OlderReply
  /** Nothing to reply yet: the turn ended before its task did, or another instance replies. Only `next` returns it. */
  | { readonly kind: 'pending' }

/** The services that a server offers to its extensions. */
export interface ExtensionHost {
  /** The server's name. */
  readonly name: string
  /** Absent if the server has no store. */
  readonly store?: Store | EngineStore
  /** The time in milliseconds since the epoch. */
  now(): number
  /** Writes a line to the log, as a warning if there is an error. The message must not contain secrets. */
  log(message: string, error?: unknown): void
  /**
   * Seals data with the server's key. Only `open` with the same purpose, in an extension of the same name and on a server with the
   * same keys and audience, returns it. The text is safe in a cookie, a URL or a database.
   */
  seal(purpose: string, data: Uint8Array | string): Promise<string>
  /** Opens sealed data. Resolves with `undefined` if it was altered, sealed elsewhere, or sealed with a key that is gone. */
  open(purpose: string, sealed: string): Promise<Uint8Array | undefined>
  /** Delivers an event to a hook, like `server.deliver`. */
  deliver(hookId: string, event: unknown): Promise<EventDelivery>
}
