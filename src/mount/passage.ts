/**
 * What the official server does not tell its callbacks: which tool was called, with which arguments as they were sent,
 * on which server. A state is bound to all of it, so the request is handed along here, beside their context.
 *
 * M1 Requests pass through ours before anything of the official server sees them, its check of states included. Their
 *    handlers are in a map that is not part of the public interface. Where it is not found, handlers that are set after
 *    the mount are wrapped on their way in, and a server that has some already is refused.
 * M2 What a tool throws they turn into a result, and a result of another kind they refuse. What has to reach the wire
 *    as it is is therefore noted on the passage, and ends the request from here, outside of their `catch`.
 * M3 A callback that runs without a passage fails: without the request nothing could be bound.
 * M4 A request is for a callback of ours only if the very function that the official server is about to run was made
 *    from one. A name, a prefix or a shape proves nothing; whatever cannot be recognised is not ours.
 */

import {
  type McpServer,
  ProtocolError,
  ProtocolErrorCode,
  type ServerContext,
} from '@modelcontextprotocol/server'
import { misuse, type RondoError } from '../errors.ts'
import type { FlowMethod } from '../protocol/call.ts'
import type { Reply } from '../protocol/reply.ts'
import { toTaskHead, toTaskResult } from '../protocol/task.ts'
import { errorResult } from '../tool/target.ts'

const PASSAGE: unique symbol = Symbol('rondo.passage')
const METHODS: readonly FlowMethod[] = ['tools/call', 'prompts/get', 'resources/read']
const REGISTERING = ['registerTool', 'registerPrompt', 'registerResource'] as const

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
  /** Where the callback is looked up. Absent if the method has a handler that is not the official one. */
  readonly registry?: Registry
  /** How the request ends, throwing or not, whatever becomes of the value that the callback returns. */
  ending?: () => unknown
  /** Hears of a result that the official server does not take. */
  refused?: (error: unknown) => void
}

type Handler = (request: FlowRequest, ctx: ServerContext) => unknown
type SetHandler = (method: string, ...rest: unknown[]) => void

/** What registering returns, as far as it says what runs. */
interface Registered {
  readonly executor?: object
  readonly readCallback?: object
  readonly handler?: object
  readonly resourceTemplate?: { readonly uriTemplate: { match(uri: string): unknown } }
  update(updates: { readonly callback?: object }): void
}
type Registrations = Readonly<Record<string, Registered>>

/** Where an `McpServer` keeps what was registered; not part of its public interface. */
interface Registry {
  readonly _registeredTools?: Registrations
  readonly _registeredPrompts?: Registrations
  readonly _registeredResources?: Registrations
  readonly _registeredResourceTemplates?: Registrations
}

const mounted = new WeakSet<object>()
/** Callbacks that were made by us, and the functions the official server made of them. */
const callbacks = new WeakSet<object>()
const runs = new WeakSet<object>()

/** Takes note of a callback, so that it is recognised when it is registered. */
export function markAsOurs(callback: object): void {
  callbacks.add(callback)
}

/** Prepares a server for our callbacks; once is enough. */
export function mount<S extends McpServer>(server: S): S {
  const inner = server.server
  if (mounted.has(inner)) return server
  const registry = server as unknown as Registry
  for (const method of METHODS) {
    if (hasHandler(inner, method) && !wrapExisting(inner, method, registry)) throw tooLate(method)
  }
  mounted.add(inner)
  const isRegistering = followRegistrations(server)
  const setHandler = inner.setRequestHandler.bind(inner) as SetHandler
  const setPassing: SetHandler = (method, ...rest) => {
    const flow = METHODS.find((known) => known === method)
    const [handler] = rest
    if (flow !== undefined && handlersOf(inner) === undefined && typeof handler === 'function') {
      return setHandler(method, passing(inner, flow, handler as Handler))
    }
    setHandler(method, ...rest)
    // A handler that somebody else sets looks nothing up, so what is registered says nothing about its requests.
    if (flow !== undefined) wrapExisting(inner, flow, isRegistering() ? registry : undefined)
  }
  inner.setRequestHandler = setPassing as typeof inner.setRequestHandler
  return server
}

/** True if the callback that a request is about to reach is one of ours. */
export function isForUs(ctx: ServerContext): boolean {
  const { [PASSAGE]: passage } = ctx as { [PASSAGE]?: Passage }
  const registered = passage && findRegistered(passage)
  const run = registered && runOf(registered)
  return run !== undefined && runs.has(run)
}

/** What the official server will find for a request, found the way it does. */
function findRegistered({ registry = {}, method, request: { params } }: Passage): Registered | undefined {
  const { name = '', uri = '' } = params
  if (method === 'tools/call') return registry._registeredTools?.[name]
  if (method === 'prompts/get') return registry._registeredPrompts?.[name]
  if (!URL.canParse(uri)) return undefined
  const { href } = new URL(uri)
  const templates = Object.values(registry._registeredResourceTemplates ?? {})
  return (
    registry._registeredResources?.[href] ??
    templates.find(({ resourceTemplate }) => resourceTemplate?.uriTemplate.match(href))
  )
}

/** The function that runs; the official server makes a new one whenever a registration is updated. */
function runOf({ executor, readCallback, handler }: Registered): object | undefined {
  return executor ?? readCallback ?? handler
}

/** Recognises our callbacks in what is registered from now on. Gives a function that says if that is going on. */
function followRegistrations(server: McpServer): () => boolean {
  let registering = 0
  for (const method of REGISTERING) {
    const register = server[method].bind(server) as (...params: unknown[]) => Registered
    const following = (...params: unknown[]): Registered => {
      registering += 1
      try {
        const registered = register(...params)
        follow(registered, params.at(-1) as object)
        return registered
      } finally {
        registering -= 1
      }
    }
    Object.assign(server, { [method]: following })
  }
  return () => registering > 0
}

function follow(registered: Registered, callback: object): void {
  let current = callback
  const recognise = (): void => {
    const run = runOf(registered)
    if (run !== undefined && callbacks.has(current)) runs.add(run)
  }
  const update = registered.update.bind(registered)
  registered.update = (updates) => {
    update(updates)
    current = updates.callback ?? current
    recognise()
  }
  recognise()
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

function handlersOf(inner: McpServer['server']): Map<string, unknown> | undefined {
  const { _requestHandlers: handlers } = inner as unknown as { _requestHandlers?: unknown }
  return handlers instanceof Map ? handlers : undefined
}

/** Puts ours around a handler that is set. False if it cannot be reached. */
function wrapExisting(inner: McpServer['server'], method: FlowMethod, registry?: Registry): boolean {
  const handlers = handlersOf(inner)
  const handler = handlers?.get(method)
  if (typeof handler !== 'function') return false
  handlers?.set(method, passing(inner, method, handler as Handler, registry))
  return true
}

function tooLate(method: FlowMethod): TypeError {
  const what = method.slice(0, method.indexOf('/'))
  return misuse(
    `This server has ${what} already, and Rondo cannot be mounted on it any more. Mount it before you register anything, ` +
      `and leave capabilities.${what} out of what the constructor is given: registering something adds it.`,
  )
}

function passing(
  server: McpServer['server'],
  method: FlowMethod,
  handler: Handler,
  registry?: Registry,
): Handler {
  return async (request, ctx) => {
    const passage: Passage = { server, method, request, registry }
    try {
      const result = await handler(request, Object.assign({ ...ctx }, { [PASSAGE]: passage }))
      if (passage.ending === undefined) return result
    } catch (error) {
      if (passage.ending === undefined) {
        passage.refused?.(error)
        throw error
      }
    }
    return passage.ending()
  }
}

/*
 * A `Reply` in the official server's words. What they would not let through is noted on the passage, which takes it to
 * the wire.
 */

type SdkResult = Readonly<Record<string, unknown>>

/** What a callback returns where the passage knows better. */
const DROPPED: SdkResult = errorResult('')

/** Throws the error of a reply that is one. */
export function toResult(reply: Reply, passage?: Passage): SdkResult {
  switch (reply.kind) {
    case 'complete':
    case 'cacheable':
      return reply.result
    case 'input_required':
      return toInputRequired(reply)
    case 'task':
      return toTaskResult(reply.task)
    case 'task_created':
      return endAs(passage, () => ({ resultType: 'task', ...toTaskHead(reply.task) }))
    case 'error':
      throw reply.error
  }
}

function toInputRequired({
  inputRequests,
  requestState,
}: Extract<Reply, { kind: 'input_required' }>): SdkResult {
  return { resultType: 'input_required', requestState, ...(inputRequests && { inputRequests }) }
}

function endAs(passage: Passage | undefined, ending: () => unknown): SdkResult {
  if (passage) passage.ending = ending
  return DROPPED
}

/** What their own check of states says when it refuses one; ours says the same. */
const INVALID_STATE = { reason: 'invalid_request_state' }

export function toWire({ code, rpc, sentence, data }: RondoError): ProtocolError {
  return new ProtocolError(rpc, sentence, code === 'STATE_INVALID' ? INVALID_STATE : data)
}

/** Ends the request with an error of the protocol. */
export function refuse(passage: Passage, error: RondoError | ProtocolError): SdkResult {
  return endAs(passage, () => {
    throw error instanceof ProtocolError ? error : toWire(error)
  })
}

/** An older client that cannot be asked, in the words of its revision: a result that says so, where there is one. */
export function refuseOlder(passage: Passage, { sentence }: RondoError): SdkResult {
  const advice = 'A client that can be asked needs a connection that stays open.'
  const message = `${sentence} ${advice}`
  if (passage.method === 'tools/call') return errorResult(message)
  return refuse(passage, new ProtocolError(ProtocolErrorCode.InternalError, message))
}
