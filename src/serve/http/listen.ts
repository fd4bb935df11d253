/**
 * `server.listen`: node:http, read and written directly.
 *
 * Loopback by default; a request that does not arrive in time is cut off (T20); the endpoint is one path. Closing is
 * draining: calls in flight get their time, subscriptions their end, connections are cut after it.
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
  /** 3000 unless given; 0 takes a free one. */
  port?: number
  /** The address to listen on: loopback unless given. Given, it is an allowed host as well. */
  host?: string
  /** The path of the endpoint: `/mcp` unless given. `*` takes every path. */
  path?: string
  /** How long a client may take to send its headers. */
  headersTimeoutMs?: number
  /** How long a client may take to send its whole request. */
  requestTimeoutMs?: number
  /** Bytes of all headers of a request. */
  maxHeaderBytes?: number
  /** Connections that may be open at once. */
  maxConnections?: number
  /** Connections that may be open at once from one address. Not behind a proxy, whose address they all have. */
  maxConnectionsPerAddress?: number
  /** Drain on SIGTERM and SIGINT, then end the process. On unless false. */
  signals?: boolean
  /** Log rejections that the code of handlers leaves unhandled; they do not end the process. On unless false. */
  rejections?: boolean
  /**
   * Frees the port as soon as the server begins to stop, so that its replacement on this machine can take it. What is open
   * is served to its end. Off unless true: where a balancer still sends new connections, they get 503 instead of nobody.
   */
  releasePort?: boolean
  /** How long calls in flight may take while the server stops. */
  graceMs?: number
}

export interface Listening {
  readonly host: string
  readonly port: number
  /** The whole address of the endpoint. */
  readonly url: string
  /** Drains, then closes. Resolves when the port is free. */
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
  // A connection that cannot be accepted is no reason to end: without a listener the event would be one.
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
    // Node looks for late requests only this often; its own half minute would treble the limit.
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

/** Listens no more. Unlike `close` of `node:http` it leaves idle connections open: a request may be on its way on one. */
function release(server: Server): void {
  NetServer.prototype.close.call(server)
}

/** What is still open after a moment belongs to clients that do not read: it is cut. */
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
