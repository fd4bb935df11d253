/**
 * `server.fetch`: the web-standard entrance, for Hono, Workers, Deno, Bun, Next.js and everything else that calls a
 * function from `Request` to `Response`. It ignores the path, because the framework has already routed the request.
 *
 * The limit on the body holds while it streams. A response is a string if it is complete, and a stream of bytes otherwise.
 * The client has gone when it cancels that stream or when the signal of its request fires.
 */

import { readWebBody } from '../../lib/body.ts'
import { defineOptions, number, type OptionSet, type OptionsOf } from '../../options.ts'
import type { RequestHeaders } from '../../protocol/common/headers.ts'
import type { HttpHeaders, HttpResponse, Outlet } from '../port.ts'
import type { Exchange } from './exchange.ts'
import { toResponse } from './route.ts'

export interface FetchOptions {
  /** The largest request body that is accepted; then `LIMIT_BODY`. Default: 1 MiB. */
  maxBodyBytes?: number
}

export const BODY_OPTIONS: OptionSet<OptionsOf<Required<FetchOptions>>> = defineOptions('nodeHandler', {
  maxBodyBytes: number(1_048_576),
})

export type FetchHandler = (request: Request) => Promise<Response>

export function createFetchHandler(exchange: Exchange, options: FetchOptions = {}): FetchHandler {
  const { maxBodyBytes } = BODY_OPTIONS.pick(options)
  return (request) =>
    new Promise((resolve) => {
      const { method, url, signal, body } = request
      const outlet = new FetchOutlet(signal, resolve, exchange.onError)
      const serving = exchange.serve({
        method,
        url,
        headers: headersOf(request),
        outlet,
        maxBodyBytes,
        read: (bounds) => readWebBody(body, bounds),
        share: (headers) => outlet.share(headers),
        abandon() {},
        async respond(response) {
          resolve(response)
        },
      })
      // Nobody reads it, but a framework may still wait for a response.
      void serving.then(() => {
        if (outlet.gone) resolve(new Response(null, { status: CLIENT_GONE }))
      })
    })
}

/** The usual status, in logs, of a request whose client has disconnected. */
const CLIENT_GONE = 499

/** A request that was created in memory has no Host header; its URL names the host. */
function headersOf(request: Request): RequestHeaders {
  const headers: Record<string, string> = Object.fromEntries(request.headers)
  headers.host ??= new URL(request.url).host
  return headers
}

const encoder = new TextEncoder()

class FetchOutlet implements Outlet {
  readonly #signal: AbortSignal
  readonly #respond: (response: Response) => void
  readonly #onError: (error: unknown) => void
  readonly #listeners = new Set<() => void>()
  #stream: ReadableStreamDefaultController<Uint8Array> | undefined = undefined
  #shared: HttpHeaders | undefined = undefined
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

  /** Adds headers to whatever response follows. */
  share(headers: HttpHeaders | undefined): void {
    this.#shared = headers
  }

  send({ status, headers, body }: HttpResponse): void {
    // Throws if a header cannot be sent. Then another response may still follow.
    const response = toResponse({ status, headers: { ...headers, ...this.#shared }, body })
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
    this.#respond(new Response(stream, { status: 200, headers: { ...headers, ...this.#shared } }))
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
