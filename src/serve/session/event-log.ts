/**
 * The last events of one stream, so that a client that lost its connection can have the rest of it.
 *
 * L1 An id is `<stream>-<number>`, unless its event was given one; numbers grow by one and are never used twice. L2 At most
 * `maxBytes` are kept, or a single event: the oldest progress and logs go first, then the oldest of all; an event for which
 * the session has no room is sent and not kept. L3 A client that misses a message which
 * is no longer here is told so instead of getting a stream with a hole; progress and logs may be missing.
 */

import { toEvent } from '../sse.ts'
import { type Keeper, UNCOUNTED } from './tally.ts'

interface Kept {
  readonly number: number
  /** An id of its own. */
  readonly id?: string
  readonly text: string
  readonly droppable: boolean
}

export class EventLog {
  readonly #stream: number
  readonly #maxBytes: number
  readonly #keeper: Keeper
  #kept: Kept[] = []
  #bytes = 0
  #number = 0
  /** The last message that had to go although it matters. */
  #lost = 0

  constructor(stream: number, maxBytes: number, keeper: Keeper = UNCOUNTED) {
    this.#stream = stream
    this.#maxBytes = maxBytes
    this.#keeper = keeper
  }

  get bytes(): number {
    return this.#bytes
  }

  /** Keeps one message; gives its event. */
  append(json: string, droppable: boolean, id?: string): string {
    const text = `id: ${id ?? `${this.#stream}-${this.#number + 1}`}\n${toEvent(json)}`
    return this.#keep({ number: this.#number + 1, id, text, droppable })
  }

  /** Keeps an event that has an id and is whole. */
  appendWhole(id: string, text: string): string {
    return this.#keep({ number: this.#number + 1, id, text, droppable: false })
  }

  /** The number of the event that was given this id. */
  numberOf(id: string): number | undefined {
    return this.#kept.find((event) => event.id === id)?.number
  }

  /** An event without a message: from now on the client has an id to come back with. */
  prime(retryMs: number): string {
    return `id: ${this.#stream}-${this.#number}\nretry: ${retryMs}\ndata: \n\n`
  }

  /** The events after `number`, or undefined if one of them is gone. */
  after(number: number): string[] | undefined {
    if (number > this.#number || number < this.#lost) return undefined
    return this.#kept.filter((event) => event.number > number).map(({ text }) => text)
  }

  /** Nobody will come back to the stream. */
  forget(): void {
    this.#keeper.give(this.#bytes)
    this.#bytes = 0
    this.#kept = []
    this.#lost = this.#number
  }

  #keep(event: Kept): string {
    this.#number = event.number
    if (!this.#keeper.take(event.text.length)) {
      if (!event.droppable) this.#lost = event.number
      return event.text
    }
    this.#kept.push(event)
    this.#bytes += event.text.length
    while (this.#bytes > this.#maxBytes && this.#kept.length > 1) this.#dropOldest()
    return event.text
  }

  #dropOldest(): void {
    const index = Math.max(
      0,
      this.#kept.findIndex(({ droppable }) => droppable),
    )
    const [gone] = this.#kept.splice(index, 1)
    if (gone === undefined) return
    this.#bytes -= gone.text.length
    this.#keeper.give(gone.text.length)
    if (!gone.droppable) this.#lost = gone.number
  }
}

const EVENT_ID = /^(\d{1,9})-(\d{1,9})$/

/** The stream and the number of an event id; undefined for one that is none of ours. */
export function readEventId(id: string): { readonly stream: number; readonly number: number } | undefined {
  const match = EVENT_ID.exec(id)
  return match ? { stream: Number(match[1]), number: Number(match[2]) } : undefined
}
