/**
 * Passes one request of node:http through an exchange: `(req, res)`, for a plain server, Express and similar frameworks.
 * If a middleware has already read the body, it is taken from `req.body`.
 *
 * A body that is too large is discarded up to a bound rather than cut off, so that the client finishes sending and
 * reads the refusal instead of a connection error. A client that goes away first gets no response.
 */

import type { IncomingMessage, ServerResponse } from 'node:http'
import { type Body, type BodyBounds, readNodeBody } from '../../lib/body.ts'
import type { RequestHeaders } from '../../protocol/common/headers.ts'
import type { HttpHeaders, HttpResponse, Outlet } from '../port.ts'
import type { HttpArrival } from './arrival.ts'
import type { Exchange } from './exchange.ts'
import { BODY_OPTIONS } from './fetch.ts'
import { JSON_HEADERS } from './line.ts'
import { sendResponse } from './route.ts'

export interface NodeHandlerOptions {
  /** The largest request body that is accepted; then `LIMIT_BODY`. Default: 1 MiB. */
  maxBodyBytes?: number
}

export type NodeHandler = (req: NodeRequest, res: ServerResponse) => void

/** A framework may have read the body, and cut off the path at which it serves this handler. */
type NodeRequest = IncomingMessage & { body?: unknown; originalUrl?: string }

/** The connection is cut once this many times the limit has been discarded. */
const PATIENCE = 16

/** `path` is the endpoint; any other path gets 404. Default: every path is served. */
export function createNodeHandler(
  exchange: Exchange,
  options: NodeHandlerOptions = {},
  path?: string,
): NodeHandler {
  const { maxBodyBytes: limit } = BODY_OPTIONS.pick(options)
  return (req, res) => {
    void exchange.serve(new NodeArrival(req, res, exchange, limit, path))
  }
}

// A class, for the same reason as `HttpLine`: it is created for every request.
class NodeArrival implements HttpArrival {
  readonly #req: NodeRequest
  readonly #res: ServerResponse
  readonly method: string
  readonly url: string
  readonly headers: RequestHeaders
  readonly outlet: NodeOutlet
  readonly maxBodyBytes: number
  readonly patience: number
  readonly endpoint: string | undefined

  constructor(
    req: NodeRequest,
    res: ServerResponse,
    exchange: Exchange,
    limit: number,
    endpoint: string | undefined,
  ) {
    this.#req = req
    this.#res = res
    this.method = req.method ?? ''
    this.url = req.originalUrl ?? req.url ?? ''
    this.headers = req.headers as RequestHeaders
    this.outlet = new NodeOutlet(res, exchange)
    this.maxBodyBytes = limit
    this.patience = limit * PATIENCE
    this.endpoint = endpoint
  }

  get raw(): readonly string[] {
    return this.#req.rawHeaders
  }

  get given(): unknown {
    return this.#req.body
  }

  get scheme(): 'http' | 'https' {
    return 'encrypted' in this.#req.socket ? 'https' : 'http'
  }

  read(bounds: BodyBounds): Promise<Body> {
    return readNodeBody(this.#req, bounds)
  }

  share(headers: HttpHeaders | undefined): void {
    for (const name in headers) this.#res.setHeader(name, headers[name] ?? '')
  }

  /** Node reads an unread body to its end before it reuses the connection, which is not worth it for a long one. */
  abandon(): void {
    const { 'transfer-encoding': encoding, 'content-length': length } = this.#req.headers
    if (encoding !== undefined || Number(length ?? 0) > this.maxBodyBytes) this.outlet.closeAfterwards()
  }

  async respond(response: Response): Promise<void> {
    this.outlet.prepare()
    await sendResponse(this.#res, response, this.method === 'HEAD')
  }
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

  /** While this instance drains, the client's next request is to reach another one. */
  prepare(): void {
    if (this.#exchange.state.draining) this.closeAfterwards()
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
    this.prepare()
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
