/**
 * `server.listen`: serves one path over node:http, on loopback by default. A request that does not arrive in time is cut
 * off (T20). Closing drains: calls in flight get a grace period, subscriptions end, and connections are cut afterwards.
 * The paths that report health are served here too.
 */

import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import { type AddressInfo, Server as NetServer } from 'node:net'
import type { FlowHost } from '../../carry/host.ts'
import { misuse, RondoError } from '../../errors.ts'
import { quietly } from '../../lib/quietly.ts'
import { defineOptions, flag, number, type OptionsOf, text, unchecked } from '../../options.ts'
import type { EngineStore, Store } from '../../store/store.ts'
import { createStop, onSignals } from '../drain.ts'
import { capConnections } from '../limits.ts'
import { HTTP_OPTIONS, type HttpOptions } from '../options.ts'
import type { NotReady, Readiness, Service } from '../port.ts'
import { createExchange } from './exchange.ts'
import { createNodeHandler, type NodeHandler, type NodeHandlerOptions } from './node.ts'

export interface ListenOptions extends HttpOptions, NodeHandlerOptions {
  /** The port; 0 picks a free one. Default: the environment variable `PORT`, else 3000. */
  port?: number
  /** The address to listen on, which is also an allowed host. Default: `127.0.0.1`. */
  host?: string
  /** The path of the endpoint; `*` serves every path. Default: `/mcp`. */
  path?: string
  /** How long a client may take to send its headers. Default: 10 s. */
  headersTimeoutMs?: number
  /** How long a client may take to send its whole request. Default: 30 s. */
  requestTimeoutMs?: number
  /** How long a connection may be idle; behind a load balancer, set it longer than the load balancer keeps idle connections. Default: 10 s. */
  keepAliveTimeoutMs?: number
  /** Total size of the headers of a request. Default: 16 KiB. */
  maxHeaderBytes?: number
  /** Concurrent connections; further ones are closed at once. Default: 4,096. */
  maxConnections?: number
  /** Concurrent connections from one address; do not set it behind a proxy, where all have the same address. Default: no limit. */
  maxConnectionsPerAddress?: number
  /** Drains on SIGTERM and SIGINT, then ends the process. Default: `true`. */
  signals?: boolean
  /**
   * Logs unhandled rejections; `false` lets them end the process. Default: `true`.
   *
   * @see docs/decisions/0012-unhandled-rejections.md
   */
  rejections?: boolean
  /**
   * Releases the port as soon as the server begins to stop, so that its replacement on this machine can use it; open
   * connections are served to their end. With `false`, new connections from a load balancer get 503. Default: `false`.
   */
  releasePort?: boolean
  /** How long a drain waits for calls in flight. Default: 10 s. */
  graceMs?: number
  /** A path that responds 200 while this process runs, such as `/healthz`. Default: none. */
  health?: string
  /**
   * A path that responds 200 while this instance can take calls, and 503 while it drains, has no keys or its store does not respond,
   * such as `/readyz`. Default: none.
   */
  ready?: string
  /** How long `ready` reports 503 before the server refuses calls, so that a load balancer can react. Default: 0. */
  drainDelayMs?: number
}

export interface Listening {
  readonly host: string
  readonly port: number
  /** The URL of the endpoint. */
  readonly url: string
  /** Drains, then closes. Resolves when the port is released. */
  close(): Promise<void>
}

export async function listen(service: Service, given: ListenOptions = {}): Promise<Listening> {
  const options = LISTEN.pick(given)
  const { host, path } = options
  const exchange = createExchange(service, options, host)
  assertPaths(options, path)
  service.extensions?.assertVisible({
    'the MCP endpoint': path === '*' ? undefined : path,
    'the path of health': options.health,
    'the path of ready': options.ready,
  })
  const handler = createNodeHandler(exchange, options, path === '*' ? undefined : path)
  const server = createServer(serverOptions(options), withHealth(handler, options, service.readiness))
  server.maxConnections = options.maxConnections
  if (options.maxConnectionsPerAddress !== undefined) capConnections(server, options.maxConnectionsPerAddress)
  // Without a listener, a connection that cannot be accepted would end the process.
  const onError = quietly(options.onError)
  const { port } = await bound(server, options.port ?? 3000, host)
  server.on('error', onError)
  const stop = createStop({
    leave: service.leave,
    delayMs: options.drainDelayMs,
    begin() {
      exchange.drain()
      if (options.releasePort) release(server)
    },
    idle: () => exchange.idle(),
    async finish() {
      await exchange.endStreams()
      await closed(server)
      await service.onClosed?.()
    },
    graceMs: options.graceMs,
  })
  const forget = options.signals ? onSignals(stop) : () => {}
  return {
    host,
    port,
    url: `http://${host.includes(':') ? `[${host}]` : host}:${port}${path === '*' ? '/' : path}`,
    close() {
      forget()
      return stop()
    },
  }
}

const PORT = 'a whole number from 0 to 65535, where 0 chooses a free port'

/** A program may pass the text of an environment variable, which Node accepts. */
function isPort(port: unknown): boolean {
  const value = typeof port === 'string' && /^\d+$/.test(port) ? Number(port) : port
  return typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= 65_535
}

const LISTEN = defineOptions('listen', {
  ...HTTP_OPTIONS,
  port: { initial: undefined, mustBe: (value: unknown) => (isPort(value) ? undefined : PORT) },
  host: text('127.0.0.1'),
  path: unchecked<string>('/mcp'),
  headersTimeoutMs: number(10_000),
  requestTimeoutMs: number(30_000),
  // Twice the time that clients commonly keep a connection, so that none of them reuses one that is closing.
  keepAliveTimeoutMs: number(10_000),
  maxHeaderBytes: number(16_384),
  maxConnections: number(4_096),
  maxConnectionsPerAddress: number(),
  signals: flag(true),
  rejections: flag(true),
  releasePort: flag(false),
  graceMs: number(10_000),
  health: unchecked(),
  ready: unchecked(),
  drainDelayMs: number(0),
} satisfies OptionsOf<ListenOptions>)

type ListenSettings = ReturnType<typeof LISTEN.read>

/** Throws if `server.listen` does not have an option or cannot use its value, before anything is opened. */
export function assertListenOptions(given: ListenOptions | undefined): void {
  LISTEN.assert(given)
}

/** The port that the environment names, if it does. */
export function portOfEnvironment(): number | undefined {
  const port = process.env.PORT
  if (port === undefined || port === '') return undefined
  if (isPort(port)) return Number(port)
  throw misuse(`The environment variable PORT must be ${PORT}; got ${JSON.stringify(port)}.`)
}

function serverOptions(options: ListenSettings): Parameters<typeof createServer>[0] {
  const { headersTimeoutMs: headersTimeout, requestTimeoutMs: requestTimeout } = options
  return {
    headersTimeout: Math.min(headersTimeout, requestTimeout),
    requestTimeout,
    // How often Node looks for late requests. Its default of 30 s would triple the limit.
    connectionsCheckingInterval: Math.max(50, Math.min(2_000, headersTimeout / 4, requestTimeout / 4)),
    keepAliveTimeout: options.keepAliveTimeoutMs,
    maxHeaderSize: options.maxHeaderBytes,
  }
}

/** Connections that wait to be accepted. The system may allow fewer; Node's default of 511 resets the others in a burst. */
const BACKLOG = 4_096

function bound(server: Server, port: number, host: string): Promise<AddressInfo> {
  return new Promise((resolve, reject) => {
    server.once('error', (error) => reject(toListenError(error, port, host)))
    server.listen(port, host, BACKLOG, () => {
      server.removeAllListeners('error')
      resolve(server.address() as AddressInfo)
    })
  })
}

/** Says in one sentence what to do about an address that cannot be used. */
export function toListenError(cause: Error, port: number, host: string): Error {
  const { code = '' } = cause as { code?: string }
  const advice: Readonly<Record<string, string>> = {
    EADDRINUSE: `Port ${port} on ${host} is in use: stop the other process, or choose another port with PORT or listen({ port })`,
    EACCES: `This process may not listen on port ${port}: choose one above 1023 with PORT or listen({ port })`,
    EADDRNOTAVAIL: `${host} is not an address of this machine: pass another with listen({ host }), or leave it out for loopback`,
    ENOTFOUND: `The name ${host} is unknown: pass an address of this machine with listen({ host })`,
  }
  // EAI_AGAIN: no name server answers.
  const known = advice[code === 'EAI_AGAIN' ? 'ENOTFOUND' : code]
  const detail = known ?? `Cannot listen on port ${port} of ${host} (${code})`
  const error = new RondoError('SERVER_LISTEN', detail, known === undefined ? { cause } : {})
  // It is thrown by an event of Node: the stack says nothing, and would hide the sentence.
  error.stack = `${error.name}: ${error.message}`
  return error
}

/** Stops listening. Unlike `close` of `node:http` it keeps idle connections open, since a request may be on its way. */
function release(server: Server): void {
  NetServer.prototype.close.call(server)
}

/** Connections that are still open after half a second belong to clients that do not read: they are cut. */
function closed(server: Server): Promise<void> {
  return new Promise((resolve) => {
    const cut = setTimeout(() => server.closeAllConnections(), 500)
    server.close(() => {
      clearTimeout(cut)
      resolve()
    })
    server.closeIdleConnections()
  })
}

// Health: whether this process is alive, and whether it can take calls. Ready means that it does not drain, its keys are
// loaded, and its store answers within a bound. The result is kept for a second, and there is one query at a time, so that
// nobody can load the store with these paths, which need no authentication.
//
// The paths are outside of MCP: probes of a cluster send the address of the pod as `Host`, so hosts and origins are not
// checked, and the responses contain nothing but one word.

const STORE_MS = 2_000
const KEEP_MS = 1_000

/** An id that no blob has: asking for it is the cheapest query that every store answers. */
const NO_BLOB = 'ready'

export function createReadiness(
  host: Pick<FlowHost, 'keys' | 'draining' | 'platform'>,
  store: Store | EngineStore | undefined,
): Readiness {
  let leaving = false
  let asking: Promise<NotReady | undefined> | undefined
  let known: { readonly at: number; readonly reason: NotReady | undefined } | undefined

  const ask = async (): Promise<NotReady | undefined> => {
    const reason = (await answers(store, host.platform.after)) ? undefined : 'store'
    known = { at: host.platform.now(), reason }
    asking = undefined
    return reason
  }

  return {
    leave() {
      leaving = true
    },
    async check() {
      if (leaving || host.draining) return 'draining'
      if (!host.keys.isReady) return 'keys'
      if (!store) return undefined
      if (known && host.platform.now() - known.at < KEEP_MS) return known.reason
      asking ??= ask()
      return await asking
    },
  }
}

/** False if the store fails, or does not answer in time. */
function answers(
  store: Store | EngineStore | undefined,
  after: FlowHost['platform']['after'],
): Promise<boolean> {
  return new Promise((resolve) => {
    const cancel = after(STORE_MS, () => resolve(false))
    const done = (answered: boolean): void => {
      cancel()
      resolve(answered)
    }
    Promise.resolve(store?.blobs.get(NO_BLOB)).then(
      () => done(true),
      () => done(false),
    )
  })
}

interface HealthPaths {
  readonly health?: string
  readonly ready?: string
}

function assertPaths({ health, ready }: HealthPaths, path: unknown): void {
  if (typeof path !== 'string' || (path !== '*' && !/^\/[^\s?#]*$/.test(path))) {
    throw misuse(
      `path must begin with a slash, such as /mcp, or be '*' for every path; got ${JSON.stringify(path)}.`,
    )
  }
  for (const [name, value] of Object.entries({ health, ready })) {
    if (value === undefined) continue
    if (typeof value !== 'string' || !/^\/[\w./~-]*$/.test(value)) {
      throw misuse(`${name} must be a path such as /healthz.`)
    }
    if (value === path) throw misuse(`${name} must be another path than that of the endpoint, ${path}.`)
  }
  if (health !== undefined && health === ready) throw misuse('health and ready must be two different paths.')
}

/** Serves the paths that are set; everything else goes to `handler`. */
function withHealth(handler: NodeHandler, paths: HealthPaths, readiness?: Readiness): NodeHandler {
  const { health, ready } = paths
  if (health === undefined && ready === undefined) return handler
  return (req, res) => {
    const path = req.url?.split('?', 1)[0]
    if (path === undefined || (path !== health && path !== ready)) return handler(req, res)
    // Without a listener, an error of the response would end the process.
    res.on('error', () => {})
    if (req.method !== 'GET' && req.method !== 'HEAD') return send(req, res, 405, 'use GET')
    if (path === health) return send(req, res, 200, 'live')
    const checking = readiness?.check() ?? Promise.resolve(undefined)
    void checking.then((reason) => send(req, res, reason === undefined ? 200 : 503, reason ?? 'ready'))
  }
}

function send(req: IncomingMessage, res: ServerResponse, status: number, word: string): void {
  // A body that nobody reads must not be kept.
  req.resume()
  const body = `${word}\n`
  const headers = { 'Content-Type': 'text/plain', 'Cache-Control': 'no-store', 'Content-Length': body.length }
  res.writeHead(status, status === 405 ? { ...headers, Allow: 'GET, HEAD' } : headers)
  res.end(req.method === 'HEAD' ? undefined : body)
}
