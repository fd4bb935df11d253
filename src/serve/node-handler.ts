/**
 * One request of node:http through an exchange: `(req, res)`, so that a plain server, Express and everything alike
 * can mount it. A body that a middleware has read already is taken from `req.body`.
 */

import type { IncomingMessage, ServerResponse } from 'node:http'
import { RondoError } from '../errors.ts'
import { isThenable } from '../lib/is-thenable.ts'
import type { Principal } from '../protocol/call.ts'
import type { HeaderReader } from '../protocol/rev-2026-07-28/headers.ts'
import type { Exchange } from './http.ts'
import { type HttpAnswer, refusal } from './http-answer.ts'
import { type Body, collectBody, toText } from './node-body.ts'
import { NodeOutlet } from './node-outlet.ts'

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
