/**
 * One stream of events to a client of a session: the response to a POST, or the session's own stream; and its last events,
 * kept so that a client that lost its connection can read the rest.
 *
 * stream 1  The response to a POST is plain JSON unless something has to be sent before it.
 * stream 2  A stream outlives its connection: events are kept meanwhile, and a client that resumes with the id of the
 *           last event that it saw receives the rest.
 * stream 3  If no client resumes in time, the stream is abandoned and its calls are cancelled.
 * stream 4  A finished stream is kept for the same time, for a client that missed its end.
 * log 1  An event id is `<stream>-<number>` unless the event came with its own. Numbers grow by one and are never reused.
 * log 2  At most `maxBytes` are kept, or a single event. The oldest progress and log events are evicted first, then the
 *        oldest of all. An event for which the session has no room is sent and not kept.
 * log 3  A client that missed a message which is no longer kept is told so: its stream never has a silent gap. Progress
 *        and log events may be missing.
 */

import { JSON_HEADERS, openStream, SSE_COMMENT, toEvent } from '../serve/http/line.ts'
import type { Outlet, StreamOptions } from '../serve/port.ts'
import type { Channel } from './line.ts'
import { type MemoryBudget, type SessionSettings, UNCOUNTED } from './options.ts'

export interface StreamSetup {
  /** Names the stream; on every instance, if every instance knows its session. Called once, when there is something to name. */
  readonly name: () => string
  /** The number of the last event that another instance sent on this stream. */
  readonly after?: number
  readonly settings: SessionSettings
  /** The memory budget for the events that are kept. */
  readonly budget: MemoryBudget
  readonly http: StreamOptions
  /** True if the stream begins with an event id, so that the client can resume before the first message. */
  readonly primed: boolean
  /** True if the client accepts streams. */
  readonly streams: boolean
  /** How many responses the stream will carry; 0 for a stream that stays open. */
  readonly responses: number
  /** True if the responses are sent as a batch. */
  readonly batch: boolean
  /** The scopes that a token needs to resume the stream: those of its calls. */
  readonly scopes?: readonly string[]
  /** Called when the first event is sent: from now on there is something to resume. */
  onOpen(stream: SessionStream): void
  /** Called when the client is gone for good. */
  onLost(): void
}

/** Bytes of a stream that are kept for resumption. */
const MAX_REPLAY_BYTES = 256 * 1024

/** An event that comes with its own id. */
export interface WholeEvent {
  readonly id: string
  /** The whole event, including the blank line at its end. */
  readonly text: string
}

export class SessionStream implements Channel {
  readonly #setup: StreamSetup
  #name: string | undefined
  #events: EventLog | undefined
  readonly #plain: string[] = []
  #left: number
  #outlet: Outlet | undefined
  #stopKeepAlive: (() => void) | undefined
  #openedAt: number | undefined
  #leftAt: number | undefined
  #ended = false
  #responded = false

  constructor(setup: StreamSetup, outlet: Outlet) {
    this.#setup = setup
    this.#left = setup.responses
    if (setup.after !== undefined) setup.onOpen(this)
    this.#hold(outlet)
    if (setup.responses === 0) this.#begin(outlet)
  }

  /** Named on demand: a response that is plain JSON needs no name. */
  get name(): string {
    this.#name ??= this.#setup.name()
    return this.#name
  }

  get #log(): EventLog {
    const { budget, after } = this.#setup
    this.#events ??= new EventLog(this.name, MAX_REPLAY_BYTES, budget, after)
    return this.#events
  }

  get open(): boolean {
    return this.#setup.streams && !this.#ended
  }

  /** True if this is the stream of one call, and of nothing else. */
  get single(): boolean {
    return this.#setup.responses === 1
  }

  /** The number of its last event. */
  get last(): number {
    return this.#events?.last ?? this.#setup.after ?? 0
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
    // A client that does not read is disconnected; what it missed is kept, as after any lost connection.
    if (clogged) outlet.drop()
    else this.#outlet?.write(event)
  }

  /** Sends a comment, and begins the stream with it if necessary. */
  beat(): void {
    const outlet = this.#outlet
    if (!this.open || outlet === undefined) return
    if (this.#openedAt === undefined) this.#begin(outlet)
    if (outlet.backlog <= this.#setup.http.maxBacklog) outlet.write(SSE_COMMENT)
  }

  /** Sends one of the responses; the last one ends the stream. Undefined counts as one without sending anything. */
  respond(json: string | undefined): void {
    this.#left -= 1
    if (json !== undefined) this.#responded = true
    if (json !== undefined && this.#isResumable) {
      this.send(json, false)
    } else if (json !== undefined) this.#plain.push(json)
    if (this.#left === 0) this.#finish()
  }

  /** Sends events in place of the response and ends the stream. */
  endWith(events: readonly WholeEvent[]): void {
    if (!this.open) return
    if (this.#openedAt === undefined && this.#outlet !== undefined) this.#begin(this.#outlet)
    for (const { id, text } of events) {
      // Kept before anything else, for a client that has lost its connection.
      const event = this.#log.appendWhole(id, text)
      this.#outlet?.write(event)
    }
    this.#responded = true
    this.end()
  }

  get scopes(): readonly string[] {
    return this.#setup.scopes ?? []
  }

  /** The number of an event that came with its own id. */
  numberOf(eventId: string): number | undefined {
    return this.#events?.numberOf(eventId)
  }

  /** Resumes after the last event that the client saw. Returns false if what it missed is no longer kept. */
  resume(outlet: Outlet, after: number): boolean {
    const missed = this.#log.after(after)
    // Ended without a response, the call was abandoned here, or another instance continues it.
    const isElsewhere = this.single && this.#ended && !this.#responded
    if (missed === undefined || (isElsewhere && missed.length === 0)) return false
    this.#release()?.end()
    this.#hold(outlet)
    this.#openedAt = this.#setup.settings.now()
    this.#stopKeepAlive = openStream(outlet, this.#setup.http)
    for (const event of missed) outlet.write(event)
    // Headers are sent with the first byte of the body.
    if (missed.length === 0) outlet.write(SSE_COMMENT)
    if (this.#ended) {
      this.#leftAt = this.#setup.settings.now()
      this.#release()?.end()
    }
    return true
  }

  /** Ends the stream and releases its events. */
  forget(): void {
    this.end()
    this.#events?.forget()
  }

  end(): void {
    if (this.#ended) return
    this.#ended = true
    this.#leftAt = this.#setup.settings.now()
    this.#release()?.end()
  }

  /** Ends what is due at this time. Returns true if the stream can be forgotten. */
  sweep(now: number): boolean {
    const { resumeMs, streamMs } = this.#setup.settings
    const { primed, responses } = this.#setup
    const polls = primed && responses > 0 && resumeMs > 0 && this.#openedAt !== undefined
    if (polls && this.#outlet !== undefined && now - (this.#openedAt ?? now) >= streamMs) {
      this.#leftAt = now
      this.#release()?.end()
    }
    if (this.#leftAt === undefined || now - this.#leftAt < resumeMs) return false
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

  /** Detaches the connection and returns it. */
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
    // Headers are sent with the first byte of the body, and a stream that stays open may have none for a long time.
    else if (this.#setup.responses === 0) outlet.write(SSE_COMMENT)
    for (const json of this.#plain.splice(0)) outlet.write(this.#log.append(json, false))
  }

  /** True if the client has an event to resume from: of this stream, or from the instance that began it. */
  get #isResumable(): boolean {
    return this.#openedAt !== undefined || this.#setup.after !== undefined
  }

  /** Called when the connection is lost. If no event had an id yet, or none is kept, there is nothing to resume. */
  #leave(): void {
    const { now, resumeMs } = this.#setup.settings
    this.#release()
    this.#leftAt = now()
    if (!this.#isResumable || resumeMs === 0) this.#lose()
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

interface StoredEvent {
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
  #kept: StoredEvent[] = []
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

  #keep(event: StoredEvent): string {
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
