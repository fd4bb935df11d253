/**
 * One request of node:http through an exchange: `(req, res)`, so that a plain server, Express and everything alike
 * can mount it. A body that a middleware has read already is taken from `req.body`.
 */

import { isUtf8 } from 'node:buffer'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { RondoError } from '../../errors.ts'
import { isThenable } from '../../lib/narrow.ts'
import type { Principal } from '../../protocol/call.ts'
import type { HeaderReader } from '../../protocol/common/headers.ts'
import type { Exchange } from './exchange.ts'
import { type HttpAnswer, type HttpHeaders, JSON_HEADERS, type Outlet, refusal } from './line.ts'

export interface NodeHandlerOptions {
  /** The largest body that is read. 1 MiB unless given. */
  maxBodyBytes?: number
}

const TWO_HOSTS: HttpAnswer = {
  ...refusal(new RondoError('PEER_HOST', 'The request has more than one Host header')),
  status: 400,
}

type Request = IncomingMessage & { body?: unknown }

export type NodeHandler = (req: Request, res: ServerResponse) => void

export function createNodeHandler(exchange: Exchange, options: NodeHandlerOptions = {}): NodeHandler {
  const limit = options.maxBodyBytes ?? 1_048_576

  const accept = (req: Request, res: ServerResponse, outlet: NodeOutlet, guard: Guard): void => {
    const headers = (name: string): string | undefined => req.headers[name] as string | undefined
    const answerEarly = (answer: HttpAnswer): void => {
      if (hasLongBody(req, limit)) outlet.last()
      outlet.send(answer)
    }
    const origin = req.headers.origin
    const shared = origin === undefined ? undefined : exchange.shared(origin)
    for (const name in shared) res.setHeader(name, shared[name] ?? '')
    if (hasTwoHosts(req.rawHeaders)) return answerEarly(TWO_HOSTS)
    const early = exchange.admit(req.method, headers)
    if (early !== undefined) {
      answerEarly(early)
    } else if (exchange.identify === undefined) {
      receive(exchange, limit, req, headers, undefined, outlet, guard)
    } else {
      const who = exchange.identify({ headers, method: req.method ?? '', url: req.url })
      const go = (known: Awaited<typeof who>): void => {
        if (known.kind === 'refused') answerEarly(known.answer)
        else receive(exchange, limit, req, headers, known.principal, outlet, guard)
      }
      if (isThenable(who)) who.then(guard(go))
      else go(who)
    }
  }

  return (req, res) => {
    const outlet = new NodeOutlet(res, exchange)
    const guard: Guard = (run) => (value) => {
      try {
        run(value)
      } catch (error) {
        exchange.fail(error, outlet)
      }
    }
    guard(() => accept(req, res, outlet, guard))(undefined)
  }
}

/** The one catch around a request: its beginning runs in it, and so does whatever goes on later. */
type Guard = <T>(run: (value: T) => void) => (value: T) => void

function receive(
  exchange: Exchange,
  limit: number,
  req: Request,
  headers: HeaderReader,
  principal: Principal | undefined,
  outlet: NodeOutlet,
  guard: Guard,
): void {
  if (req.method !== 'POST') return exchange.serveBare(req.method ?? '', headers, principal, outlet)
  const { body } = req
  const onBody = (collected: Body): void => {
    if (collected.kind === 'text') exchange.serve(collected.text, headers, principal, outlet)
    else if (collected.kind === 'not-utf8') outlet.send(refusal(new RondoError('PEER_PARSE', 'Not UTF-8')))
    else {
      outlet.last()
      outlet.send(refusal(new RondoError('LIMIT_BODY')))
    }
  }
  if (body === undefined) collectBody(req, limit, guard(onBody))
  else if (Buffer.isBuffer(body)) onBody(toText([body]))
  else if (typeof body === 'string') onBody({ kind: 'text', text: body })
  else exchange.serveParsed(body, headers, principal, outlet)
}

/** Node reads an unread body to its end before it uses a connection again: not worth it for a long one. */
function hasLongBody(req: IncomingMessage, limit: number): boolean {
  return req.headers['transfer-encoding'] !== undefined || Number(req.headers['content-length'] ?? 0) > limit
}

/** A proxy may have judged the one that Node does not show (RFC 9112, 3.2). */
function hasTwoHosts(raw: readonly string[]): boolean {
  let hosts = 0
  for (let i = 0; i < raw.length; i += 2) {
    if (raw[i]?.length === 4 && raw[i]?.toLowerCase() === 'host') hosts += 1
  }
  return hosts > 1
}

/*
 * The body of a node:http request, up to a limit.
 *
 * A body that is too large is not kept: what still comes is thrown away, up to a bound, so that the client has sent
 * its request and reads the refusal instead of a broken connection. A client that goes before the end gets nothing.
 */

export type Body =
  | { readonly kind: 'text'; readonly text: string }
  | { readonly kind: 'too-large' }
  | { readonly kind: 'not-utf8' }

/** This many times the limit is thrown away before the connection is cut. */
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
    // The request lives as long as its response, which may be a stream without an end.
    chunks = []
    done(tooLarge ? { kind: 'too-large' } : toText(received))
  }
  req.on('data', onData)
  req.on('end', onEnd)
}

/** A whole body as text, where the bytes are UTF-8. */
function toText(chunks: readonly Buffer[]): Body {
  const bytes = chunks.length === 1 && chunks[0] !== undefined ? chunks[0] : Buffer.concat(chunks)
  // A lone bad byte would otherwise become another character, and the body another body.
  if (!isUtf8(bytes)) return { kind: 'not-utf8' }
  return { kind: 'text', text: bytes.toString('utf8') }
}

/*
 * The way out over node:http. A whole answer is one `writeHead` and one `end`, which Node sends as one packet; whether
 * the client is still there costs nothing until somebody asks.
 */

interface OutletServer {
  readonly draining: boolean
  onError(error: unknown): void
}

class NodeOutlet implements Outlet {
  readonly #res: ServerResponse
  readonly #server: OutletServer

  constructor(res: ServerResponse, server: OutletServer) {
    this.#res = res
    this.#server = server
    // An event without a listener would end the process.
    res.on('error', server.onError)
  }

  /** The connection is not used again: a client that comes back should find another instance. */
  last(): void {
    this.#res.shouldKeepAlive = false
  }

  send({ status, headers, body }: HttpAnswer): void {
    const res = this.#res
    if (isGone(res) || res.headersSent) return
    if (this.#server.draining) this.last()
    const length = Buffer.byteLength(body)
    if (headers === JSON_HEADERS) {
      // The common case, in the form that Node takes without a copy.
      res.writeHead(status, ['Content-Type', 'application/json', 'Content-Length', length])
    } else {
      res.writeHead(status, { ...headers, 'Content-Length': length })
    }
    res.end(body)
  }

  open(headers: HttpHeaders): void {
    if (isGone(this.#res) || this.#res.headersSent) return
    if (this.#server.draining) this.last()
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
    // Part of the request may be unread.
    this.last()
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
        this.#server.onError(error)
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
