/**
 * `server.fetch`: the web-standard entrance, for Hono, Workers, Deno, Bun, Next.js and whatever takes a function from
 * `Request` to `Response`. It looks at no path: the framework has routed already.
 */

import { RondoError } from '../errors.ts'
import type { HeaderReader } from '../protocol/rev-2026-07-28/headers.ts'
import { readBody } from './fetch-body.ts'
import { FetchOutlet } from './fetch-outlet.ts'
import type { Exchange } from './http.ts'
import { type HttpAnswer, refusal } from './http-answer.ts'

export interface FetchOptions {
  /** The largest body that is read. 1 MiB unless given. */
  maxBodyBytes?: number
}

export type FetchHandler = (request: Request) => Promise<Response>

export function createFetchHandler(exchange: Exchange, options: FetchOptions = {}): FetchHandler {
  const limit = options.maxBodyBytes ?? 1_048_576

  const respond = async (request: Request, headers: HeaderReader): Promise<Response> => {
    const { method, url, signal } = request
    const early = exchange.admit(method, headers)
    if (early !== undefined) return toResponse(early)
    const who = await exchange.identify?.({ headers, method, url })
    if (who?.kind === 'refused') return toResponse(who.answer)
    const through = (serve: (outlet: FetchOutlet) => void): Promise<Response> =>
      new Promise((resolve) => {
        const outlet = new FetchOutlet(signal, resolve, exchange.onError)
        try {
          serve(outlet)
        } catch (error) {
          exchange.fail(error, outlet)
        }
      })
    if (method !== 'POST') {
      return through((outlet) => exchange.serveBare(method, headers, who?.principal, outlet))
    }
    const body = await readBody(request, limit)
    if (body.kind === 'too-large') return toResponse(refusal(new RondoError('LIMIT_BODY')))
    if (body.kind === 'broken') return toResponse(refusal(new RondoError('PEER_PARSE', body.detail)))
    return through((outlet) => exchange.serve(body.text, headers, who?.principal, outlet))
  }

  const answer = async (request: Request): Promise<Response> => {
    const headers = headersOf(request)
    const response = await respond(request, headers)
    const shared = exchange.shared(headers('origin'))
    for (const name in shared) response.headers.set(name, shared[name] ?? '')
    return response
  }

  return (request) =>
    answer(request).catch(
      (error: unknown) =>
        new Promise((resolve) => {
          exchange.fail(error, new FetchOutlet(request.signal, resolve))
        }),
    )
}

/** A request that was made in memory has no Host header; its URL names the host. */
function headersOf(request: Request): HeaderReader {
  return (name) => request.headers.get(name) ?? (name === 'host' ? new URL(request.url).host : undefined)
}

function toResponse({ status, headers, body }: HttpAnswer): Response {
  return new Response(body === '' ? null : body, { status, headers: { ...headers } })
}
