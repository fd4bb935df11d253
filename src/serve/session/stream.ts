/**
 * One stream of events to a client of a session: the answer to a POST, or the session's own stream.
 *
 * E1 A POST is answered with plain JSON as long as nothing has to be told before its responses. E2 A stream outlives
 * its connection: what is said meanwhile is kept, and a client that comes back with the id of the last event it saw
 * gets the rest. E3 Whoever does not come back in time is given up. E4 A stream that is over is kept for the same
 * time, for a client that missed its end.
 */

import {
  JSON_HEADERS,
  type Outlet,
  openStream,
  SSE_COMMENT,
  type StreamOptions,
  toEvent,
} from '../http/line.ts'
import type { Channel } from './line.ts'
import { type Keeper, type SessionSettings, UNCOUNTED } from './options.ts'

export interface StreamSetup {
  readonly number: number
  readonly settings: SessionSettings
  /** Where the bytes of the events that are kept come from. */
  readonly keeper: Keeper
  readonly http: StreamOptions
  /** Begins with an id, so that the client can come back before the first message. */
  readonly primed: boolean
  /** The client reads streams. */
  readonly streams: boolean
  /** Responses that are to come, and whether they are sent as a batch; 0 for a stream that just stays open. */
  readonly responses: number
  readonly batch: boolean
  /** There are events from now on, so there is something to come back to. */
  onOpen(stream: SessionStream): void
  /** The client has gone for good. */
  onLost(): void
}

/** An event that has an id of its own. */
export interface WholeEvent {
  readonly id: string
  /** All of it, with the blank line at its end. */
  readonly text: string
}

export class SessionStream implements Channel {
  readonly number: number
  readonly #setup: StreamSetup
  readonly #log: EventLog
  readonly #plain: string[] = []
  #left: number
  #outlet: Outlet | undefined
  #stopKeepAlive: (() => void) | undefined
  #openedAt: number | undefined
  #leftAt: number | undefined
  #ended = false

  constructor(setup: StreamSetup, outlet: Outlet) {
    this.number = setup.number
    this.#setup = setup
    this.#log = new EventLog(setup.number, setup.settings.maxReplayBytes, setup.keeper)
    this.#left = setup.responses
    this.#hold(outlet)
    if (setup.responses === 0) this.#begin(outlet)
  }

  get open(): boolean {
    return this.#setup.streams && !this.#ended
  }

  get ended(): boolean {
    return this.#ended
  }

  get attached(): boolean {
    return this.#outlet !== undefined
  }

  send(json: string, droppable: boolean, eventId?: string): void {
    if (!this.open) return
    const outlet = this.#outlet
    if (this.#openedAt === undefined && outlet !== undefined) this.#begin(outlet)
    const clogged = outlet !== undefined && outlet.backlog > this.#setup.http.maxBacklog
    if (droppable && (outlet === undefined || clogged)) return
    const event = this.#log.append(json, droppable, eventId)
    // A client that does not read is cut off; what it missed is kept as for any other that lost its connection.
    if (clogged) outlet.drop()
    else this.#outlet?.write(event)
  }

  /** A comment on the stream, which begins with it if need be. */
  beat(): void {
    const outlet = this.#outlet
    if (!this.open || outlet === undefined) return
    if (this.#openedAt === undefined) this.#begin(outlet)
    if (outlet.backlog <= this.#setup.http.maxBacklog) outlet.write(SSE_COMMENT)
  }

  /** One of the responses; the last one ends the stream. Undefined stands for one that is not sent. */
  respond(json: string | undefined): void {
    this.#left -= 1
    if (json !== undefined && this.#openedAt !== undefined) {
      this.send(json, false)
    } else if (json !== undefined) this.#plain.push(json)
    if (this.#left === 0) this.#finish()
  }

  /** Events that stand for the response; they end the stream. */
  endWith(events: readonly WholeEvent[]): void {
    if (!this.open) return
    if (this.#openedAt === undefined && this.#outlet !== undefined) this.#begin(this.#outlet)
    for (const { id, text } of events) this.#outlet?.write(this.#log.appendWhole(id, text))
    this.end()
  }

  /** The number of an event that has an id of its own. */
  numberOf(eventId: string): number | undefined {
    return this.#log.numberOf(eventId)
  }

  /** A client comes back with the number of the last event it saw. False if what it missed is gone. */
  resume(outlet: Outlet, after: number): boolean {
    const missed = this.#log.after(after)
    if (missed === undefined) return false
    this.#release()?.end()
    this.#hold(outlet)
    this.#openedAt = this.#setup.settings.now()
    this.#stopKeepAlive = openStream(outlet, this.#setup.http)
    for (const event of missed) outlet.write(event)
    if (this.#ended) {
      this.#leftAt = this.#setup.settings.now()
      this.#release()?.end()
    }
    return true
  }

  /** Nothing of it is kept any longer. */
  forget(): void {
    this.end()
    this.#log.forget()
  }

  /** Nothing more follows. */
  end(): void {
    if (this.#ended) return
    this.#ended = true
    this.#leftAt = this.#setup.settings.now()
    this.#release()?.end()
  }

  /** Looks at the clock. True if the stream can be forgotten. */
  sweep(now: number): boolean {
    const { resumeMs, streamMs } = this.#setup.settings
    const { primed, responses } = this.#setup
    const polls = primed && responses > 0 && resumeMs > 0 && this.#openedAt !== undefined
    if (polls && this.#outlet !== undefined && now - (this.#openedAt ?? now) >= streamMs) {
      this.#leftAt = now
      this.#release()?.end()
    }
    if (this.#leftAt === undefined || this.#outlet !== undefined || now - this.#leftAt < resumeMs)
      return false
    if (!this.#ended) this.#lose()
    return true
  }

  #hold(outlet: Outlet): void {
    this.#outlet = outlet
    this.#leftAt = undefined
    outlet.onGone(() => {
      if (this.#outlet === outlet) this.#leave()
    })
  }

  /** Lets go of the connection; gives it back. */
  #release(): Outlet | undefined {
    const outlet = this.#outlet
    this.#outlet = undefined
    this.#stopKeepAlive?.()
    this.#stopKeepAlive = undefined
    return outlet
  }

  #begin(outlet: Outlet): void {
    this.#openedAt = this.#setup.settings.now()
    this.#stopKeepAlive = openStream(outlet, this.#setup.http)
    this.#setup.onOpen(this)
    const { retryMs, resumeMs } = this.#setup.settings
    if (this.#setup.primed && resumeMs > 0) outlet.write(this.#log.prime(retryMs))
    // Headers leave with the first byte of the body, and a stream that just stays open may have none for long.
    else if (this.#setup.responses === 0) outlet.write(SSE_COMMENT)
    for (const json of this.#plain.splice(0)) outlet.write(this.#log.append(json, false))
  }

  /** The connection is lost. Where no event had an id yet, or none is kept, there is nothing to come back to. */
  #leave(): void {
    const { now, resumeMs } = this.#setup.settings
    this.#release()
    this.#leftAt = now()
    if (this.#openedAt === undefined || resumeMs === 0) this.#lose()
  }

  #lose(): void {
    this.#ended = true
    this.#setup.onLost()
  }

  #finish(): void {
    const outlet = this.#outlet
    if (this.#openedAt === undefined && outlet !== undefined) {
      const body = this.#setup.batch ? `[${this.#plain.join(',')}]` : (this.#plain[0] ?? '')
      const status = this.#plain.length > 0 ? 200 : 202
      this.#release()
      outlet.send(
        status === 200 ? { status, headers: JSON_HEADERS, body } : { status, headers: {}, body: '' },
      )
    }
    this.end()
  }
}

/*
 * The last events of one stream, so that a client that lost its connection can have the rest of it.
 *
 * L1 An id is `<stream>-<number>`, unless its event was given one; numbers grow by one and are never used twice. L2 At most
 * `maxBytes` are kept, or a single event: the oldest progress and logs go first, then the oldest of all; an event for which
 * the session has no room is sent and not kept. L3 A client that misses a message which
 * is no longer here is told so instead of getting a stream with a hole; progress and logs may be missing.
 */

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
