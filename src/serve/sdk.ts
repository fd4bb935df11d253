/**
 * Rondo inside an official `McpServer`. A mount and nothing more: the official server decodes, checks arguments and
 * results and encodes; the rounds are those of the token carrier, with its journal, its seal and its promises.
 *
 * R1 The state is opened in the callback, where request and arguments are known, before anything of the handler runs.
 */

import type {
  CallToolResult,
  GetPromptResult,
  InputRequiredResult,
  McpServer,
  ProtocolError,
  ReadResourceResult,
  ServerContext,
  Variables,
} from '@modelcontextprotocol/server'
import { runRound } from '../carry/token.ts'
import { RondoError } from '../errors.ts'
import type { FlowMethod } from '../protocol/call.ts'
import type { InputRequired } from '../tool/input-required.ts'
import { createHost, type HostOptions, type OpenHost } from './create-host.ts'
import { isOlder, toFlowCall, toLine } from './sdk-call.ts'
import { mount, passageOf } from './sdk-mount.ts'
import { type FindPrincipal, principalFromAuthInfo } from './sdk-principal.ts'
import { refuse, refuseOlder, toResult } from './sdk-reply.ts'
import { besideOurs, type VerifyState } from './sdk-state.ts'
import { type SdkContext, type SdkTarget, toTarget, withSdk } from './sdk-target.ts'

export interface RondoOptions extends HostOptions {
  /** Says for whom a request is made. Default: `sub`, `iss` and the client of the verified token, else nobody. */
  principal?: FindPrincipal
}

type Given<R> = R | InputRequiredResult | InputRequired
type Sent<R> = Promise<R | InputRequiredResult>
type Handler<A, R> = (args: A, ctx: SdkContext) => Given<R> | Promise<Given<R>>

/** What `registerTool` and `registerPrompt` take, with arguments and without. */
export interface ArgsCallback<A, R> {
  (ctx: ServerContext): Sent<R>
  (...params: [args: A, ctx: ServerContext]): Sent<R>
}

/** What `registerResource` takes, for a URI and for a template. */
export interface ReadCallback {
  (uri: URL, ctx: ServerContext): Sent<ReadResourceResult>
  (uri: URL, variables: Variables, ctx: ServerContext): Sent<ReadResourceResult>
}

export interface CallbackOptions {
  /** Sealed with every open call, and logged when a call that began under another version goes on. */
  version?: string
}

export interface Rondo {
  /** Prepares a server for these callbacks: right after `new McpServer`, before anything is registered. */
  mount<S extends McpServer>(server: S): S
  /** A callback for `registerTool`. The handler is given arguments and context, also where the tool takes none. */
  tool<A = Record<string, never>>(
    handler: Handler<A, CallToolResult>,
    options?: CallbackOptions,
  ): ArgsCallback<A, CallToolResult>
  /** A callback for `registerPrompt`. */
  prompt<A = Record<string, never>>(
    handler: Handler<A, GetPromptResult>,
    options?: CallbackOptions,
  ): ArgsCallback<A, GetPromptResult>
  /** A callback for `registerResource`. The variables of a template come last. */
  resource(
    handler: (
      uri: URL,
      ctx: SdkContext,
      variables: Variables,
    ) => Given<ReadResourceResult> | Promise<Given<ReadResourceResult>>,
    options?: CallbackOptions,
  ): ReadCallback
  /** Wraps a `requestState.verify` of your own, for the other tools of the server: it never sees states of ours. */
  verify(own: VerifyState): VerifyState
  /** Loads the keys now, so that wrong ones stop the start and not the first call. */
  ready(): Promise<void>
  /** From now on calls in flight are handed back at their next boundary. */
  drain(): void
  /** Drains and lets go of timers. */
  close(): void
}

type AnyHandler = (first: never, ctx: SdkContext, variables: never) => unknown

/** Their callbacks are given the context last: alone, after the arguments, or after URI and variables. */
function callback(
  host: OpenHost,
  principalOf: FindPrincipal,
  method: FlowMethod,
  handler: AnyHandler,
  { version }: CallbackOptions = {},
): (...params: unknown[]) => Promise<unknown> {
  return async (...params) => {
    const sdk = params.at(-1) as ServerContext
    const [first = {}, variables = {}] = params.slice(0, -1)
    const passage = passageOf(sdk)
    const name = passage.request.params.name ?? passage.request.params.uri ?? ''
    const target = toTarget(method, name, version, (ctx) =>
      handler(first as never, withSdk(ctx, sdk), variables as never),
    )
    try {
      const call = toFlowCall(passage, sdk)
      return toResult(await runRound(host, target, call, await principalOf(sdk), toLine(sdk)))
    } catch (error) {
      const refusal = toRefusal(host, target, error)
      const cannotAsk = refusal instanceof RondoError && refusal.code === 'PEER_CAPABILITY'
      return cannotAsk && isOlder(sdk) ? refuseOlder(passage, refusal) : refuse(passage, refusal)
    }
  }
}

/** What a client hears of an error. One that a handler threw with a code of the protocol goes out as it is. */
function toRefusal(host: OpenHost, { thrown }: SdkTarget, error: unknown): RondoError | ProtocolError {
  if (!(error instanceof RondoError)) {
    host.log({ event: 'warning', message: String(error) })
    return new RondoError('SERVER_INTERNAL', undefined, { cause: error })
  }
  return error.code === 'SERVER_HANDLER' && thrown ? thrown : error
}

/** Makes what an official server needs to have tools that ask: keys, limits, and wrappers for its callbacks. */
export function createRondo(options: RondoOptions): Rondo {
  if (typeof options?.audience !== 'string' || options.audience === '') {
    throw new TypeError(
      "createRondo takes an audience, the name of your service: createRondo({ audience: 'tracker' })",
    )
  }
  const host = createHost(options)
  const { principal = principalFromAuthInfo } = options
  const wrap = (method: FlowMethod, handler: AnyHandler, given?: CallbackOptions) =>
    callback(host, principal, method, handler, given) as never
  return {
    mount,
    tool: (handler, given) => wrap('tools/call', handler as AnyHandler, given),
    prompt: (handler, given) => wrap('prompts/get', handler as AnyHandler, given),
    resource: (handler, given) => wrap('resources/read', handler as AnyHandler, given),
    verify: besideOurs,
    ready: async () => void (await host.keys.ready()),
    drain: host.drain,
    close() {
      host.drain()
      host.close()
    },
  }
}
