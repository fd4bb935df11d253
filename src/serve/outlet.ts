/**
 * The way out of one HTTP request, whatever serves it. Either `send` is called once, or `open`, then `write` any
 * number of times, then `end`. After the client has gone nothing is written.
 */

import type { HttpAnswer, HttpHeaders } from './http-answer.ts'

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
  /** Calls `listener` when the client goes before the end; gives a function that stops listening. */
  onGone(listener: () => void): () => void
}
