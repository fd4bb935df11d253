/**
 * A request to the official server as a `Call`, and the line back to its client.
 */

import { DEFAULT_NEGOTIATED_PROTOCOL_VERSION, type ServerContext } from '@modelcontextprotocol/server'
import { RondoError } from '../errors.ts'
import type { FlowCall, Line, TaskCall } from '../protocol/call.ts'
import { checkNameHeader } from '../protocol/common/headers.ts'
import { CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL, PROTOCOL_VERSION } from '../protocol/common/meta-key.ts'
import { ANSWER_LIMITS, readAnswers, readTask } from '../protocol/common/request.ts'
import type { ClientCapabilities, LogLevel } from '../protocol/wire.ts'
import type { Log } from '../serve/log.ts'
import { isForUs, type Passage } from './passage.ts'

/** What a request says about its client; older revisions say it once, when they connect. */
interface RequestMeta {
  readonly [PROTOCOL_VERSION]?: string
  readonly [CLIENT_CAPABILITIES]?: ClientCapabilities
  readonly [CLIENT_INFO]?: FlowCall['clientInfo']
  readonly [LOG_LEVEL]?: LogLevel
}

function metaOf({ mcpReq }: ServerContext): RequestMeta {
  return mcpReq.envelope ?? {}
}

const FIRST_WITH_ROUNDS = '2026-07-28'

/**
 * True for a client of a revision without rounds; the official server asks it in our place, over its connection. What the
 * client connected with decides: on such a connection nobody checks what a request says about itself.
 */
export function isOlder(server: Passage['server']): boolean {
  return (server.getNegotiatedProtocolVersion() ?? '') < FIRST_WITH_ROUNDS
}

export function toFlowCall({ server, method, request }: Passage, ctx: ServerContext, log: Log): FlowCall {
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
    inputResponses: readResponses(ctx),
    requestState: readState(ctx, (reason) => log({ event: 'state_refused', method, target, reason })),
    ...(isOlder(server) ? connectedClient(server) : requestingClient(metaOf(ctx))),
  }
}

/**
 * What a client wants to know of a task, or do with it. The official server knows nothing of these methods, so what it
 * checks of others is checked here.
 */
export function toTaskCall(
  action: 'get' | 'update' | 'cancel',
  taskId: unknown,
  ctx: ServerContext,
  server: Passage['server'],
): TaskCall {
  const envelope = {
    id: ctx.mcpReq.id,
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

function connectedClient(server: Passage['server']): Client {
  return {
    protocolVersion: server.getNegotiatedProtocolVersion() ?? DEFAULT_NEGOTIATED_PROTOCOL_VERSION,
    capabilities: (server.getClientCapabilities() ?? {}) as ClientCapabilities,
    clientInfo: server.getClientVersion(),
    // Its level was set once, and their `log` knows it: everything is handed there.
    logLevel: 'debug',
  }
}

function readState({ mcpReq }: ServerContext, refuse: (reason: string) => void): string | undefined {
  const state = SealedState.open(mcpReq.requestState())
  if (state === undefined || typeof state === 'string') return state
  refuse("decoded by the server's own requestState.verify, which has to be wrapped: rondo.verify(…)")
  throw new RondoError('STATE_INVALID')
}

/** What is no answer at all they leave out, and name; on a server of ours it is refused, and so it is here (B14). */
function readResponses({ mcpReq }: ServerContext): FlowCall['inputResponses'] {
  const { inputResponses, droppedInputResponseKeys: dropped } = mcpReq
  if (dropped !== undefined && dropped.length > 0) throw new RondoError('INPUT_MALFORMED')
  return inputResponses === undefined ? undefined : readAnswers(inputResponses, ANSWER_LIMITS)
}

export function toLine({ mcpReq }: ServerContext): Line {
  const { signal } = mcpReq
  return {
    notify(method, params) {
      // A client that went away in the meantime is not the handler's matter.
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

/** Async, so that what their line throws at once is a rejection like everything else. */
async function send(
  mcpReq: ServerContext['mcpReq'],
  method: string,
  params: Record<string, unknown>,
): Promise<void> {
  if (method !== 'notifications/message') return mcpReq.notify({ method, params })
  const { level, data, logger } = params as { level: LogLevel; data: unknown; logger?: string }
  return mcpReq.log(level, data, logger)
}

/*
 * A server may have its own check of states (`requestState.verify`), and tools beside ours that live by it. States on
 * their way to a callback of ours pass by that check unopened, as an object that shows nothing: they are opened where the
 * arguments are known. How a state begins decides nothing: whoever sends one can write what we write.
 */

export type VerifyState = (state: string, ctx: ServerContext) => unknown

export class SealedState {
  readonly #token: string

  constructor(token: string) {
    this.#token = token
  }

  /** The token, if `held` is one of these; anything else as it is. */
  static open(held: unknown): unknown {
    return held instanceof SealedState ? held.#token : held
  }
}

/** Hands every state to `verify`, except those that a callback of ours is about to open. */
export function besideOurs(verify: VerifyState): VerifyState {
  return (state, ctx) => (isForUs(ctx) ? new SealedState(state) : verify(state, ctx))
}
