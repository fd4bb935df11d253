/**
 * The line of one HTTP request: JSON as long as nothing has to be told before the response, a stream of events from
 * the first notification or heartbeat on. The response is the last event (B1). When the client goes, the request is cancelled:
 * the listeners run once and nothing more is written.
 */

import type { RondoError } from '../../errors.ts'
import type { Line, RequestId } from '../../protocol/call.ts'
import type { RequestHeaders } from '../../protocol/common/headers.ts'
import { encodeError, encodeNotification } from '../../protocol/common/json-rpc.ts'
import { type BeatOptions, Pulse } from '../heartbeat.ts'

export interface StreamOptions extends BeatOptions {
  readonly keepAliveMs: number
  /** Bytes a client may leave unread. */
  readonly maxBacklog: number
}

// A class, not a closure: an object literal with a getter costs more than the rest of the way out together.
export class HttpLine implements Line {
  readonly #outlet: Outlet
  readonly #headers: RequestHeaders
  readonly #options: StreamOptions
  #stopKeepAlive: (() => void) | undefined = undefined
  #finished = false
  /** Created when something is said. */
  #pulse: Pulse | undefined
  readonly #stopBeating: () => void
  /** Beats are progress where the request has one. */
  readonly #progressToken: string | number | undefined

  constructor(
    outlet: Outlet,
    headers: RequestHeaders,
    options: StreamOptions,
    progressToken?: string | number,
  ) {
    this.#outlet = outlet
    this.#headers = headers
    this.#options = options
    this.#progressToken = progressToken
    this.#stopBeating =
      options.heartbeatMs === 0
        ? () => {}
        : options.every(options.heartbeatMs, () => {
            if (!this.#beat()) this.#stopBeating()
          })
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
    if (!this.#stream()) return
    this.#pulse ??= new Pulse()
    outlet.write(toEvent(encodeNotification(method, this.#pulse.say(method, params))))
  }

  /** True if there is a stream, or can be one from now on. */
  #stream(): boolean {
    if (this.#stopKeepAlive !== undefined) return true
    if (!readsStreams(this.#headers.accept)) return false
    this.#stopKeepAlive = openStream(this.#outlet, this.#options)
    return true
  }

  /** False when there will be no more. */
  #beat(): boolean {
    const outlet = this.#outlet
    if (this.#finished || outlet.gone || outlet.ended) return false
    this.#pulse ??= new Pulse()
    if (!this.#pulse.isQuiet() || outlet.backlog > this.#options.maxBacklog) return true
    if (!this.#stream()) return false
    const progressToken = this.#progressToken
    if (progressToken === undefined) outlet.write(SSE_COMMENT)
    else outlet.write(toEvent(encodeNotification('notifications/progress', this.#pulse.beat(progressToken))))
    return true
  }

  /** Nothing goes out after this but the response. */
  #stop(): void {
    this.#finished = true
    this.#stopBeating()
    this.#stopKeepAlive?.()
  }

  /** Sends the response and ends the request. */
  finish(status: number, body: string): void {
    if (this.#finished) return
    this.#stop()
    if (this.#outlet.gone) return
    if (this.#stopKeepAlive === undefined) {
      this.#outlet.send({ status, headers: JSON_HEADERS, body })
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

/*
 * Server-sent events as this protocol uses them: one JSON-RPC message per event, comments as signs of life, no ids.
 *
 * A message is one line. Valid JSON has line breaks only between its tokens, where a blank means the same, so no text
 * that comes from a tool or a client can begin a field of its own (T15).
 */

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

/*
 * The way out of one HTTP request, whatever serves it. Either `send` is called once, or `open`, then `write` any
 * number of times, then `end`. After the client has gone nothing is written.
 */

export interface Outlet {
  send(answer: HttpAnswer): void
  /** Begins a response of unknown length. */
  open(headers: HttpHeaders): void
  write(text: string): void
  end(): void
  /** Sends `answer` where nothing was sent yet, and cuts the connection otherwise. */
  fail(answer: HttpAnswer): void
  /** Cuts the connection: the client does not read what it asked for. */
  drop(): void
  /** True once the client has gone. */
  readonly gone: boolean
  /** True once the response is complete. */
  readonly ended: boolean
  /** Where the connection comes from, as far as this runtime tells. */
  readonly address: string | undefined
  /** Bytes that were written and that the client has not taken yet. */
  readonly backlog: number
  /** Calls `listener` when the client goes before the end; returns a function that stops listening. */
  onGone(listener: () => void): () => void
}

export type HttpHeaders = Readonly<Record<string, string>>

/** A response that is complete when it begins. */
export interface HttpAnswer {
  readonly status: number
  readonly headers: HttpHeaders
  readonly body: string
}

export const JSON_HEADERS: HttpHeaders = { 'Content-Type': 'application/json' }

/** An error as a whole response. */
export function refusal(error: RondoError, id: RequestId | null = null, headers?: HttpHeaders): HttpAnswer {
  return {
    status: error.http,
    headers: headers === undefined ? JSON_HEADERS : { ...JSON_HEADERS, ...headers },
    body: encodeError(id, error),
  }
}
