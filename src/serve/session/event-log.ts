/**
 * The last events of one stream, kept so that a client that lost its connection can read the rest.
 *
 * log 1  An event id is `<stream>-<number>` unless the event came with its own. Numbers grow by one and are never reused.
 * log 2  At most `maxBytes` are kept, or a single event. The oldest progress and log events are evicted first, then the
 *        oldest of all. An event for which the session has no room is sent and not kept.
 * log 3  A client that missed a message which is no longer kept is told so: its stream never has a silent gap. Progress
 *        and log events may be missing.
 */

import { toEvent } from '../http/line.ts'
import { type MemoryBudget, UNCOUNTED } from './options.ts'

interface Kept {
  readonly number: number
  /** Set if the event came with its own id. */
  readonly id?: string
  readonly text: string
  readonly droppable: boolean
}

export class EventLog {
  readonly #stream: string
  readonly #maxBytes: number
  readonly #budget: MemoryBudget
  #kept: Kept[] = []
  #bytes = 0
  #number = 0
  /** The number of the last event that was evicted although a client must not miss it. */
  #lost = 0

  /** `after` is the number of the last event that was sent before. */
  constructor(stream: string, maxBytes: number, budget: MemoryBudget = UNCOUNTED, after = 0) {
    this.#stream = stream
    this.#number = after
    this.#lost = after
    this.#maxBytes = maxBytes
    this.#budget = budget
  }

  /** The number of the last event. */
  get last(): number {
    return this.#number
  }

  get bytes(): number {
    return this.#bytes
  }

  /** Keeps one message and returns its event. */
  append(json: string, droppable: boolean, id?: string): string {
    const text = `id: ${id ?? `${this.#stream}-${this.#number + 1}`}\n${toEvent(json)}`
    return this.#keep({ number: this.#number + 1, id, text, droppable })
  }

  /** Keeps an event that is complete and has its own id. */
  appendWhole(id: string, text: string): string {
    return this.#keep({ number: this.#number + 1, id, text, droppable: false })
  }

  /** The number of an event that came with its own id. */
  numberOf(id: string): number | undefined {
    return this.#kept.find((event) => event.id === id)?.number
  }

  /** An event without a message, from whose id the client can resume. */
  prime(retryMs: number): string {
    return `id: ${this.#stream}-${this.#number}\nretry: ${retryMs}\ndata: \n\n`
  }

  /** The events after `number`, or undefined if one of them is lost. */
  after(number: number): string[] | undefined {
    if (number > this.#number || number < this.#lost) return undefined
    return this.#kept.filter((event) => event.number > number).map(({ text }) => text)
  }

  /** Releases everything: nobody will resume the stream. */
  forget(): void {
    this.#budget.release(this.#bytes)
    this.#bytes = 0
    this.#kept = []
    this.#lost = this.#number
  }

  #keep(event: Kept): string {
    this.#number = event.number
    if (!this.#budget.take(event.text.length)) {
      if (!event.droppable) this.#lost = event.number
      return event.text
    }
    this.#kept.push(event)
    this.#bytes += event.text.length
    while (this.#bytes > this.#maxBytes && this.#kept.length > 1) this.#evict()
    return event.text
  }

  #evict(): void {
    const index = Math.max(
      0,
      this.#kept.findIndex(({ droppable }) => droppable),
    )
    const [evicted] = this.#kept.splice(index, 1)
    if (evicted === undefined) return
    this.#bytes -= evicted.text.length
    this.#budget.release(evicted.text.length)
    if (!evicted.droppable) this.#lost = evicted.number
  }
}

const EVENT_ID = /^([\w-]{1,64})-(\d{1,9})$/

/** The stream and the number in an event id; undefined if the id does not come from an `EventLog`. */
export function readEventId(id: string): { readonly stream: string; readonly number: number } | undefined {
  const match = EVENT_ID.exec(id)
  return match ? { stream: match[1] ?? '', number: Number(match[2]) } : undefined
}
