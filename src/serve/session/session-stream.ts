/**
 * One stream of events to a client of a session: the answer to a POST, or the session's own stream.
 *
 * E1 A POST is answered with plain JSON as long as nothing has to be told before its responses. E2 A stream outlives
 * its connection: what is said meanwhile is kept, and a client that comes back with the id of the last event it saw
 * gets the rest. E3 Whoever does not come back in time is given up. E4 A stream that is over is kept for the same
 * time, for a client that missed its end.
 */

import type { TurnEvent } from '../../protocol/draft-turns/encode.ts'
import { JSON_HEADERS } from '../http-answer.ts'
import { openStream, type StreamOptions } from '../http-line.ts'
import type { Outlet } from '../outlet.ts'
import { SSE_COMMENT } from '../sse.ts'
import type { Channel } from './channel.ts'
import { EventLog } from './event-log.ts'
import type { SessionSettings } from './options.ts'
import type { Keeper } from './tally.ts'

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
  endWith(events: readonly TurnEvent[]): void {
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
