/**
 * The way out as a web response: a string where the answer is whole, a stream of bytes where it is not. The client has
 * gone when it cancels the stream or when the request's own signal says so.
 */

import type { HttpAnswer, HttpHeaders } from './http-answer.ts'
import type { Outlet } from './outlet.ts'

const encoder = new TextEncoder()

export class FetchOutlet implements Outlet {
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

  send({ status, headers, body }: HttpAnswer): void {
    this.#ended = true
    this.#respond(new Response(body === '' ? null : body, { status, headers: { ...headers } }))
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

  fail(answer: HttpAnswer): void {
    if (this.#stream !== undefined || this.#ended) this.drop()
    else this.send(answer)
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
