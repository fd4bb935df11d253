/**
 * What the official server does not tell its callbacks: which tool was called, with which arguments as they were sent,
 * on which server. A state is bound to all of it, so the request is handed along here, beside their context.
 *
 * M1 Request handlers that an `McpServer` sets after the mount pass through ours. Those it has set before (a constructor
 *    that is given `capabilities.tools` does) are in a map that is not part of the public interface: they are wrapped
 *    where it is found, and where it is not the mount is refused.
 * M2 What a tool throws they turn into a result, and a result of another kind they refuse. What has to reach the wire
 *    as it is is therefore noted on the passage, and ends the request from here, outside of their `catch`.
 * M3 A callback that runs without a passage fails: without the request nothing could be bound.
 */

import type { McpServer, ServerContext } from '@modelcontextprotocol/server'
import { misuse } from '../errors.ts'
import type { FlowMethod } from '../protocol/call.ts'

const PASSAGE: unique symbol = Symbol('rondo.passage')
const METHODS: readonly FlowMethod[] = ['tools/call', 'prompts/get', 'resources/read']

/** A request as the official server decoded it. */
interface FlowRequest {
  readonly params: {
    readonly name?: string
    readonly uri?: string
    readonly arguments?: Readonly<Record<string, unknown>>
  }
}

/** One request on its way to a callback. */
export interface Passage {
  readonly server: McpServer['server']
  readonly method: FlowMethod
  readonly request: FlowRequest
  /** How the request ends, throwing or not, whatever is made of what the callback gives. */
  ending?: () => unknown
}

type Handler = (request: FlowRequest, ctx: ServerContext) => unknown
type SetHandler = (method: string, ...rest: unknown[]) => void

const mounted = new WeakSet<object>()

/** Prepares a server for our callbacks; once is enough. */
export function mount<S extends McpServer>(server: S): S {
  const inner = server.server
  if (mounted.has(inner)) return server
  for (const method of METHODS) if (hasHandler(inner, method)) wrapExisting(inner, method)
  mounted.add(inner)
  const setHandler = inner.setRequestHandler.bind(inner) as SetHandler
  const setPassing: SetHandler = (method, ...rest) => {
    const [handler] = rest
    const flow = METHODS.find((known) => known === method)
    if (flow === undefined || typeof handler !== 'function') return setHandler(method, ...rest)
    setHandler(method, passing(inner, flow, handler as Handler))
  }
  inner.setRequestHandler = setPassing as typeof inner.setRequestHandler
  return server
}

export function passageOf(ctx: ServerContext): Passage {
  const { [PASSAGE]: passage } = ctx as { [PASSAGE]?: Passage }
  if (passage) return passage
  throw misuse(
    'Rondo is not mounted on this server: const server = rondo.mount(new McpServer({ name, version }))',
  )
}

function hasHandler(inner: McpServer['server'], method: FlowMethod): boolean {
  try {
    inner.assertCanSetRequestHandler(method)
    return false
  } catch {
    return true
  }
}

function wrapExisting(inner: McpServer['server'], method: FlowMethod): void {
  const { _requestHandlers: handlers } = inner as unknown as { _requestHandlers?: unknown }
  const handler: unknown = handlers instanceof Map ? handlers.get(method) : undefined
  if (handlers instanceof Map && typeof handler === 'function') {
    handlers.set(method, passing(inner, method, handler as Handler))
    return
  }
  const what = method.slice(0, method.indexOf('/'))
  throw misuse(
    `This server has ${what} already, and Rondo cannot be mounted on it any more. Mount it before you register anything, ` +
      `and leave capabilities.${what} out of what the constructor is given: registering something adds it.`,
  )
}

function passing(server: McpServer['server'], method: FlowMethod, handler: Handler): Handler {
  return async (request, ctx) => {
    const passage: Passage = { server, method, request }
    try {
      const result = await handler(request, Object.assign({ ...ctx }, { [PASSAGE]: passage }))
      if (passage.ending === undefined) return result
    } catch (error) {
      if (passage.ending === undefined) throw error
    }
    return passage.ending()
  }
}
