/**
 * A request to the official server as a `Call`, and the line back to its client.
 *
 * A server may have its own check of states (`requestState.verify`) for tools other than ours. A state on its way to a
 * callback of ours passes that check unopened, wrapped in an object that reveals nothing, and is opened once the arguments
 * are known. The prefix of a state decides nothing, because whoever sends a state can write any prefix.
 */

import type { ServerContext } from '@modelcontextprotocol/server'
import { RondoError } from '../errors.ts'
import type { Log } from '../log/log.ts'
import type { FlowCall, Line, TaskCall } from '../protocol/call.ts'
import { checkNameHeader } from '../protocol/common/headers.ts'
import { CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL, PROTOCOL_VERSION } from '../protocol/common/json-rpc.ts'
import { ANSWER_LIMITS, readAnswers, readTask, readTrace } from '../protocol/common/request.ts'
import { LATEST_VERSION, UNSTATED_VERSION } from '../protocol/revisions.ts'
import type { ClientCapabilities, LogLevel } from '../protocol/wire.ts'
import { type Intercepted, isForUs } from './intercept.ts'

/** The client's declarations in a request; in older revisions the client declares it once, when it connects. */
interface RequestMeta {
  readonly [PROTOCOL_VERSION]?: string
  readonly [CLIENT_CAPABILITIES]?: ClientCapabilities
  readonly [CLIENT_INFO]?: FlowCall['clientInfo']
  readonly [LOG_LEVEL]?: LogLevel
}

export type VerifyState = (state: string, ctx: ServerContext) => unknown

/** A state that is passed through the server's own check. */
export class UnopenedState {
  readonly #token: string

  constructor(token: string) {
    this.#token = token
  }

  /** Returns the token of an unopened state, and any other value unchanged. */
  static tokenOf(value: unknown): unknown {
    return value instanceof UnopenedState ? value.#token : value
  }
}

/** Passes every state to `verify`, except those that a callback of ours is about to open. */
export function besideOurs(verify: VerifyState): VerifyState {
  return (state, ctx) => (isForUs(ctx) ? new UnopenedState(state) : verify(state, ctx))
}

function metaOf({ mcpReq }: ServerContext): RequestMeta {
  return mcpReq.envelope ?? {}
}

/**
 * True for a client of a revision without rounds, which the official server asks on our behalf over its connection. The
 * version of the connection decides: on such a connection nobody checks what a request declares about itself.
 */
export function isOlder(server: Intercepted['server']): boolean {
  return (server.getNegotiatedProtocolVersion() ?? '') < LATEST_VERSION
}

export function toFlowCall({ server, method, request }: Intercepted, ctx: ServerContext, log: Log): FlowCall {
  const { name = '', uri = '', arguments: args = {} } = request.params
  const reading = method === 'resources/read'
  const target = reading ? uri : name
  return {
    kind: 'flow',
    id: ctx.mcpReq.id,
    method,
    target,
    args: reading ? {} : args,
    progressToken: ctx.mcpReq._meta?.progressToken,
    trace: readTrace(ctx.mcpReq._meta ?? {}),
    inputResponses: readResponses(ctx),
    requestState: readState(ctx, (reason) =>
      log({ event: 'state_refused', method, ...(!reading && { target }), reason }),
    ),
    ...(isOlder(server) ? connectedClient(server) : requestingClient(metaOf(ctx))),
  }
}

/**
 * A request about a task. The official server does not know these methods, so the checks that it makes for others are
 * made here.
 */
export function toTaskCall(
  action: 'get' | 'update' | 'cancel',
  taskId: unknown,
  ctx: ServerContext,
  server: Intercepted['server'],
): TaskCall {
  const envelope = {
    id: ctx.mcpReq.id,
    trace: readTrace(ctx.mcpReq._meta ?? {}),
    ...(isOlder(server) ? connectedClient(server) : requestingClient(metaOf(ctx))),
  }
  const params = { taskId, inputResponses: readResponses(ctx) }
  const call = readTask(envelope, `tasks/${action}`, params, ANSWER_LIMITS)
  const headers = ctx.http?.req?.headers
  if (headers) checkNameHeader(Object.fromEntries(headers), call.taskId)
  return call
}

type Client = Pick<FlowCall, 'protocolVersion' | 'capabilities' | 'clientInfo' | 'logLevel'>

function requestingClient(meta: RequestMeta): Client {
  return {
    protocolVersion: meta[PROTOCOL_VERSION] ?? '',
    capabilities: meta[CLIENT_CAPABILITIES] ?? {},
    clientInfo: meta[CLIENT_INFO],
    logLevel: meta[LOG_LEVEL],
  }
}

function connectedClient(server: Intercepted['server']): Client {
  return {
    protocolVersion: server.getNegotiatedProtocolVersion() ?? UNSTATED_VERSION,
    capabilities: (server.getClientCapabilities() ?? {}) as ClientCapabilities,
    clientInfo: server.getClientVersion(),
    // The client set its level once, and the official `log` applies it: everything is passed on.
    logLevel: 'debug',
  }
}

function readState({ mcpReq }: ServerContext, refuse: (reason: string) => void): string | undefined {
  const state = UnopenedState.tokenOf(mcpReq.requestState())
  if (state === undefined || typeof state === 'string') return state
  refuse("decoded by the server's own requestState.verify; wrap that function: rondo.verify(…)")
  throw new RondoError('STATE_INVALID')
}

/** The official server drops malformed responses and lists their keys. Our server refuses them, and so does this (B14). */
function readResponses({ mcpReq }: ServerContext): FlowCall['inputResponses'] {
  const { inputResponses, droppedInputResponseKeys: dropped } = mcpReq
  if (dropped !== undefined && dropped.length > 0) throw new RondoError('INPUT_MALFORMED')
  return inputResponses === undefined ? undefined : readAnswers(inputResponses, ANSWER_LIMITS)
}

export function toLine({ mcpReq }: ServerContext): Line {
  const { signal } = mcpReq
  return {
    notify(method, params) {
      // A client that has disconnected is not the handler's concern.
      send(mcpReq, method, params).catch(() => {})
    },
    get closed() {
      return signal.aborted
    },
    onClose(listener) {
      signal.addEventListener('abort', listener, { once: true })
      return () => signal.removeEventListener('abort', listener)
    },
  }
}

/** Async, so that whatever the official functions throw synchronously becomes a rejection too. */
async function send(
  mcpReq: ServerContext['mcpReq'],
  method: string,
  params: Record<string, unknown>,
): Promise<void> {
  if (method !== 'notifications/message') return mcpReq.notify({ method, params })
  const { level, data, logger } = params as { level: LogLevel; data: unknown; logger?: string }
  return mcpReq.log(level, data, logger)
}
