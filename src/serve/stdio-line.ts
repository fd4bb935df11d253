/**
 * The line of one request over stdio. There is no stream of its own to close: the client cancels by a message, and
 * from then on nothing is written for this request, not even its response.
 */

import type { Line } from '../protocol/call.ts'
import { encodeNotification } from '../protocol/rev-2026-07-28/encode.ts'
import { Pulse } from './heartbeat.ts'

/** Where all messages to the client go. */
export interface StdioOutput {
  write(json: string): void
  /** True while the client leaves too much unread. */
  readonly clogged: boolean
}

export class StdioLine implements Line {
  readonly #output: StdioOutput
  readonly #listeners = new Set<() => void>()
  readonly #pulse = new Pulse()
  #closed = false
  #finished = false

  constructor(output: StdioOutput) {
    this.#output = output
  }

  get closed(): boolean {
    return this.#closed
  }

  onClose(listener: () => void): () => void {
    // One function may listen twice and leave once.
    const entry = (): void => listener()
    if (this.#closed) listener()
    else this.#listeners.add(entry)
    return () => {
      this.#listeners.delete(entry)
    }
  }

  notify(method: string, params: Record<string, unknown>): void {
    // Progress and logs may be left out for a client that does not read.
    if (this.#closed || this.#finished || this.#output.clogged) return
    this.#output.write(encodeNotification(method, this.#pulse.say(method, params)))
  }

  /** Shows that the call is alive, if it has been silent. False when there is nothing more to show. */
  beat(progressToken: string | number): boolean {
    if (this.#closed || this.#finished) return false
    if (this.#pulse.isQuiet() && !this.#output.clogged) {
      this.#output.write(encodeNotification('notifications/progress', this.#pulse.beat(progressToken)))
    }
    return true
  }

  finish(json: string): void {
    if (!this.#closed && !this.#finished) this.#output.write(json)
    this.#finished = true
    this.#listeners.clear()
  }

  /** The client has cancelled, or has gone. */
  cancel(): void {
    if (this.#closed || this.#finished) return
    this.#closed = true
    const listeners = [...this.#listeners]
    this.#listeners.clear()
    for (const listener of listeners) listener()
  }
}
