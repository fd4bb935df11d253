/**
 * `createServer`: puts the registry, the service and the entrances together.
 */

import { deliverEvent, type EventDelivery, type HookView, viewHook } from '../carry/task/hook.ts'
import { createTaskTools } from '../carry/task/tools.ts'
import { misuse } from '../errors.ts'
import { batchLogLines } from '../log/standard-error.ts'
import type { Listing } from '../protocol/call.ts'
import type { Codec } from '../protocol/codec.ts'
import { createOlder } from '../session/service.ts'
import { createRegistry, type Declarations, type Registry } from '../tool/registry.ts'
import { heldInDevelopment, inDevelopment } from './development.ts'
import { onRejections, onSignals } from './drain.ts'
import { createExtensions, type Extension, type Extensions, offerExtensions } from './extension.ts'
import { type CallerLog, createCallerLog, createRefusalLog } from './failure.ts'
import { createFleet, type Fleet, shareChanges } from './fleet.ts'
import { offerForwarding } from './forwarding.ts'
import { createSlowHandlers } from './heartbeat.ts'
import { createHost, createTaskWork, type OpenHost } from './host.ts'
import { refusalCode } from './http/authenticate.ts'
import { createExchange } from './http/exchange.ts'
import { BODY_OPTIONS, createFetchHandler, type FetchHandler } from './http/fetch.ts'
import {
  assertListenOptions,
  createReadiness,
  type Listening,
  type ListenOptions,
  listen,
  portOfEnvironment,
} from './http/listen.ts'
import { createNodeHandler, type NodeHandler, type NodeHandlerOptions } from './http/node.ts'
import { createChangeBus, guardedBus } from './http/subscription.ts'
import { createLoads } from './limits.ts'
import { REVISIONS, readServerOptions, type ServerOptions } from './options.ts'
import type { NotReady, Service } from './port.ts'
import { createService, type OpenService } from './service.ts'
import { assertStdioOptions, type StdioOptions, serveStdio } from './stdio/stdio.ts'

export interface Server extends Declarations {
  /**
   * Adds an [extension](docs/guide/extensions.md): routes beside the MCP endpoint, methods of its own, a step around
   * every call. Add extensions before the server serves; the first is the outermost.
   */
  use(extension: Extension): void
  /** Notifies subscribers that a resource has new content. */
  updated(uri: string): void
  /**
   * Delivers an event to a [hook](docs/guide/time-and-events.md), on any instance that shares the store and the keys.
   * The first event wins; a second is reported as a duplicate. Rejects only if the store fails, or the tool's `accept`.
   */
  deliver(hookId: string, event: unknown): Promise<EventDelivery>
  /**
   * Returns the [state of a hook](docs/guide/time-and-events.md#what-a-page-can-know), for a page that its user opens
   * with the id. Rejects only if the store fails.
   */
  hook(hookId: string): Promise<HookView>
  /** The web-standard entrance: for Hono, Workers, Deno, Bun, Next.js. */
  readonly fetch: FetchHandler
  /**
   * Serves over node:http, on loopback by default. The default port is the environment variable `PORT`, else 3000.
   * Resolves when calls can be served: keys loaded, store opened and migrated, port bound. Rejects with what to do
   * otherwise. @see docs/reference/options.md#serverlisten
   */
  listen(options?: Pick<ListenOptions, 'port' | 'host' | 'path'> & Partial<ListenOptions>): Promise<Listening>
  /** Returns a `(req, res)` handler, for Express and other servers over node:http. */
  nodeHandler(options?: NodeHandlerOptions): NodeHandler
  /** Serves one client over stdin and stdout. Resolves when the client has gone. */
  stdio(options?: StdioOptions): Promise<void>
  /** Resolves with the reason why this instance takes no calls at the moment, or with undefined if it does: for a health check of your own. */
  notReady(): Promise<NotReady | undefined>
  /** Hands calls in flight back at their next step or question from now on, and refuses new calls. */
  drain(): void
  /** Drains, ends everything that is open, and stops timers. */
  close(): Promise<void>
}

function toService(
  options: ServerOptions & { pageSize: number },
  host: OpenHost,
  registry: Registry,
  fleet: Fleet | undefined,
  extensions: Extensions,
  instructions: () => string | undefined,
  stopping: Pick<Service, 'leave' | 'drain' | 'onClosed' | 'readiness'>,
): OpenService {
  const { name, version, title, pageSize } = options
  const scope = options.authenticate ? 'private' : 'public'
  const serverInfo = title === undefined ? { name, version } : { name, title, version }
  const onError = (error: unknown): void =>
    host.log({ event: 'warning', message: 'Notifying a subscriber of a change failed', error })
  const changes = guardedBus(options.changes ?? shareChanges(createChangeBus(onError), fleet), onError)
  const { codecs } = host
  const shared = { host, registry, serverInfo, instructions, pageSize, changes, codecs, extensions }
  const logRefusal = createRefusalLog(host.log, host.platform.now)
  return createService({
    ...shared,
    listCache: options.listCache ?? { ttlMs: 60_000, scope },
    older: createOlder({
      ...shared,
      fleet,
      sessions: options.sessions || {},
      attach: REVISIONS.attach(options),
    }),
    loads: createLoads(options),
    slow: createSlowHandlers(host),
    onRefused(code, status) {
      host.observer?.count?.({ kind: 'refused', code, status })
      logRefusal(code, status)
    },
    ...stopping,
  })
}

/** Declares in the registry, and reports each change. */
function declaring(registry: Registry, changed: (listing: Listing) => void): Declarations {
  return {
    tool(name, definition, handler) {
      registry.tool(name, definition, handler)
      changed('tools')
    },
    prompt(name, definition, handler) {
      registry.prompt(name, definition, handler)
      changed('prompts')
    },
    resource(uri, definition, handler) {
      registry.resource(uri, definition, handler)
      changed('resources')
    },
    template(uriTemplate, definition, handler) {
      registry.template(uriTemplate, definition, handler)
      changed('templates')
    },
    remove(listing, name) {
      const removed = registry.remove(listing, name)
      if (removed) changed(listing)
      return removed
    },
  }
}

/**
 * Creates a server. It serves nothing until `listen`, `stdio`, `fetch` or `nodeHandler` is used.
 *
 * @example
 * ```ts
 * const server = createServer({ name: 'tables', version: '1.0.0' })
 * server.tool('book', { description: 'Books a table' }, async (_, ctx) => {
 *   const schema = z.object({ seat: z.enum(['inside', 'outside']) })
 *   const { seat } = await ctx.ask('seat', { message: 'Where?', schema })
 *   return `Booked: ${seat}.`
 * })
 * ```
 */
export function createServer(options: ServerOptions): Server {
  return createServerWith(REVISIONS.codecs, options)
}

/** Creates a server that speaks these revisions, unless `eras` excludes them. */
export function createServerWith(codecs: readonly Codec[], given: ServerOptions): Server {
  const options = inDevelopment(readServerOptions(given))
  const host = createHost({ ...options, audience: options.audience ?? options.name }, undefined, codecs)
  const registry = createRegistry({
    store: options.store !== undefined,
    permits: options.store?.permits !== undefined,
    bounds: host.limits,
    dropUnknownArguments: options.dropUnknownArguments,
    taskTools: host.tasks?.tools ? createTaskTools(host, host.tasks) : undefined,
    warn: options.dev ? (message) => host.log({ event: 'warning', message }) : undefined,
  })
  const work = createTaskWork(host, ({ call }) => registry.find(call.method, call.target), options)
  const onError = (error: unknown): void =>
    host.log({ event: 'warning', message: 'A request failed without a response', error })
  const readiness = createReadiness(host, options.store)
  const open = new Set<Listening>()
  const { now } = host.platform
  const callers = createCallerLog(host.log, now)
  let leftAt: number | undefined
  let closed = 0
  const leave = (): void => {
    readiness.leave()
    if (leftAt !== undefined) return
    callers.summarize()
    leftAt = now()
    host.log({ event: 'drain', phase: 'begun' })
  }
  const drain = (): void => {
    leave()
    host.drain()
    work.stop().catch(onError)
  }
  let drained = false
  const logDrained = (): void => {
    if (drained) return
    drained = true
    host.log({ event: 'drain', phase: 'finished', ms: now() - (leftAt ?? now()) })
  }
  const onClosed = async (): Promise<void> => {
    closed += 1
    if (closed < open.size) return
    await work.stop().catch(onError)
    await extensions.close()
    logDrained()
  }
  const fleet = createFleet(host, host.store)
  const deliver: Server['deliver'] = async (hookId, event) => {
    if (!host.tasks)
      throw misuse('server.deliver needs a store, because only tasks have hooks: createServer({ store })')
    return deliverEvent(host, host.tasks, (name) => registry.find('tools/call', name), hookId, event)
  }
  const hook: Server['hook'] = async (hookId) => {
    if (!host.tasks)
      throw misuse('server.hook needs a store, because only tasks have hooks: createServer({ store })')
    return viewHook(host, host.tasks, hookId)
  }
  const metadata = options.authenticate?.resource?.paths ?? []
  const extensions = createExtensions({
    host,
    name: options.name,
    late: 'server.use must come before listen, stdio, nodeHandler and the first call of fetch.',
    hasTool: (name) => registry.find('tools/call', name) !== undefined,
    deliver,
    hook,
    reserved: Object.fromEntries(metadata.map((path) => [`the OAuth metadata at ${path}`, path])),
  })
  let { instructions } = options
  const service = toService(options, host, registry, fleet, extensions, () => instructions, {
    leave,
    drain,
    onClosed,
    readiness,
  })
  const onRefused: CallerLog['refused'] = (status, ...why) => {
    host.observer?.count?.({ kind: 'refused', code: refusalCode(status), status })
    callers.refused(status, ...why)
  }
  const http = { ...options, onError, onRefused }
  const { sessions } = options
  const exchange = createExchange(service, { ...http, stateless: sessions === false })
  const fetchExchange = createExchange(service, { ...http, stateless: !sessions, isolated: true })
  const fetch = createFetchHandler(fetchExchange, options)
  const onRejection = (error: unknown): void =>
    host.log({ event: 'warning', message: 'Unhandled rejection: await every promise', error })
  let forgetSignals = (): void => {}
  let forgetRejections = (): void => {}
  const forgetProcess = (): void => {
    forgetSignals()
    forgetRejections()
  }
  /** Listeners do this by themselves; it is done here for a server without one. */
  const stopWork = async (): Promise<void> => {
    if (open.size === 0) leave()
    await work.stop()
    if (open.size > 0) return
    await extensions.close()
    logDrained()
  }
  const start = (): void => {
    extensions.freeze()
    work.start()
    fleet?.start()
  }
  /** On a signal, the process exits when this work has stopped too. */
  const startWork = ({ signals, rejections }: { signals?: boolean; rejections?: boolean } = {}): void => {
    start()
    forgetProcess()
    if (signals !== false) forgetSignals = onSignals(stopWork)
    if (rejections !== false) forgetRejections = onRejections(onRejection)
  }

  /** Opens what every call needs, so that what is wrong with it stops the start and not the first call. */
  const prepare = async (): Promise<void> => {
    await host.keys.ready()
    const { name, version, store } = options
    const revisions = [...host.codecs.requestVersions, ...host.codecs.sessionVersions]
    const { names: keys } = host.keys.ring
    const kind = store === undefined ? 'none' : (store.kind ?? 'custom')
    host.log({ event: 'start', name, version, revisions, keys, store: kind })
    await store?.ready()
  }

  const server: Server = {
    ...declaring(registry, service.changed),
    updated: (uri) => service.changes.publish({ kind: 'resource', uri }),
    deliver,
    use: extensions.use,
    hook,
    fetch(request) {
      start()
      return fetch(request)
    },
    nodeHandler(handlerOptions) {
      BODY_OPTIONS.assert(handlerOptions)
      batchLogLines()
      start()
      return createNodeHandler(exchange, { ...options, ...handlerOptions })
    },
    notReady: () => readiness.check(),
    async listen(listenOptions) {
      assertListenOptions(listenOptions)
      await heldInDevelopment()
      if (service.state.draining) {
        throw misuse(
          'This server was closed or drained, and refuses every call: create another one to listen again.',
        )
      }
      const port = listenOptions?.port ?? portOfEnvironment()
      const given = { ...http, ...listenOptions, port }
      const began = now()
      batchLogLines()
      await prepare()
      const listening = await listen(service, { ...given, stateless: sessions === false })
      open.add(listening)
      startWork(listenOptions)
      host.log({ event: 'ready', address: listening.url, ms: now() - began })
      return listening
    },
    async stdio(stdioOptions) {
      assertStdioOptions(stdioOptions)
      await heldInDevelopment()
      const began = now()
      await prepare()
      startWork(stdioOptions)
      host.log({ event: 'ready', address: 'stdio', ms: now() - began })
      await serveStdio(service, { onError, heartbeatMs: options.heartbeatMs, ...stdioOptions }).done
      // The process is about to exit, unless it serves other clients.
      if (open.size > 0) return
      forgetProcess()
      await stopWork()
      fleet?.stop()
    },
    drain: service.drain,
    async close() {
      // Listeners drain by themselves, after their delay.
      if (open.size === 0) service.drain()
      else service.leave?.()
      forgetProcess()
      await Promise.all(Array.from(open, (listening) => listening.close()))
      await Promise.all([exchange.endStreams(), fetchExchange.endStreams()])
      await work.stop()
      await extensions.close()
      if (open.size === 0) logDrained()
      fleet?.stop()
      host.close()
    },
  }
  offerExtensions(server, { host, routes: extensions.routes })
  const forwardedNames = new Set<string>()
  offerForwarding(server, {
    declare(listing, name, forwarded) {
      if (forwardedNames.has(`${listing} ${name}`)) registry.remove(listing, name)
      registry.forward(listing, name, forwarded)
      forwardedNames.add(`${listing} ${name}`)
      service.invalidate(listing)
    },
    remove(listing, name) {
      if (!forwardedNames.delete(`${listing} ${name}`)) return
      registry.remove(listing, name)
      service.invalidate(listing)
    },
    changed: (listing) => service.changed(listing),
    lists(rowsFor) {
      host.rowsFor = rowsFor
    },
    tasks(tasks) {
      host.forwarded = tasks
      service.changed('tools')
    },
    instruct(text) {
      instructions = text
    },
    warn: (message) => host.log({ event: 'warning', message }),
  })
  return server
}
