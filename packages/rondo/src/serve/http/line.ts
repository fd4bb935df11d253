/**
 * The way out of one HTTP request: `Outlet` is what each runtime implements, `HttpLine` what a call sees of it.
 *
 * The response is JSON as long as nothing has to be sent before it, and a stream of server-sent events from the first
 * notification or heartbeat on, with the response as the last event (B1). An event carries one JSON-RPC message and has no
 * id; comments are keep-alives. When the client goes away, the call is cancelled: the listeners run once and nothing more
 * is written.
 *
 * A message is one line. Valid JSON has line breaks only between its tokens, where a space means the same, so no text
 * of a tool or a client can begin a field of its own (T15).
 */

import type { RondoError } from '../../errors.ts'
import type { Line, RequestId } from '../../protocol/call.ts'
import type { RequestHeaders } from '../../protocol/common/headers.ts'
import { encodeError, encodeNotification } from '../../protocol/common/json-rpc.ts'
import { Pulse } from '../heartbeat.ts'
import type { HttpHeaders, HttpResponse, Outlet, StreamOptions } from '../port.ts'

// A class, not a closure: an object literal with a getter costs more than the rest of the way out together.
export class HttpLine implements Line {
  readonly #outlet: Outlet
  readonly #headers: RequestHeaders
  readonly #options: StreamOptions
  #stopKeepAlive: (() => void) | undefined = undefined
  #finished = false
  /** Created with the first notification or heartbeat. */
  #pulse: Pulse | undefined

  constructor(outlet: Outlet, headers: RequestHeaders, options: StreamOptions) {
    this.#outlet = outlet
    this.#headers = headers
    this.#options = options
  }

  get closed(): boolean {
    return this.#outlet.gone
  }

  get begun(): boolean {
    return this.#stopKeepAlive !== undefined
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
    if (!this.#stream()) return
    this.#pulse ??= new Pulse()
    outlet.write(toEvent(encodeNotification(method, this.#pulse.say(method, params))))
  }

  /** Opens the stream unless it is open; false if the client reads no streams. */
  #stream(): boolean {
    if (this.#stopKeepAlive !== undefined) return true
    if (!readsStreams(this.#headers.accept)) return false
    this.#stopKeepAlive = openStream(this.#outlet, this.#options)
    return true
  }

  beat(progressToken: string | number | undefined): void {
    const outlet = this.#outlet
    if (this.#finished || outlet.gone || outlet.ended) return
    this.#pulse ??= new Pulse()
    if (!this.#pulse.isQuiet() || outlet.backlog > this.#options.maxBacklog || !this.#stream()) return
    if (progressToken === undefined) outlet.write(SSE_COMMENT)
    else outlet.write(toEvent(encodeNotification('notifications/progress', this.#pulse.beat(progressToken))))
  }

  /** Sends the response and ends the request. A stream that has begun cannot carry the status and `headers`. */
  finish(status: number, body: string, headers?: HttpHeaders): void {
    if (this.#finished) return
    this.#finished = true
    this.#stopKeepAlive?.()
    if (this.#outlet.gone) return
    if (this.#stopKeepAlive === undefined) {
      this.#outlet.send({ status, headers: headers ? { ...JSON_HEADERS, ...headers } : JSON_HEADERS, body })
    } else {
      this.#outlet.write(toEvent(body))
      this.#outlet.end()
    }
  }
}

/** Opens the stream and starts its keep-alive; returns a function that stops the keep-alive. */
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

const BREAK = /[\r\n]/
const BREAKS = /[\r\n]+/g

const SSE_HEADERS: Readonly<Record<string, string>> = {
  'Content-Type': 'text/event-stream',
  'Cache-Control': 'no-store',
  'X-Accel-Buffering': 'no',
}

export const SSE_COMMENT = ': still here\n\n'

/** The event that carries one message. */
export function toEvent(json: string): string {
  return `event: message\ndata: ${toLine(json)}\n\n`
}

/** One message without line breaks. */
export function toLine(json: string): string {
  return BREAK.test(json) ? json.replace(BREAKS, ' ') : json
}

export const JSON_HEADERS: HttpHeaders = { 'Content-Type': 'application/json' }

/** An error as a whole response. */
export function refusal(error: RondoError, id: RequestId | null = null, headers?: HttpHeaders): HttpResponse {
  return {
    status: error.http,
    headers:
      headers === undefined && error.headers === undefined
        ? JSON_HEADERS
        : { ...JSON_HEADERS, ...error.headers, ...headers },
    body: encodeError(id, error),
  }
}
