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
import type { RequestHeaders } from '../../protocol/common/headers.ts'
import { inTime } from '../../tool/hook.ts'
import type { HttpResponse, Route } from '../port.ts'
import { refusal } from './line.ts'

/** How long a handler may take to return its response. */
const ROUTE_MS = 60_000

/** A request for a route, as an entrance passes it on. */
export interface RouteRequest {
  readonly method: string
  readonly url: string
  readonly headers: RequestHeaders
  /** The headers as they came, names and values in turn. */
  readonly raw: readonly string[]
  /** Reads the body, within the bounds of the entrance. */
  readonly body: () => Promise<Body>
  /** Fires when the client goes away. */
  readonly signal: AbortSignal
}

interface RouteContext {
  /** Returns the refusal of a request that is not admitted. */
  readonly admit: (headers: RequestHeaders, raw: readonly string[]) => HttpResponse | undefined
  /** The refusal of a request for which there is no room. */
  readonly busy: () => HttpResponse
  readonly onError: (error: unknown) => void
  readonly routeMs?: number
}

/** Never rejects. */
export async function serveRoute(
  route: Route,
  { method, url, headers, raw, body, signal }: RouteRequest,
  { admit, busy, onError, routeMs = ROUTE_MS }: RouteContext,
): Promise<Response> {
  const ending = new AbortController()
  try {
    const refused = admit(headers, raw)
    if (refused !== undefined) return toResponse(refused)
    const read = await body()
    if (read.kind === 'no-room') return toResponse(busy())
    if (read.kind !== 'whole') return toResponse(TOO_LARGE)
    const request = toRequest(method, url, raw, read.bytes, AbortSignal.any([signal, ending.signal]))
    if (request === undefined) return toResponse(UNREADABLE)
    const where = `The route for ${new URL(url).pathname}`
    const response: unknown = await inTime(Promise.resolve(route(request)), routeMs, where)
    if (response instanceof Response) return response
    throw misuse(`${where} must return a Response.`)
  } catch (error) {
    ending.abort(error)
    if (!signal.aborted) onError(error)
    return toResponse(FAILED)
  }
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
  method: string,
  url: string,
  raw: readonly string[],
  bytes: Uint8Array,
  signal: AbortSignal,
): Request | undefined {
  try {
    const headers = new Headers()
    for (let i = 0; i + 1 < raw.length; i += 2) {
      // HTTP/2 has pseudo-headers.
      if (!raw[i]?.startsWith(':')) headers.append(raw[i] ?? '', raw[i + 1] ?? '')
    }
    const body = method === 'GET' || method === 'HEAD' ? undefined : (bytes as Uint8Array<ArrayBuffer>)
    return new Request(url, { method, headers, body, signal })
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
    await body?.cancel()
    res.end()
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

/** The whole URL of a request over node:http. */
export function urlOf(path: string, host: string | undefined, encrypted: boolean): string | undefined {
  // An absolute path only: `//other.example/` would name another host.
  if (!/^\/(?!\/)/.test(path)) return undefined
  const url = `${encrypted ? 'https' : 'http'}://${host ?? 'localhost'}${path}`
  return URL.canParse(url) ? url : undefined
}
