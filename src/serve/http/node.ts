/**
 * One request of node:http through an exchange: `(req, res)`, so that a plain server, Express and anything similar can
 * mount it. If a middleware has read the body already, it is taken from `req.body`.
 *
 * A body that is too large is discarded up to a bound rather than cut off, so that the client finishes sending and
 * reads the refusal instead of a connection error. A client that goes away first gets no response.
 */

import { isUtf8 } from 'node:buffer'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { RondoError } from '../../errors.ts'
import { isThenable } from '../../lib/json.ts'
import type { RequestHeaders } from '../../protocol/common/headers.ts'
import type { Exchange, HttpRequest } from './exchange.ts'
import { type HttpAnswer, type HttpHeaders, JSON_HEADERS, type Outlet, refusal } from './line.ts'

export interface NodeHandlerOptions {
  /** The largest body that is read. 1 MiB by default. */
  maxBodyBytes?: number
}

export type NodeHandler = (req: NodeRequest, res: ServerResponse) => void

type NodeRequest = IncomingMessage & { body?: unknown }

const TWO_HOSTS: HttpAnswer = {
  ...refusal(new RondoError('PEER_HOST', 'The request has more than one Host header')),
  status: 400,
}

/** `path` is the endpoint; any other path gets 404. Absent, every path is served. */
export function createNodeHandler(
  exchange: Exchange,
  options: NodeHandlerOptions = {},
  path?: string,
): NodeHandler {
  const limit = options.maxBodyBytes ?? 1_048_576
  return (req, res) => {
    if (path !== undefined && !isAt(path, req.url ?? '')) return sendNotFound(path, res)
    const outlet = new NodeOutlet(res, exchange)
    const guard: Guard = (run) => (value) => {
      try {
        run(value)
      } catch (error) {
        exchange.fail(error, outlet)
      }
    }
    guard(() => accept(exchange, limit, req, outlet, guard))(undefined)
  }
}

/** The one catch around a request: both its first, synchronous part and every continuation run inside it. */
type Guard = <T>(run: (value: T) => void) => (value: T) => void

function accept(exchange: Exchange, limit: number, req: NodeRequest, outlet: NodeOutlet, guard: Guard): void {
  const headers = req.headers as RequestHeaders
  const method = req.method ?? ''
  const refuse = (answer: HttpAnswer): void => {
    if (hasLongBody(req, limit)) outlet.closeAfterwards()
    outlet.send(answer)
  }
  if (headers.origin !== undefined) outlet.share(exchange.shared(headers.origin))
  if (hasTwoHosts(req.rawHeaders)) return refuse(TWO_HOSTS)
  const early = exchange.admit(method, headers)
  if (early !== undefined) return refuse(early)
  if (exchange.identify === undefined) {
    return receive(exchange, limit, req, { method, headers, principal: undefined, outlet }, guard)
  }
  const identified = exchange.identify({ headers, method, url: req.url })
  const proceed = (known: Awaited<typeof identified>): void => {
    if (known.kind === 'refused') refuse(known.answer)
    else receive(exchange, limit, req, { method, headers, principal: known.principal, outlet }, guard)
  }
  if (isThenable(identified)) identified.then(guard(proceed))
  else proceed(identified)
}

function receive(
  exchange: Exchange,
  limit: number,
  req: NodeRequest,
  request: HttpRequest & { readonly outlet: NodeOutlet },
  guard: Guard,
): void {
  if (request.method !== 'POST') return exchange.serveBare(request)
  const { body } = req
  const { outlet } = request
  const onBody = (collected: Body): void => {
    if (collected.kind === 'text') exchange.serve(collected.text, request)
    else if (collected.kind === 'not-utf8') outlet.send(refusal(new RondoError('PEER_PARSE', 'Not UTF-8')))
    else {
      outlet.closeAfterwards()
      outlet.send(refusal(new RondoError('LIMIT_BODY')))
    }
  }
  if (body === undefined) collectBody(req, limit, guard(onBody))
  else if (Buffer.isBuffer(body)) onBody(toText([body]))
  else if (typeof body === 'string') onBody({ kind: 'text', text: body })
  else exchange.serveParsed(body, request)
}

function isAt(path: string, url: string): boolean {
  return url === path || (url.startsWith(path) && url[path.length] === '?')
}

function sendNotFound(path: string, res: ServerResponse): void {
  const body = `Not found. MCP is served at ${path}\n`
  res.writeHead(404, { 'Content-Type': 'text/plain', 'Content-Length': Buffer.byteLength(body) })
  res.end(body)
}

/** Node reads an unread body to its end before it reuses a connection: not worth it for a long one. */
function hasLongBody(req: IncomingMessage, limit: number): boolean {
  return req.headers['transfer-encoding'] !== undefined || Number(req.headers['content-length'] ?? 0) > limit
}

/** A proxy may have checked the one that Node does not show (RFC 9112, 3.2). */
function hasTwoHosts(raw: readonly string[]): boolean {
  let hosts = 0
  for (let i = 0; i < raw.length; i += 2) {
    if (raw[i]?.length === 4 && raw[i]?.toLowerCase() === 'host') hosts += 1
  }
  return hosts > 1
}

type Body =
  | { readonly kind: 'text'; readonly text: string }
  | { readonly kind: 'too-large' }
  | { readonly kind: 'not-utf8' }

/** The connection is cut once this many times the limit has been discarded. */
const PATIENCE = 16

function collectBody(req: IncomingMessage, limit: number, done: (body: Body) => void): void {
  const declared = Number(req.headers['content-length'] ?? 0)
  if (declared > limit * PATIENCE) {
    done({ kind: 'too-large' })
    return
  }
  let size = 0
  let chunks: Buffer[] = []
  let tooLarge = declared > limit

  const onData = (chunk: Buffer): void => {
    size += chunk.length
    if (size > limit) {
      tooLarge = true
      chunks = []
    }
    if (!tooLarge) chunks.push(chunk)
    else if (size > limit * PATIENCE) {
      req.off('data', onData)
      req.off('end', onEnd)
      req.pause()
      done({ kind: 'too-large' })
    }
  }
  const onEnd = (): void => {
    const received = chunks
    // The request lives as long as its response, which may be an endless stream: free the chunks now.
    chunks = []
    done(tooLarge ? { kind: 'too-large' } : toText(received))
  }
  req.on('data', onData)
  req.on('end', onEnd)
}

function toText(chunks: readonly Buffer[]): Body {
  const bytes = chunks.length === 1 && chunks[0] !== undefined ? chunks[0] : Buffer.concat(chunks)
  // Decoding would replace an invalid byte with another character, and the body would be another body.
  if (!isUtf8(bytes)) return { kind: 'not-utf8' }
  return { kind: 'text', text: bytes.toString('utf8') }
}

/** A whole response is one `writeHead` and one `end`, which Node sends as one packet. */
class NodeOutlet implements Outlet {
  readonly #res: ServerResponse
  readonly #exchange: Exchange

  constructor(res: ServerResponse, exchange: Exchange) {
    this.#res = res
    this.#exchange = exchange
    // An 'error' event without a listener would end the process.
    res.on('error', exchange.onError)
  }

  /** The connection is not reused: a client that calls again should reach another instance. */
  closeAfterwards(): void {
    this.#res.shouldKeepAlive = false
  }

  /** Headers that go with whatever response follows. */
  share(headers: HttpHeaders | undefined): void {
    for (const name in headers) this.#res.setHeader(name, headers[name] ?? '')
  }

  send({ status, headers, body }: HttpAnswer): void {
    const res = this.#res
    if (isGone(res) || res.headersSent) return
    if (this.#exchange.state.draining) this.closeAfterwards()
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
    if (isGone(this.#res) || this.#res.headersSent) return
    if (this.#exchange.state.draining) this.closeAfterwards()
    this.#res.writeHead(200, headers)
  }

  write(text: string): void {
    if (!isGone(this.#res) && !this.#res.writableEnded) this.#res.write(text)
  }

  end(): void {
    if (!isGone(this.#res)) this.#res.end()
  }

  fail(answer: HttpAnswer): void {
    if (this.#res.headersSent) return this.drop()
    // Part of the request may still be unread.
    this.closeAfterwards()
    this.send(answer)
  }

  drop(): void {
    this.#res.destroy()
  }

  get gone(): boolean {
    return isGone(this.#res)
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
    if (isGone(res)) listener()
    else res.once('close', onClose)
    return () => {
      res.off('close', onClose)
    }
  }
}

function isGone(res: ServerResponse): boolean {
  return res.destroyed || res.socket?.destroyed === true
}
