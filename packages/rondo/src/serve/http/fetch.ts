/**
 * `server.fetch`: the web-standard entrance, for Hono, Workers, Deno, Bun, Next.js and everything else that calls a
 * function from `Request` to `Response`. It ignores the path, because the framework has already routed the request.
 *
 * The limit on the body holds while it streams. A response is a string if it is complete, and a stream of bytes otherwise.
 * The client has gone when it cancels that stream or when the signal of its request fires.
 */

import { RondoError } from '../../errors.ts'
import { readWebBody } from '../../lib/body.ts'
import { collectBytes } from '../../lib/collection.ts'
import type { RequestId } from '../../protocol/call.ts'
import type { RequestHeaders } from '../../protocol/common/headers.ts'
import { readRequestId } from '../../protocol/common/request-id.ts'
import { FREE_WEIGHT } from '../limits.ts'
import type { HttpHeaders, HttpResponse, Load, Outlet, Route } from '../port.ts'
import type { Exchange } from './exchange.ts'
import { refusal } from './line.ts'
import { toResponse } from './route.ts'

export interface FetchOptions {
  /** Bytes of the largest body that is read. Default: 1 MiB. */
  maxBodyBytes?: number
}

export type FetchHandler = (request: Request) => Promise<Response>

export function createFetchHandler(exchange: Exchange, options: FetchOptions = {}): FetchHandler {
  const limit = options.maxBodyBytes ?? 1_048_576

  const respond = async (request: Request, headers: RequestHeaders): Promise<Response> => {
    const { method, url, signal } = request
    const metadata = method === 'POST' ? undefined : exchange.metadata?.(method, url, headers)
    if (metadata !== undefined) return toResponse(metadata)
    const early = exchange.admit(method, headers)
    if (early !== undefined) return toResponse(early)
    const identified = await exchange.identify?.({ headers, method, url })
    if (identified?.kind === 'refused') return toResponse(identified.response)
    const principal = identified?.principal
    const through = (run: (outlet: FetchOutlet) => void): Promise<Response> =>
      new Promise((resolve) => {
        const outlet = new FetchOutlet(signal, resolve, exchange.onError)
        try {
          run(outlet)
        } catch (error) {
          exchange.fail(error, outlet)
        }
      })
    if (method !== 'POST') {
      return through((outlet) => exchange.serveBare({ method, headers, principal, outlet }))
    }
    const body = await readBody(request, limit, () => exchange.load({ headers, principal }))
    if (body.kind === 'too-large') return toResponse(refusal(new RondoError('LIMIT_BODY'), body.id))
    if (body.kind === 'no-room') return toResponse(exchange.busy())
    if (body.kind === 'broken') return toResponse(refusal(new RondoError('PEER_PARSE', body.detail), body.id))
    return through((outlet) => exchange.serve(body.text, { method, headers, principal, outlet }))
  }

  const routed = (route: Route, request: Request, headers: RequestHeaders): Promise<Response> => {
    const { method, url, signal, body } = request
    return exchange.serveRoute(
      route,
      {
        method,
        url,
        headers,
        raw: [...request.headers].flat(),
        signal,
        body: () => readWebBody(body, { limit, declared: headers['content-length'] }),
      },
      async () => {},
    )
  }

  const serve = async (request: Request): Promise<Response> => {
    const headers = headersOf(request)
    const route = exchange.routes?.(new URL(request.url).pathname)
    if (route !== undefined) return routed(route, request, headers)
    const response = await respond(request, headers)
    // What is open to every page stays so.
    if (response.headers.get('access-control-allow-origin') === '*') return response
    const shared = exchange.shared(headers.origin)
    for (const name in shared) response.headers.set(name, shared[name] ?? '')
    return response
  }

  return (request) =>
    serve(request).catch(
      (error: unknown) =>
        new Promise((resolve) => {
          exchange.fail(error, new FetchOutlet(request.signal, resolve))
        }),
    )
}

/** A request that was created in memory has no Host header; its URL names the host. */
function headersOf(request: Request): RequestHeaders {
  const headers: Record<string, string> = Object.fromEntries(request.headers)
  headers.host ??= new URL(request.url).host
  return headers
}

type FetchBody =
  | { readonly kind: 'text'; readonly text: string }
  | { readonly kind: 'too-large'; readonly id: RequestId | null }
  | { readonly kind: 'no-room' }
  | { readonly kind: 'broken'; readonly detail: string; readonly id: RequestId | null }

async function readBody(request: Request, limit: number, openLoad: () => Load): Promise<FetchBody> {
  if (Number(request.headers.get('content-length') ?? 0) > limit) {
    await request.body?.cancel()
    return { kind: 'too-large', id: null }
  }
  if (request.body === null) return { kind: 'text', text: '' }
  const reader = request.body.getReader()
  const collected = collectBytes()
  let load: Load | undefined
  let release = (): void => {}
  const hasRoom = (size: number): boolean => {
    if (size <= FREE_WEIGHT) return true
    if (load === undefined) {
      load = openLoad()
      release = load.hold()
    }
    // The block that collects the bytes may be twice as large.
    return load.weigh(2 * size)
  }
  try {
    for (;;) {
      const { done, value } = await reader.read()
      if (done) return toText(collected.take())
      const size = collected.size + value.byteLength
      const isTooLarge = size > limit
      if (!isTooLarge && hasRoom(size)) collected.add(value)
      else {
        await reader.cancel()
        return isTooLarge ? { kind: 'too-large', id: readRequestId(collected.take()) } : { kind: 'no-room' }
      }
    }
  } catch {
    return { kind: 'broken', detail: 'The body is incomplete', id: null }
  } finally {
    release()
  }
}

const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

function toText(bytes: Uint8Array): FetchBody {
  try {
    return { kind: 'text', text: decoder.decode(bytes) }
  } catch {
    return { kind: 'broken', detail: 'The body is not UTF-8', id: readRequestId(bytes) }
  }
}

const encoder = new TextEncoder()

class FetchOutlet implements Outlet {
  readonly #signal: AbortSignal
  readonly #respond: (response: Response) => void
  readonly #onError: (error: unknown) => void
  readonly #listeners = new Set<() => void>()
  #stream: ReadableStreamDefaultController<Uint8Array> | undefined = undefined
  #cancelled = false
  #ended = false

  constructor(
    signal: AbortSignal,
    respond: (response: Response) => void,
    onError: (error: unknown) => void = () => {},
  ) {
    this.#signal = signal
    this.#respond = respond
    this.#onError = onError
  }

  send({ status, headers, body }: HttpResponse): void {
    // Throws if a header cannot be sent. Then another response may still follow.
    const response = toResponse({ status, headers, body })
    this.#ended = true
    this.#respond(response)
  }

  open(headers: HttpHeaders): void {
    const stream = new ReadableStream<Uint8Array>(
      {
        start: (controller) => {
          this.#stream = controller
        },
        cancel: () => this.#leave(),
      },
      { highWaterMark: 0, size: (chunk) => chunk.byteLength },
    )
    this.#respond(new Response(stream, { status: 200, headers: { ...headers } }))
  }

  write(text: string): void {
    if (!this.gone && !this.#ended) this.#stream?.enqueue(encoder.encode(text))
  }

  end(): void {
    if (this.gone || this.#ended) return
    this.#ended = true
    this.#stream?.close()
  }

  fail(response: HttpResponse): void {
    if (this.#stream !== undefined || this.#ended) this.drop()
    else this.send(response)
  }

  drop(): void {
    if (this.gone || this.#ended) return
    this.#stream?.error(new Error('The client does not read the stream'))
    this.#leave()
  }

  get gone(): boolean {
    return this.#cancelled || this.#signal.aborted
  }

  get ended(): boolean {
    return this.#ended
  }

  get address(): undefined {
    return undefined
  }

  get backlog(): number {
    return -(this.#stream?.desiredSize ?? 0)
  }

  onGone(listener: () => void): () => void {
    if (this.gone) {
      listener()
      return () => {}
    }
    if (this.#listeners.size === 0) this.#signal.addEventListener('abort', this.#leave, { once: true })
    this.#listeners.add(listener)
    return () => {
      this.#listeners.delete(listener)
      if (this.#listeners.size === 0) this.#signal.removeEventListener('abort', this.#leave)
    }
  }

  readonly #leave = (): void => {
    this.#cancelled = true
    const listeners = [...this.#listeners]
    this.#listeners.clear()
    if (this.#ended) return
    for (const listener of listeners) {
      try {
        listener()
      } catch (error) {
        this.#onError(error)
      }
    }
  }
}
