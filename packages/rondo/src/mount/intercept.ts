/**
 * Passes to our callbacks the facts that the official server leaves out: which tool was called, with which arguments, on
 * which server. A state is bound to all of it, so the intercepted request travels beside the official context.
 *
 * Wrapping: requests pass through our handler before the official one, whose check of states comes later. The official
 * handlers are in a map that is not public. If it is missing, handlers are wrapped as they are set, and a server that
 * already has some is refused.
 * Ending: the official server turns what a tool throws into a result and rejects results of other kinds. What must reach
 * the client unchanged is left on the intercepted request, and ends the request outside of the official `catch`.
 * Recognising: a request is for a callback of ours only if the function that the official server is about to run was made
 * from one. A name, a prefix or a shape proves nothing.
 */

import type { McpServer, ServerContext } from '@modelcontextprotocol/server'
import { misuse } from '../errors.ts'
import type { FlowMethod } from '../protocol/call.ts'
import { validateStandard } from '../tool/schema/standard.ts'
import type { RequestReading, ScopeChallenge } from './scope.ts'

const INTERCEPTED: unique symbol = Symbol('rondo.intercepted')
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
export interface Intercepted {
  readonly server: McpServer['server']
  readonly method: FlowMethod
  readonly request: FlowRequest
  /** The place in which the official server finds the callback. Absent if the method has a handler that is not the official one. */
  readonly registry?: Registry
  /** Ends the request, by returning or throwing, whatever the official server makes of the callback's value. */
  ending?: () => unknown
  /** Called if the official server rejects the result. */
  refused?: (error: unknown) => void
}

type Handler = (request: FlowRequest, ctx: ServerContext) => unknown
type SetHandler = (method: string, ...rest: unknown[]) => void

/** The part of what registering returns that tells which function runs. */
interface Registered {
  readonly executor?: object
  readonly readCallback?: object
  readonly handler?: object
  readonly resourceTemplate?: { readonly uriTemplate: { match(uri: string): unknown } }
  readonly inputSchema?: unknown
  readonly argsSchema?: unknown
  scopeChallenge?: ScopeChallenge
  update(updates: { readonly callback?: object }): void
}
type Registrations = Readonly<Record<string, Registered>>

/** The members in which an `McpServer` keeps its registrations; not part of its public interface. */
interface Registry {
  readonly _registeredTools?: Registrations
  readonly _registeredPrompts?: Registrations
  readonly _registeredResources?: Registrations
  readonly _registeredResourceTemplates?: Registrations
}

const mounted = new WeakSet<object>()
/** Our callbacks, and the functions that the official server made from them. */
const callbacks = new WeakSet<object>()
const runs = new WeakSet<object>()

/** Makes the scope challenge of a callback, for a registration of it. */
type MakeChallenge = (reading: RequestReading) => ScopeChallenge

const challenges = new WeakMap<object, MakeChallenge>()

/** Marks a callback, so that it is recognised when it is registered. `challenge`: the scopes that it needs. */
export function markAsOurs(callback: object, challenge?: MakeChallenge): void {
  callbacks.add(callback)
  if (challenge) challenges.set(callback, challenge)
}

/** Prepares a server for our callbacks. Calling it again changes nothing. */
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
    // A handler that is not the official one does not use the registrations, so they say nothing about its requests.
    if (flow !== undefined) wrapExisting(inner, flow, isRegistering() ? registry : undefined)
  }
  inner.setRequestHandler = setPassing as typeof inner.setRequestHandler
  return server
}

/** True if the callback that a request is about to reach is one of ours. */
export function isForUs(ctx: ServerContext): boolean {
  const { [INTERCEPTED]: intercepted } = ctx as { [INTERCEPTED]?: Intercepted }
  const registered = intercepted && findRegistered(intercepted)
  const run = registered && runOf(registered)
  return run !== undefined && runs.has(run)
}

/** Finds the registration for a request as the official server does. */
function findRegistered({ registry = {}, method, request: { params } }: Intercepted): Registered | undefined {
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

/** The function that runs. The official server makes a new one whenever a registration is updated. */
function runOf({ executor, readCallback, handler }: Registered): object | undefined {
  return executor ?? readCallback ?? handler
}

/** Recognises our callbacks in what is registered from now on. Returns a function that tells if a registration is under way. */
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
  let own = registered.scopeChallenge
  const recognise = (): void => {
    const run = runOf(registered)
    if (run !== undefined && callbacks.has(current)) runs.add(run)
    const make = challenges.get(current)
    registered.scopeChallenge = make ? withOwn(registered, make, own) : own
  }
  const update = registered.update.bind(registered)
  registered.update = (updates) => {
    registered.scopeChallenge = own
    update(updates)
    own = registered.scopeChallenge
    current = updates.callback ?? current
    recognise()
  }
  recognise()
}

/** Our challenge and the author's own, if there is one: all scopes go into one. */
function withOwn(
  registered: Registered,
  make: MakeChallenge,
  own: ScopeChallenge | undefined,
): ScopeChallenge {
  const schema = (registered.inputSchema ?? registered.argsSchema) as never
  const ours = make({
    resourceTemplate: registered.resourceTemplate,
    async read(args) {
      if (schema === undefined) return args
      const checked = await validateStandard(schema, args)
      return checked.ok ? checked.value : undefined
    },
  })
  return async (context) => {
    const [theirs, needed] = [await own?.(context), await ours(context)]
    if (theirs === undefined || needed === undefined) return theirs ?? needed
    const [first, ...rest] = new Set([...theirs.scopes, ...needed.scopes])
    return first === undefined ? undefined : { ...theirs, scopes: [first, ...rest] }
  }
}

export function interceptedOf(ctx: ServerContext): Intercepted {
  const { [INTERCEPTED]: intercepted } = ctx as { [INTERCEPTED]?: Intercepted }
  if (intercepted) return intercepted
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

/** Wraps a handler that is already set. Returns false if it cannot be reached. */
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
    `Rondo cannot be mounted on this server, which already has ${what}. Mount it before you register anything, and ` +
      `leave capabilities.${what} out of the constructor's options: registering something adds it.`,
  )
}

function passing(
  server: McpServer['server'],
  method: FlowMethod,
  handler: Handler,
  registry?: Registry,
): Handler {
  return async (request, ctx) => {
    const intercepted: Intercepted = { server, method, request, registry }
    try {
      const result = await handler(request, Object.assign({ ...ctx }, { [INTERCEPTED]: intercepted }))
      if (intercepted.ending === undefined) return result
    } catch (error) {
      if (intercepted.ending === undefined) {
        intercepted.refused?.(error)
        throw error
      }
    }
    return intercepted.ending()
  }
}
