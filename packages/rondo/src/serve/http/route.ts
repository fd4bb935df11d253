/**
 * Serves the routes of extensions: pages and webhooks beside the MCP endpoint. They share its listeners, limits and drain, and
 * nothing of the protocol: `authenticate` is not asked, because a person with a browser has a login of their own.
 *
 * route 1: `Host` and `Origin` are checked as for MCP. The server's own pages pass, since its hosts are allowed origins.
 * route 2: The body is read before the handler runs, up to `maxBodyBytes`.
 * route 3: A handler that throws, returns no response or does not settle yields 500, and the log says which route.
 * route 4: A request in flight counts while the server drains; a new one gets 503.
 */

import type { ServerResponse } from 'node:http'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { misuse, RondoError } from '../../errors.ts'
import type { Body } from '../../lib/body.ts'
import { guardListeners } from '../../replay/signal.ts'
import { inTime } from '../../tool/hook.ts'
import type { HttpResponse, Route } from '../port.ts'
import type { HttpArrival, Room } from './arrival.ts'
import { refusal } from './line.ts'

/** How long a handler may take to return its response. */
const ROUTE_MS = 60_000

/** A route, with the whole URL of the request for it. */
export interface FoundRoute {
  readonly route: Route
  readonly url: URL
}

/** Returns the route that serves a request, if there is one: the one with the longest path. */
export function findRoute(
  { url, headers, scheme }: HttpArrival,
  routes: ReadonlyMap<string, Route>,
): FoundRoute | undefined {
  // `//other.example/` would name another host.
  if (url.startsWith('//') || !URL.canParse(url, 'http://localhost')) return undefined
  const { protocol, pathname, search } = new URL(url, 'http://localhost')
  const [path] = [...routes.keys()]
    .filter((one) => pathname === one || pathname.startsWith(`${one}/`))
    .sort((a, b) => b.length - a.length)
  const route = path === undefined ? undefined : routes.get(path)
  // The host is the one that is checked, even if the request line names another.
  const host = headers.host ?? headers[':authority'] ?? 'localhost'
  const whole = `${scheme === undefined ? protocol : `${scheme}:`}//${host}${pathname}${search}`
  return route && HOST.test(host) && URL.canParse(whole) ? { route, url: new URL(whole) } : undefined
}

/** Nothing in it ends the host of a URL. */
const HOST = /^[^/?#@\\\s]+$/

interface RouteContext {
  /** Returns the refusal of a request that is not admitted. */
  readonly admit: () => HttpResponse | undefined
  /** The refusal of a request for which there is no room. */
  readonly busy: () => HttpResponse
  readonly room: Room
  readonly onError: (error: unknown) => void
  readonly routeMs?: number
}

/** Serves a route: admit, read, call. Never rejects. */
export async function serveRoute(
  arrival: HttpArrival,
  { route, url }: FoundRoute,
  { admit, busy, room, onError, routeMs = ROUTE_MS }: RouteContext,
): Promise<Response> {
  const { headers, maxBodyBytes: limit, outlet, given } = arrival
  const ending = new AbortController()
  const stop = outlet.onGone(() => ending.abort())
  try {
    const early = admit()
    if (early !== undefined) return refuse(arrival, early)
    const where = `The route for ${url.pathname}`
    const body: Body =
      typeof given === 'string' || Buffer.isBuffer(given)
        ? { kind: 'whole', bytes: Buffer.from(given) }
        : await arrival.read({
            limit,
            patience: arrival.patience,
            declared: headers['content-length'],
            hasRoom: room.hasRoom,
          })
    room.release()
    if (body.kind === 'broken' && given !== undefined && !outlet.gone)
      throw misuse(`${where} gets no body, because a middleware has read it: use the middleware after it.`)
    if (body.kind === 'broken') return refuse(arrival, UNREADABLE)
    if (body.kind !== 'whole') return refuse(arrival, body.kind === 'no-room' ? busy() : TOO_LARGE)
    const request = toRequest(arrival, url, body.bytes, ending.signal)
    if (request === undefined) return toResponse(UNREADABLE)
    guardListeners(request.signal, onError)
    const response: unknown = await inTime(Promise.resolve(route(request)), routeMs, where)
    if (response instanceof Response) return response
    throw misuse(`${where} must return a Response.`)
  } catch (error) {
    if (!outlet.gone) onError(error)
    ending.abort(error)
    return toResponse(FAILED)
  } finally {
    room.release()
    stop()
  }
}

function refuse(arrival: HttpArrival, response: HttpResponse): Response {
  arrival.abandon()
  return toResponse(response)
}

const TOO_LARGE = refusal(new RondoError('LIMIT_BODY'))
const UNREADABLE = { ...refusal(new RondoError('PEER_REQUEST', 'The request cannot be read')), status: 400 }
const FAILED: HttpResponse = {
  status: 500,
  headers: { 'Content-Type': 'text/plain' },
  body: 'Internal error\n',
}

/** A complete response of ours, in the form of the web. */
export function toResponse({ status, headers, body }: HttpResponse): Response {
  return new Response(body === '' ? null : body, { status, headers: { ...headers } })
}

/** Undefined if the platform cannot represent the request: the method `TRACE`, for example. */
function toRequest(
  { method, headers, raw }: HttpArrival,
  url: URL,
  bytes: Uint8Array,
  signal: AbortSignal,
): Request | undefined {
  try {
    const sent = new Headers()
    const pairs = raw ?? Object.entries(headers).flat()
    for (let i = 0; i + 1 < pairs.length; i += 2) {
      // HTTP/2 has pseudo-headers.
      if (!pairs[i]?.startsWith(':')) sent.append(pairs[i] ?? '', pairs[i + 1] ?? '')
    }
    const body = method === 'GET' || method === 'HEAD' ? undefined : (bytes as Uint8Array<ArrayBuffer>)
    return new Request(url, { method, headers: sent, body, signal })
  } catch {
    return undefined
  }
}

/** Set by the transport. */
const FRAMING = new Set(['connection', 'keep-alive', 'transfer-encoding', 'upgrade', 'trailer'])

/** Sends a whole response over node:http. Resolves when it is sent or the client has gone; rejects if its body fails. */
export async function sendResponse(res: ServerResponse, response: Response, bare: boolean): Promise<void> {
  const headers: string[] = []
  for (const [name, value] of response.headers) if (!FRAMING.has(name)) headers.push(name, value)
  res.writeHead(response.status, headers)
  const { body } = response
  if (body === null || bare) {
    res.end()
    // Does not wait: the author's stream may never settle.
    body?.cancel().catch(() => {})
    return
  }
  try {
    await pipeline(Readable.fromWeb(body as import('node:stream/web').ReadableStream), res)
  } catch (error) {
    if (!isGone(error)) throw error
  }
}

function isGone(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === 'ERR_STREAM_PREMATURE_CLOSE'
}
