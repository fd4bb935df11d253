/**
 * `server.listen`: serves one path over node:http, on loopback by default. A request that does not arrive in time is cut
 * off (T20). Closing drains: calls in flight get a grace period, subscriptions end, and connections are cut afterwards.
 */

import { createServer, type Server } from 'node:http'
import { type AddressInfo, Server as NetServer } from 'node:net'
import { misuse } from '../../errors.ts'
import { createStop, onSignals } from '../drain.ts'
import { capConnections } from '../limits.ts'
import type { HttpOptions } from '../options.ts'
import { quietly, type Service } from '../service.ts'
import { createExchange } from './exchange.ts'
import { createNodeHandler, type NodeHandlerOptions } from './node.ts'

export interface ListenOptions extends HttpOptions, NodeHandlerOptions {
  /** 0 chooses a free port. Default: 3000. */
  port?: number
  /** The address to listen on, which is also an allowed host. Default: loopback. */
  host?: string
  /** The path of the endpoint; `*` serves every path. Default: `/mcp`. */
  path?: string
  /** How long a client may take to send its headers. */
  headersTimeoutMs?: number
  /** How long a client may take to send its whole request. */
  requestTimeoutMs?: number
  /** Bytes of all headers of a request together. */
  maxHeaderBytes?: number
  /** Connections that may be open at once. */
  maxConnections?: number
  /** Connections that may be open at once from one address. Not for use behind a proxy: all connections have its address. */
  maxConnectionsPerAddress?: number
  /** Drains on SIGTERM and SIGINT, then exits. Default: true. */
  signals?: boolean
  /** Logs unhandled rejections, which then do not end the process. Default: true. */
  rejections?: boolean
  /**
   * Releases the port as soon as the server begins to stop, so that its replacement on this machine can use it. Open
   * connections are served to their end. Default: false, so that new connections from a load balancer get 503.
   */
  releasePort?: boolean
  /** Grace period of calls in flight while the server stops. */
  graceMs?: number
}

export interface Listening {
  readonly host: string
  readonly port: number
  /** The URL of the endpoint. */
  readonly url: string
  /** Drains, then closes. Resolves when the port is released. */
  close(): Promise<void>
}

export async function listen(service: Service, options: ListenOptions = {}): Promise<Listening> {
  assertListenOptions(options)
  const host = options.host ?? '127.0.0.1'
  const path = options.path ?? '/mcp'
  const exchange = createExchange(service, options, host)
  const server = createServer(
    serverOptions(options),
    createNodeHandler(exchange, options, path === '*' ? undefined : path),
  )
  server.maxConnections = options.maxConnections ?? 4_096
  if (options.maxConnectionsPerAddress !== undefined) capConnections(server, options.maxConnectionsPerAddress)
  // Without a listener, a connection that cannot be accepted would end the process.
  const onError = quietly(options.onError)
  const { port } = await bound(server, options.port ?? 3000, host)
  server.on('error', onError)
  const stop = createStop({
    begin() {
      exchange.drain()
      if (options.releasePort === true) release(server)
    },
    idle: () => exchange.idle(),
    async finish() {
      await exchange.endStreams()
      await closed(server)
    },
    graceMs: options.graceMs,
  })
  const forget = options.signals === false ? () => {} : onSignals(stop)
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

const COUNTS = ['maxConnections', 'maxConnectionsPerAddress', 'maxHeaderBytes', 'graceMs'] as const

function assertListenOptions(options: ListenOptions): void {
  for (const name of COUNTS) {
    const value: unknown = options[name]
    if (value !== undefined && !(typeof value === 'number' && value >= 0)) {
      throw misuse(`${name} must be a number of 0 or more.`)
    }
  }
  const { releasePort } = options
  if (releasePort !== undefined && typeof releasePort !== 'boolean') {
    throw misuse('releasePort must be true or false.')
  }
}

function serverOptions(options: ListenOptions): Parameters<typeof createServer>[0] {
  const headersTimeout = options.headersTimeoutMs ?? 10_000
  const requestTimeout = options.requestTimeoutMs ?? 30_000
  return {
    headersTimeout: Math.min(headersTimeout, requestTimeout),
    requestTimeout,
    // How often Node looks for late requests. Its default of 30 s would triple the limit.
    connectionsCheckingInterval: Math.max(50, Math.min(2_000, headersTimeout / 4, requestTimeout / 4)),
    maxHeaderSize: options.maxHeaderBytes ?? 16_384,
  }
}

function bound(server: Server, port: number, host: string): Promise<AddressInfo> {
  return new Promise((resolve, reject) => {
    server.once('error', reject)
    server.listen(port, host, () => {
      server.off('error', reject)
      resolve(server.address() as AddressInfo)
    })
  })
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
