/**
 * Passes one request of node:http through an exchange: `(req, res)`, for a plain server, Express and similar frameworks.
 * If a middleware has already read the body, it is taken from `req.body`.
 *
 * A body that is too large is discarded up to a bound rather than cut off, so that the client finishes sending and
 * reads the refusal instead of a connection error. A client that goes away first gets no response.
 */

import { isUtf8 } from 'node:buffer'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { assertOptions, RondoError } from '../../errors.ts'
import { readNodeBody } from '../../lib/body.ts'
import { collectBytes } from '../../lib/collection.ts'
import { isThenable } from '../../lib/json.ts'
import type { RequestId } from '../../protocol/call.ts'
import type { RequestHeaders } from '../../protocol/common/headers.ts'
import { createIdReader, type IdReader, readRequestId } from '../../protocol/common/request-id.ts'
import { FREE_WEIGHT } from '../limits.ts'
import type { HttpHeaders, HttpRequest, HttpResponse, Load, Outlet, Route } from '../port.ts'
import type { Identified } from './authenticate.ts'
import type { Exchange } from './exchange.ts'
import { JSON_HEADERS, refusal } from './line.ts'
import { type RouteRequest, sendResponse, urlOf } from './route.ts'

export interface NodeHandlerOptions {
  /** Bytes of the largest body that is read. Default: 1 MiB. */
  maxBodyBytes?: number
}

/** Refuses options that `server.nodeHandler` does not have. */
export function assertHandlerNames(given: unknown): void {
  assertOptions('nodeHandler', given, { maxBodyBytes: true } satisfies Record<keyof NodeHandlerOptions, true>)
}

export type NodeHandler = (req: NodeRequest, res: ServerResponse) => void

/** A framework may have read the body, and cut off the path at which it serves this handler. */
type NodeRequest = IncomingMessage & { body?: unknown; originalUrl?: string }

const NOT_UTF8 = new RondoError('PEER_PARSE', 'Not UTF-8')
const TOO_LARGE = new RondoError('LIMIT_BODY')
const ANONYMOUS: Identified = { kind: 'known', principal: undefined }

/** The one catch around a request: its first, synchronous part and every continuation run inside it. */
type Guard = <T>(run: (value: T) => void) => (value: T) => void

/** `path` is the endpoint; any other path gets 404. Default: every path is served. */
export function createNodeHandler(
  exchange: Exchange,
  options: NodeHandlerOptions = {},
  path?: string,
): NodeHandler {
  const limit = options.maxBodyBytes ?? 1_048_576

  function accept(req: NodeRequest, outlet: NodeOutlet, guard: Guard): void {
    const headers = req.headers as RequestHeaders
    const method = req.method ?? ''
    const refuse = (response: HttpResponse): void => {
      if (hasLongBody(req, limit)) outlet.closeAfterwards()
      outlet.send(response)
    }
    if (headers.origin !== undefined) outlet.share(exchange.shared(headers.origin))
    const early = exchange.admit(method, headers, req.rawHeaders)
    if (early !== undefined) return refuse(early)
    const identified = exchange.identify?.({ headers, method, url: req.url, connection: outlet }) ?? ANONYMOUS
    const proceed = (known: Identified): void => {
      if (known.kind === 'refused') refuse(known.response)
      else receive(req, { method, headers, principal: known.principal, outlet }, guard)
    }
    if (isThenable(identified)) identified.then(guard(proceed))
    else proceed(identified)
  }

  function receive(req: NodeRequest, request: HttpRequest & { outlet: NodeOutlet }, guard: Guard): void {
    if (request.method !== 'POST') return exchange.serveBare(request)
    const { body } = req
    const onBody = (collected: Body): void => {
      if (typeof collected === 'string') return exchange.serve(collected, request)
      const { error, id } = collected
      if (error !== NOT_UTF8) request.outlet.closeAfterwards()
      request.outlet.send(error === undefined ? exchange.busy() : refusal(error, id))
    }
    const load = (): Load => exchange.load(request, request.outlet)
    if (body === undefined) collectBody(req, limit, load, guard(onBody))
    else if (Buffer.isBuffer(body)) onBody(toText(body))
    else if (typeof body === 'string') onBody(body)
    else exchange.serveParsed(body, request)
  }

  const sendMetadata = (req: NodeRequest, res: ServerResponse): boolean => {
    const { method = '', url, headers } = req
    const response = exchange.metadata?.(method, req.originalUrl ?? url, headers as RequestHeaders)
    if (response !== undefined) new NodeOutlet(res, exchange).send(response)
    return response !== undefined
  }

  /** False if no extension has a route for this path. */
  const sendRoute = (req: NodeRequest, res: ServerResponse): boolean => {
    const encrypted = 'encrypted' in req.socket
    const url = urlOf(req.originalUrl ?? req.url ?? '', req.headers.host, encrypted)
    const route = url === undefined ? undefined : exchange.routes?.(new URL(url).pathname)
    if (url === undefined || route === undefined) return false
    void serveNodeRoute(req, res, route, url)
    return true
  }

  async function serveNodeRoute(
    req: NodeRequest,
    res: ServerResponse,
    route: Route,
    url: string,
  ): Promise<void> {
    const outlet = new NodeOutlet(res, exchange)
    const leaving = new AbortController()
    const stop = outlet.onGone(() => leaving.abort())
    const { method = '', headers, rawHeaders: raw } = req
    const declared = headers['content-length']
    const load = createRoom(() =>
      exchange.load({ headers: headers as RequestHeaders, principal: undefined }, outlet),
    )
    const request: RouteRequest = {
      method,
      url,
      headers: headers as RequestHeaders,
      raw,
      signal: leaving.signal,
      async body() {
        try {
          return await readNodeBody(req, {
            limit,
            declared,
            patience: limit * PATIENCE,
            hasRoom: load.hasRoom,
          })
        } finally {
          load.release()
        }
      },
    }
    try {
      await exchange.serveRoute(route, request, async (response) => {
        if (outlet.gone) return
        if (exchange.state.draining || !req.complete) outlet.closeAfterwards()
        await sendResponse(res, response, method === 'HEAD')
      })
    } catch (error) {
      exchange.fail(error, outlet)
    } finally {
      stop()
    }
  }

  return (req, res) => {
    if (exchange.metadata !== undefined && req.method !== 'POST' && sendMetadata(req, res)) return
    if (exchange.routes !== undefined && sendRoute(req, res)) return
    if (path !== undefined && req.url !== path && !req.url?.startsWith(`${path}?`)) {
      return sendNotFound(path, res)
    }
    const outlet = new NodeOutlet(res, exchange)
    const guard: Guard = (run) => (value) => {
      try {
        run(value)
      } catch (error) {
        exchange.fail(error, outlet)
      }
    }
    guard(() => accept(req, outlet, guard))(undefined)
  }
}

/** Counts a body while it arrives, as soon as it is more than light. */
function createRoom(openLoad: () => Load): { hasRoom(size: number): boolean; release(): void } {
  let load: Load | undefined
  let release = (): void => {}
  return {
    hasRoom(size) {
      if (size <= FREE_WEIGHT) return true
      if (load === undefined) {
        load = openLoad()
        release = load.hold()
      }
      // The block that collects the bytes may be twice as large.
      return load.weigh(2 * size)
    },
    release: () => release(),
  }
}

function sendNotFound(path: string, res: ServerResponse): void {
  const body = `Not found. MCP is served at ${path}\n`
  res.writeHead(404, { 'Content-Type': 'text/plain', 'Content-Length': Buffer.byteLength(body) })
  res.end(body)
}

/** Node reads an unread body to its end before it reuses the connection, which is not worth it for a long one. */
function hasLongBody(req: IncomingMessage, limit: number): boolean {
  return req.headers['transfer-encoding'] !== undefined || Number(req.headers['content-length'] ?? 0) > limit
}

/** The text of a body, or why it cannot be read; without an error, because there is no room for it now. */
type Body = string | { readonly error?: RondoError; readonly id: RequestId | null }

/** The connection is cut once this many times the limit has been discarded. */
const PATIENCE = 16

function collectBody(
  req: IncomingMessage,
  limit: number,
  openLoad: () => Load,
  done: (body: Body) => void,
): void {
  const declared = Number(req.headers['content-length'] ?? 0)
  if (declared > limit * PATIENCE) return done({ error: TOO_LARGE, id: null })
  let size = 0
  const collected = collectBytes()
  /** Reads what is discarded. */
  let skipped: IdReader | undefined
  let load: Load | undefined
  let release = (): void => {}

  const leave = (body: Body): void => {
    req.off('data', onData)
    req.off('end', onEnd)
    req.off('close', onClose)
    release()
    done(body)
  }
  const skip = (chunk: Uint8Array): void => {
    if (skipped === undefined) {
      skipped = createIdReader()
      skipped.push(collected.take())
      release()
    }
    skipped.push(chunk)
  }
  const hasRoom = (): boolean => {
    if (size <= FREE_WEIGHT) return true
    if (load === undefined) {
      load = openLoad()
      release = load.hold()
    }
    // The block that collects the bytes may be twice as large.
    return load.weigh(2 * size)
  }
  const onData = (chunk: Buffer): void => {
    size += chunk.length
    if (size > limit || declared > limit) {
      skip(chunk)
      if (size <= limit * PATIENCE) return
    } else if (size === declared || hasRoom()) return collected.add(chunk)
    req.pause()
    leave(skipped === undefined ? { id: null } : { error: TOO_LARGE, id: skipped.id() })
  }
  const onEnd = (): void => {
    // The request lives as long as its response, which may be an endless stream: release the bytes now.
    leave(skipped === undefined ? toText(collected.take()) : { error: TOO_LARGE, id: skipped.id() })
  }
  const onClose = (): void => release()
  req.on('data', onData)
  req.on('end', onEnd)
  req.on('close', onClose)
}

function toText(bytes: Uint8Array): Body {
  // Decoding would replace invalid bytes, and the body would be a different one.
  if (!isUtf8(bytes)) return { error: NOT_UTF8, id: readRequestId(bytes) }
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('utf8')
}

/** A complete response is one `writeHead` and one `end`, which Node sends as one packet. */
class NodeOutlet implements Outlet {
  readonly #res: ServerResponse
  readonly #exchange: Exchange

  constructor(res: ServerResponse, exchange: Exchange) {
    this.#res = res
    this.#exchange = exchange
    // An 'error' event without a listener would end the process.
    res.on('error', exchange.onError)
  }

  /** Closes the connection after the response, so that the client's next request reaches another instance. */
  closeAfterwards(): void {
    this.#res.shouldKeepAlive = false
  }

  /** Adds headers to whatever response follows. */
  share(headers: HttpHeaders | undefined): void {
    for (const name in headers) this.#res.setHeader(name, headers[name] ?? '')
  }

  send({ status, headers, body }: HttpResponse): void {
    if (!this.#begin()) return
    const res = this.#res
    const length = Buffer.byteLength(body)
    if (headers === JSON_HEADERS) {
      // The common case, in the form that Node uses without a copy.
      res.writeHead(status, ['Content-Type', 'application/json', 'Content-Length', length])
    } else {
      res.writeHead(status, { ...headers, 'Content-Length': length })
    }
    res.end(body)
  }

  open(headers: HttpHeaders): void {
    if (this.#begin()) this.#res.writeHead(200, headers)
  }

  /** False if there is nobody to respond to, or a response has begun. */
  #begin(): boolean {
    if (this.gone || this.#res.headersSent) return false
    if (this.#exchange.state.draining) this.closeAfterwards()
    return true
  }

  write(text: string): void {
    if (!this.gone && !this.#res.writableEnded) this.#res.write(text)
  }

  end(): void {
    if (!this.gone) this.#res.end()
  }

  fail(response: HttpResponse): void {
    if (this.#res.headersSent) return this.drop()
    // Part of the request may still be unread.
    this.closeAfterwards()
    this.send(response)
  }

  drop(): void {
    this.#res.destroy()
  }

  get gone(): boolean {
    return this.#res.destroyed || this.#res.socket?.destroyed === true
  }

  get ended(): boolean {
    return this.#res.writableEnded
  }

  get address(): string | undefined {
    return this.#res.socket?.remoteAddress
  }

  get backlog(): number {
    return this.#res.writableLength
  }

  onGone(listener: () => void): () => void {
    const res = this.#res
    const onClose = (): void => {
      if (res.writableFinished) return
      try {
        listener()
      } catch (error) {
        this.#exchange.onError(error)
      }
    }
    if (this.gone) listener()
    else res.once('close', onClose)
    return () => void res.off('close', onClose)
  }
}
