/**
 * Extensions: what a package adds to a server with `server.use`, without touching the runtime. Pages and webhooks beside the
 * MCP endpoint (`http/route.ts`), methods of its own, and a step around every call (`carry/around.ts`).
 */

import type { CallFacts, CallReply } from '../carry/around.ts'
import type { EventDelivery, HookView } from '../carry/task/hook.ts'
import { misuse, RondoError } from '../errors.ts'
import { isRecord, isThenable } from '../lib/json.ts'
import { defineOptions, type OptionsOf, unchecked } from '../options.ts'
import type { Principal } from '../protocol/call.ts'
import { guardListeners } from '../replay/signal.ts'
import { openEnvelope, sealEnvelope } from '../seal/envelope.ts'
import { deriveFromRing } from '../seal/key-ring.ts'
import type { EngineStore, Store } from '../store/store.ts'
import type { Approver } from '../tool/approval.ts'
import { inTime } from '../tool/hook.ts'
import { pagesInDevelopment } from './development.ts'
import type { OpenHost } from './host.ts'
import type { Route, ServedExtensions } from './port.ts'

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
  /** Asks people for the decisions that handlers wait for with `ctx.approve`. One extension of a server may have it. */
  readonly approver?: Approver
  /** Called once, by `server.use` or `rondo.use`. The function that it returns runs when the server closes. */
  attach?(host: ExtensionHost): undefined | (() => void | Promise<void>)
}

/** Serves a method of an extension. Returns the result; throws a `RondoError` for an error. */
export type MethodHandler = (
  params: Readonly<Record<string, unknown>>,
  call: MethodCall,
) => Readonly<Record<string, unknown>> | Promise<Readonly<Record<string, unknown>>>

/** The request that a method of an extension serves. */
export interface MethodCall {
  readonly method: string
  /** Absent for an anonymous caller. */
  readonly principal?: Principal
  /** The name and version that the client reports. */
  readonly client?: { readonly name: string; readonly version: string; readonly title?: string }
  readonly protocolVersion: string
  /** Fires when the client disconnects or cancels. */
  readonly signal: AbortSignal
}

/** The services that a server offers to its extensions. */
export interface ExtensionHost {
  /** The server's name. */
  readonly name: string
  /** The audience of the server: what extensions keep in a store that several servers share belongs to it. */
  readonly tenant: string
  /** Absent if the server has no store. */
  readonly store?: Store | EngineStore
  /** The origin at which `rondo console` serves the routes, to be used instead of a configured one. Absent everywhere else. */
  readonly pages?: string
  /** Returns the time in milliseconds since the epoch. */
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
  /** Returns true if the server has a tool with this name now. */
  hasTool(name: string): boolean
  /** Delivers an event to a hook, like `server.deliver`. */
  deliver(hookId: string, event: unknown): Promise<EventDelivery>
  /** Returns what is known about a hook, like `server.hook`. */
  hook(hookId: string): Promise<HookView>
  /**
   * Derives 32 bytes from each of the server's keys, the one that seals first. They depend on the name of the extension, the purpose
   * and the audience, and are the same on every instance.
   */
  derive(purpose: string): Promise<readonly { readonly name: string; readonly secret: Uint8Array }[]>
}

/** The extensions of one server. */
export interface Extensions extends ServedExtensions {
  use(extension: Extension): void
  /** Refuses every later `use`: requests must not meet a server that changes. */
  freeze(): void
  /** Runs the functions that `attach` returned. Never rejects. */
  close(): Promise<void>
}

/** Shared by all copies of this package in a process: a file may import another one than the command that loads it. */
const OFFERED = Symbol.for('rondo.extensions')

interface Offered {
  readonly host: Pick<ExtendedHost, 'approver'>
  readonly routes: ReadonlyMap<string, Route>
}

/** Lets `approverOf` and `routesOf` find what the extensions of a server have. */
export function offerExtensions(server: object, offered: Offered): void {
  Object.defineProperty(server, OFFERED, { value: offered })
}

const offeredBy = (server: object): Offered | undefined => (server as { [OFFERED]?: Offered })[OFFERED]

/** Returns the part of an extension that asks people, if the server uses one. */
export function approverOf(server: object): Approver | undefined {
  return offeredBy(server)?.host.approver
}

/** Returns the routes of a server's extensions, by path. */
export function routesOf(server: object): ReadonlyMap<string, Route> {
  return offeredBy(server)?.routes ?? new Map()
}

/** The parts of a host that extensions use or add to. */
export type ExtendedHost = Pick<OpenHost, 'audience' | 'keys' | 'log' | 'steps' | 'store' | 'approver'> & {
  readonly platform: Pick<OpenHost['platform'], 'now'>
}

interface ExtensionsOptions {
  readonly host: ExtendedHost
  readonly name: string
  /** The reason for which an extension comes too late. */
  readonly late: string
  readonly hasTool: ExtensionHost['hasTool']
  readonly deliver: ExtensionHost['deliver']
  readonly hook: ExtensionHost['hook']
  readonly reserved: Paths
}

/** Paths that routes must not hide, by what they serve. */
type Paths = Readonly<Record<string, string | undefined>>

interface Owned<T> {
  readonly owner: string
  readonly value: T
}

const PARTS = defineOptions('server.use', {
  name: unchecked(),
  routes: unchecked(),
  methods: unchecked(),
  around: unchecked(),
  approver: unchecked(),
  attach: unchecked(),
} satisfies OptionsOf<Extension>)

export function createExtensions(options: ExtensionsOptions): Extensions {
  const { host, late, reserved } = options
  const names = new Set<string>()
  const routes = new Map<string, Route>()
  const owners = new Map<string, string>()
  const methods = new Map<string, Owned<MethodHandler>>()
  const closers: Owned<() => void | Promise<void>>[] = []
  let frozen = false

  const assertVisible = (paths: Paths, served: ReadonlyMap<string, string> = owners): void => {
    for (const [what, path] of Object.entries(paths)) {
      for (const [route, owner] of served) {
        if (path !== undefined && isBelow(path, route))
          throw misuse(
            `The route ${route} of the extension "${owner}" hides ${path}, ${what}: choose another path.`,
          )
      }
    }
  }

  function assertRoute(owner: string, path: string, handler: unknown): void {
    if (!ROUTE.test(path)) {
      throw misuse(
        `A route is a path such as /approvals, without a slash at its end; the extension "${owner}" has ${JSON.stringify(path)}.`,
      )
    }
    assertHandler(owner, `route ${path}`, handler)
    for (const [other, of] of owners) {
      if (of !== owner && (isBelow(other, path) || isBelow(path, other)))
        throw misuse(
          `The extensions "${of}" and "${owner}" both serve ${isBelow(path, other) ? path : other}.`,
        )
    }
  }

  function assertMethod(owner: string, method: string, handler: unknown): void {
    assertHandler(owner, `method ${method}`, handler)
    const [namespace = ''] = method.split('/', 1)
    if (!METHOD.test(method)) {
      throw misuse(
        `A method has a namespace and a name, such as vendor/thing; the extension "${owner}" has ${JSON.stringify(method)}.`,
      )
    }
    if (PROTOCOL_NAMESPACES.has(namespace)) {
      throw misuse(
        `"${namespace}/…" belongs to the protocol: the extension "${owner}" needs another name than ${method}.`,
      )
    }
    const other = methods.get(method)
    if (other)
      throw misuse(`The extensions "${other.owner}" and "${owner}" both define the method ${method}.`)
  }

  return {
    use(extension) {
      const owner = nameOf(extension)
      if (frozen) throw misuse(late)
      if (names.has(owner)) throw misuse(`The extension "${owner}" is already in use.`)
      const { routes: ownRoutes = {}, methods: ownMethods = {} } = extension
      for (const [path, route] of Object.entries(ownRoutes)) assertRoute(owner, path, route)
      for (const [method, handler] of Object.entries(ownMethods)) assertMethod(owner, method, handler)
      if (extension.around !== undefined) assertHandler(owner, 'step around', extension.around)
      if (extension.attach !== undefined) assertHandler(owner, 'function attach', extension.attach)
      if (extension.approver !== undefined && host.approver !== undefined)
        throw misuse(`Another extension asks for approvals already: "${owner}" cannot do so too.`)
      assertVisible(reserved, new Map(Object.keys(ownRoutes).map((path) => [path, owner])))
      // Whatever throws has left nothing of the extension behind.
      const close = attached(extension, hostOf(options, owner))
      if (close) closers.push({ owner, value: close })
      names.add(owner)
      for (const [path, route] of Object.entries(ownRoutes)) {
        routes.set(path, route)
        owners.set(path, owner)
      }
      for (const [method, value] of Object.entries(ownMethods)) methods.set(method, { owner, value })
      const { around, approver } = extension
      if (around) host.steps.push({ name: owner, run: (call, next) => around.call(extension, call, next) })
      if (approver) host.approver = approver
    },
    freeze() {
      frozen = true
    },
    routes,
    assertVisible,
    async serve(call, principal, line) {
      const method = methods.get(call.method)
      if (!method) return { kind: 'error', error: new RondoError('PEER_METHOD') }
      const { clientInfo: client, protocolVersion } = call
      const aborting = new AbortController()
      guardListeners(aborting.signal, (error) =>
        host.log({ event: 'extension', extension: method.owner, message: LISTENER_THREW, error }),
      )
      const stop = line.onClose(() => aborting.abort())
      try {
        const { signal } = aborting
        const facts: MethodCall = { method: call.method, principal, client, protocolVersion, signal }
        const result: unknown = await method.value(call.args, facts)
        if (isRecord(result)) return { kind: 'complete', result }
        throw misuse(`The method ${call.method} of the extension "${method.owner}" must return an object.`)
      } finally {
        stop()
      }
    },
    async close() {
      for (const { owner, value } of closers.splice(0).reverse()) {
        try {
          const closing = async (): Promise<void> => value()
          await inTime(closing(), CLOSE_MS, 'The function that attach returned')
        } catch (error) {
          host.log({ event: 'extension', extension: owner, message: 'The extension failed to close', error })
        }
      }
    },
  }
}

const LISTENER_THREW = 'A listener of the signal of a method threw'

/** How long the server waits for an extension that closes. */
const CLOSE_MS = 10_000

function attached(extension: Extension, host: ExtensionHost): (() => void | Promise<void>) | undefined {
  const close: unknown = extension.attach?.(host)
  if (close === undefined || typeof close === 'function') return close as () => void
  // Nobody else awaits it.
  if (isThenable(close)) Promise.resolve(close).catch(() => {})
  throw misuse(
    `attach of the extension "${extension.name}" must return a function that closes it, or nothing, and not a promise.`,
  )
}

function nameOf(extension: unknown): string {
  PARTS.assert(extension, 'An extension')
  const { name } = (extension ?? {}) as Partial<Extension>
  if (typeof name === 'string' && /^[\w.@/-]{1,64}$/.test(name)) return name
  throw misuse(
    'An extension needs a name of letters, digits, dots and dashes: server.use({ name: "approvals", … })',
  )
}

function assertHandler(owner: string, what: string, handler: unknown): void {
  if (typeof handler !== 'function')
    throw misuse(`The ${what} of the extension "${owner}" must be a function.`)
}

const ROUTE = /^(?:\/[\w.~-]*[\w~-])+$/
const METHOD = /^[\w.-]+(?:\/[\w.-]+)+$/

/** Namespaces of the protocol, in all of its revisions. */
const PROTOCOL_NAMESPACES: ReadonlySet<string> = new Set([
  'completion',
  'elicitation',
  'logging',
  'notifications',
  'prompts',
  'resources',
  'roots',
  'sampling',
  'server',
  'subscriptions',
  'tasks',
  'tools',
])

function isBelow(path: string, route: string): boolean {
  return path === route || path.startsWith(`${route}/`)
}

/** Longer sealed text is refused unread. */
const MAX_SEALED = 16 * 1024 * 1024

function hostOf({ host, name, hasTool, deliver, hook }: ExtensionsOptions, extension: string): ExtensionHost {
  const placeOf = (purpose: string): string =>
    JSON.stringify(['extension', extension, purpose, host.audience])
  return {
    name,
    tenant: host.audience,
    store: host.store,
    pages: pagesInDevelopment(),
    now: host.platform.now,
    log: (message, error) => host.log({ event: 'extension', extension, message, error }),
    async seal(purpose, data) {
      await host.keys.ready()
      return sealEnvelope(host.keys.ring, placeOf(purpose), data).token
    },
    async open(purpose, sealed) {
      await host.keys.ready()
      const opened = openEnvelope(host.keys.ring, placeOf(purpose), sealed, MAX_SEALED)
      return opened.kind === 'open' ? opened.plaintext : undefined
    },
    hasTool,
    deliver,
    hook,
    async derive(purpose) {
      await host.keys.ready()
      return deriveFromRing(host.keys.ring, placeOf(purpose))
    },
  }
}
