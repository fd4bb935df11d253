/**
 * The line of one HTTP request: JSON as long as nothing has to be told before the response, a stream of events from
 * the first notification on. The response is the last event (B1). When the client goes, the request is cancelled:
 * the listeners run once and nothing more is written.
 */

import type { Line } from '../protocol/call.ts'
import { encodeNotification } from '../protocol/rev-2026-07-28/encode.ts'
import type { HeaderReader } from '../protocol/rev-2026-07-28/headers.ts'
import type { Every } from './every.ts'
import { JSON_HEADERS } from './http-answer.ts'
import type { Outlet } from './outlet.ts'
import { SSE_COMMENT, SSE_HEADERS, toEvent } from './sse.ts'

export interface StreamOptions {
  readonly keepAliveMs: number
  readonly every: Every
  /** Bytes a client may leave unread. */
  readonly maxBacklog: number
}

// A class, not a closure: an object literal with a getter costs more than the rest of the way out together.
export class HttpLine implements Line {
  readonly #outlet: Outlet
  readonly #headers: HeaderReader
  readonly #options: StreamOptions
  #stopKeepAlive: (() => void) | undefined = undefined
  #finished = false

  constructor(outlet: Outlet, headers: HeaderReader, options: StreamOptions) {
    this.#outlet = outlet
    this.#headers = headers
    this.#options = options
  }

  get closed(): boolean {
    return this.#outlet.gone
  }

  onClose(listener: () => void): () => void {
    return this.#outlet.onGone(() => {
      if (!this.#finished) listener()
    })
  }

  notify(method: string, params: Record<string, unknown>): void {
    const outlet = this.#outlet
    // Progress and logs may be left out for a client that cannot read a stream, or does not.
    if (this.#finished || outlet.gone || outlet.backlog > this.#options.maxBacklog) return
    if (this.#stopKeepAlive === undefined) {
      if (!readsStreams(this.#headers('accept'))) return
      this.#stopKeepAlive = openStream(outlet, this.#options)
    }
    outlet.write(toEvent(encodeNotification(method, params)))
  }

  /** Sends the response and ends the request. */
  finish(status: number, body: string): void {
    if (this.#finished) return
    this.#finished = true
    this.#stopKeepAlive?.()
    if (this.#outlet.gone) return
    if (this.#stopKeepAlive === undefined) {
      this.#outlet.send({ status, headers: JSON_HEADERS, body })
    } else {
      this.#outlet.write(toEvent(body))
      this.#outlet.end()
    }
  }

  /** Sends events that stand for the response and ends the request. */
  finishWith(events: string): void {
    if (this.#finished) return
    this.#finished = true
    this.#stopKeepAlive?.()
    if (this.#outlet.gone) return
    if (this.#stopKeepAlive === undefined) this.#outlet.open(SSE_HEADERS)
    this.#outlet.write(events)
    this.#outlet.end()
  }
}

/** Begins the stream and its keep-alive; gives what stops the keep-alive. */
export function openStream(outlet: Outlet, options: StreamOptions): () => void {
  outlet.open(SSE_HEADERS)
  const stop = options.every(options.keepAliveMs, () => outlet.write(SSE_COMMENT))
  const forget = outlet.onGone(stop)
  return () => {
    stop()
    forget()
  }
}

export function readsStreams(accept: string | undefined): boolean {
  return accept === undefined || accept.includes('text/event-stream') || accept.includes('*/*')
}
