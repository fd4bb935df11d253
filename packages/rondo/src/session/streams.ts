/**
 * The streams of one session over HTTP that this instance has: those of its calls, the session's own, and those on which a
 * client waits for what follows an answer. A lost stream is kept for resumption.
 */

import { isStreamName, nameStream } from '../seal/session-id.ts'
import type { Outlet, StreamOptions } from '../serve/port.ts'
import type { Channel } from './line.ts'
import type { MemoryBudget, SessionSettings } from './options.ts'
import { readEventId, SessionStream, type StreamSetup } from './stream.ts'

/** The decisions of the caller of `open` about a stream. */
type StreamRequest = Pick<
  StreamSetup,
  'primed' | 'streams' | 'responses' | 'batch' | 'onLost' | 'after' | 'scopes'
> & {
  /** The name of a stream that another instance began. */
  readonly name?: () => string
}

/** Streams that a session keeps for resumption; the oldest finished one is evicted first. */
const MAX_STREAMS = 64

/** The names of sessions' own streams begin with this. */
export const GENERAL = 'g_'

export class SessionStreams {
  readonly #portable: boolean
  readonly #settings: SessionSettings
  readonly #budget: MemoryBudget
  readonly #secret: string | undefined
  readonly #streams = new Map<string, SessionStream>()
  readonly #awaited = new Map<string, SessionStream>()
  #last = 0
  /** The channel for messages that belong to no call. */
  general: Channel | undefined

  /** `portable`: every instance knows the session. `secret` authenticates the names of its streams. */
  constructor(portable: boolean, settings: SessionSettings, budget: MemoryBudget, secret?: string) {
    this.#secret = secret
    this.#portable = portable
    this.#settings = settings
    this.#budget = budget
  }

  /** Opens a stream. One without responses becomes the session's own and replaces the former one. */
  open(request: StreamRequest, outlet: Outlet, http: StreamOptions): SessionStream {
    this.#last += 1
    const number = this.#last
    const onOpen = (stream: SessionStream): void => this.#keep(stream)
    const name = (): string => this.#name(request.responses === 0, number)
    const setup = { name, settings: this.#settings, budget: this.#budget, http, onOpen, ...request }
    const stream = new SessionStream(setup, outlet)
    if (request.responses === 0) {
      const former = this.general
      if (former instanceof SessionStream) this.#drop(former)
      this.general = stream
    }
    return stream
  }

  /** Other instances have streams of the same session, and theirs must not be mistaken for ours. */
  #name(general: boolean, number: number): string {
    if (!this.#portable) return String(number)
    const name = `${general ? GENERAL : 'c_'}${this.#settings.tag}${this.#settings.randomId()}`
    return this.#secret === undefined ? name : nameStream(this.#secret, name)
  }

  /** False if no instance can have a stream of this name. */
  mayExist(name: string): boolean {
    return this.#secret === undefined || isStreamName(this.#secret, name)
  }

  /** Like `mayExist`, for the stream of an event. An event that came with its own id is not named after its stream. */
  mayHaveSent(eventId: string): boolean {
    const numbered = readEventId(eventId)
    return numbered === undefined || this.mayExist(numbered.stream)
  }

  /** Sends the rest of a stream to a client that is connected to another instance. Returns the scopes that a token needs for it. */
  relay(stream: string, after: number, outlet: Outlet): readonly string[] | undefined {
    const found = this.#streams.get(stream)
    return found?.resume(outlet, after) ? found.scopes : undefined
  }

  /** Sends the rest of a stream after an event. Returns false if the event is unknown, or what followed is lost. */
  resume(eventId: string, outlet: Outlet): boolean {
    const place = this.#placeOf(eventId)
    return place?.stream.resume(outlet, place.number) ?? false
  }

  /** Returns the scopes that a token needs to resume the stream of an event. */
  scopesOf(eventId: string): readonly string[] {
    return this.#placeOf(eventId)?.stream.scopes ?? []
  }

  #placeOf(eventId: string): { stream: SessionStream; number: number } | undefined {
    const numbered = readEventId(eventId)
    const own = numbered && this.#streams.get(numbered.stream)
    if (own) return { stream: own, number: numbered.number }
    for (const stream of this.#streams.values()) {
      const number = stream.numberOf(eventId)
      if (number !== undefined) return { stream, number }
    }
    return undefined
  }

  /** Opens a stream on which a client that lost the stream of a question waits for what follows its answer. */
  awaitAnswer(turn: string, outlet: Outlet, http: StreamOptions): void {
    const request = { primed: false, streams: true, responses: 1, batch: false }
    const stream = this.open({ ...request, onLost: () => this.#awaited.delete(turn) }, outlet, http)
    this.#awaited.set(turn, stream)
    stream.beat()
  }

  /** Takes the stream that `awaitAnswer` opened for a turn, if its client is still connected. */
  awaited(turn: string): SessionStream | undefined {
    const stream = this.#awaited.get(turn)
    this.#awaited.delete(turn)
    return stream?.attached ? stream : undefined
  }

  /** True if a client is connected to one of them. */
  get attached(): boolean {
    return [...this.#streams.values()].some((stream) => stream.attached)
  }

  get size(): number {
    return this.#streams.size
  }

  /** Ends what is due at this time. */
  sweep(now: number): void {
    for (const stream of [...this.#streams.values()]) if (stream.sweep(now)) this.#drop(stream)
  }

  end(): void {
    for (const stream of [...this.#streams.values()]) this.#drop(stream)
    this.general = undefined
    this.#awaited.clear()
  }

  /** Drops the oldest stream that has ended. Returns false if there is none. */
  dropEnded(): boolean {
    const finished = [...this.#streams.values()].find(({ ended }) => ended)
    if (finished) this.#drop(finished)
    return finished !== undefined
  }

  #keep(stream: SessionStream): void {
    const former = this.#streams.get(stream.name)
    if (former === stream) return
    // A call that comes back to this instance continues on a stream of the same name.
    if (former) this.#drop(former)
    if (this.#streams.size >= MAX_STREAMS) this.dropEnded()
    this.#streams.set(stream.name, stream)
  }

  #drop(stream: SessionStream): void {
    stream.forget()
    this.#streams.delete(stream.name)
    if (this.general === stream) this.general = undefined
  }
}
