/**
 * One client of an earlier era: what it said when it came, what it wants to hear, what it was asked, and its streams.
 * Everything here is gone when the session ends; nothing of it is needed by any other.
 *
 * A session that is sealed into its id is the same on every instance, each of which has its own part here: the calls and
 * streams that it serves. Such a part is made when it is needed and dropped when nothing is in it.
 */

import { randomInt } from 'node:crypto'
import type { Handed } from '../../carry/push.ts'
import { RondoError } from '../../errors.ts'
import type { PeerAnswer, PeerFacts, RequestId } from '../../protocol/call.ts'
import type { SessionDialect } from '../../protocol/codec.ts'
import { encodeNotification } from '../../protocol/common/json-rpc.ts'
import type { LogLevel } from '../../protocol/wire.ts'
import { isSealedSession } from '../../seal/session-id.ts'
import { principalTag } from '../../seal/state.ts'
import type { Outlet, StreamOptions } from '../http/line.ts'
import type { Change } from '../http/subscription.ts'
import { type Channel, type Desk, SessionLine } from './line.ts'
import type { Keeper, SessionSettings, Tally } from './options.ts'
import { readEventId, SessionStream, type StreamSetup } from './stream.ts'

/** True if the tag stands for somebody. Callers without a name share one tag and nothing else. */
export function isNamed(owner: string): boolean {
  return owner !== ANONYMOUS
}

const ANONYMOUS = principalTag(undefined)

/** Where a session stands among all others. */
export interface SessionPlace {
  /** Whose part of the limits it uses: its owner's, or that of the address of a caller without a name. */
  readonly share: string
  readonly settings: SessionSettings
  readonly parked: Tally
  readonly keeper: Keeper
  /** A call waits from now on, and somebody must look at the clock. */
  onParked?(session: Session): void
}

const DEFAULT_LEVEL: LogLevel = 'info'
/** Streams are numbered from somewhere up to here, which leaves nine digits for their numbers. */
const MAX_FIRST_STREAM = 900_000_000

/** What of a stream its session does not know by itself. */
export type StreamWish = Pick<StreamSetup, 'primed' | 'streams' | 'responses' | 'batch' | 'onLost'>

/** Streams of a session that are kept for a client that comes back; beyond, the oldest that is over goes. */
const MAX_STREAMS = 64

/** Longer than any URI that is in use. */
const MAX_URI = 8_192

/** What keeping a text costs, with what holds it. */
export function costOf(text: string): number {
  return 64 + 2 * text.length
}

/** The limit for a caller with a name, or for an address; none where neither is known, and all of them are one share. */
export function shareLimit(
  { owner, share }: Pick<Session, 'owner' | 'share'>,
  perPrincipal: number,
  perAddress: number,
): number {
  if (isNamed(owner)) return perPrincipal
  return share === owner ? Number.POSITIVE_INFINITY : perAddress
}

export class Session implements Desk {
  readonly id: string
  readonly facts: PeerFacts
  /** The principal's tag: nobody else may use the session. */
  readonly owner: string
  /** What the client wants to hear of the log. */
  level: LogLevel = DEFAULT_LEVEL
  readonly share: string
  readonly #watched = new Set<string>()
  readonly #settings: SessionSettings
  readonly #parkedByAll: Tally
  readonly #keeper: Keeper
  readonly #onParked: SessionPlace['onParked']
  readonly #calls = new Map<RequestId, SessionLine>()
  readonly #questions = new Map<string, { take(answer: PeerAnswer): void; readonly handed?: Handed }>()
  readonly #streams = new Map<number, SessionStream>()
  readonly #awaited = new Map<string, SessionStream>()
  #general: Channel | undefined
  #seenAt: number
  #parked = 0
  #lastQuestion = 0
  #lastStream = 0

  constructor(
    id: string,
    facts: PeerFacts,
    owner: string,
    { share, settings, parked, keeper, onParked }: SessionPlace,
  ) {
    this.id = id
    this.facts = facts
    this.owner = owner
    this.#settings = settings
    this.#parkedByAll = parked
    this.#keeper = keeper
    this.share = share
    this.#onParked = onParked
    this.#seenAt = settings.now()
    // Another instance has streams of the same session, and none may be taken for one of ours.
    if (this.portable) this.#lastStream = randomInt(MAX_FIRST_STREAM)
  }

  get portable(): boolean {
    return isSealedSession(this.id)
  }

  get now(): () => number {
    return this.#settings.now
  }

  get signMs(): number {
    return this.#settings.signMs
  }

  get randomId(): () => string {
    return this.#settings.randomId
  }

  /** The client has sent something. */
  touch(): void {
    this.#seenAt = this.#settings.now()
  }

  expect(take: (answer: PeerAnswer) => void, handed?: Handed): string {
    this.#lastQuestion += 1
    const id = handed?.id ?? `ask-${this.#lastQuestion}`
    this.#questions.set(id, { take, handed })
    return id
  }

  forget(id: string): void {
    this.#questions.delete(id)
  }

  /** True if a call that runs here asked the question, be it answered or not. */
  asked(id: RequestId): boolean {
    if (typeof id !== 'string') return false
    return this.#questions.has(id) || [...this.#calls.values()].some((line) => line.asked(id))
  }

  /** False for a state that is not the one its question had. */
  answer(id: RequestId, answer: PeerAnswer, state?: unknown): boolean {
    const question = typeof id === 'string' ? this.#questions.get(id) : undefined
    if (question === undefined) return true
    if (state !== undefined && question.handed?.accepts(state) === false) return false
    question.take(answer)
    return true
  }

  park(bytes: number): boolean {
    const { maxParked, maxParkedPerSession, maxParkedPerPrincipal, maxParkedPerAddress } = this.#settings
    const all = this.#parkedByAll
    if (this.#parked >= maxParkedPerSession || all.total >= maxParked) return false
    if (all.of(this.share) >= shareLimit(this, maxParkedPerPrincipal, maxParkedPerAddress)) return false
    if (!this.#keeper.take(bytes)) return false
    this.#parked += 1
    all.add(this.share, 1)
    this.#onParked?.(this)
    return true
  }

  unpark(bytes: number): void {
    this.#parked -= 1
    this.#parkedByAll.add(this.share, -1)
    this.#keeper.give(bytes)
  }

  /** Nothing runs, nothing is open: its client would notice its end by its next request at the earliest. */
  get unused(): boolean {
    if (this.#calls.size > 0) return false
    const general = this.#general
    if (general !== undefined && !(general instanceof SessionStream)) return false
    return ![...this.#streams.values()].some((stream) => stream.attached)
  }

  /** The line of a new call. Refuses an id that is in use. */
  begin(id: RequestId, channel: Channel, dialect: SessionDialect, size?: () => number): SessionLine {
    if (this.#calls.has(id)) throw new RondoError('PEER_REQUEST', 'A request with this id is still open')
    const line = new SessionLine(this, channel, dialect, size)
    this.#calls.set(id, line)
    return line
  }

  /** The line of a call that goes on here. A client that sends its answers again takes it over. */
  resume(id: RequestId, channel: Channel, dialect: SessionDialect, size?: () => number): SessionLine {
    this.#calls.get(id)?.cancel()
    this.#calls.delete(id)
    return this.begin(id, channel, dialect, size)
  }

  finish(id: RequestId, line: SessionLine): void {
    if (this.#calls.get(id) === line) this.#calls.delete(id)
    this.touch()
  }

  /** The client cancels a call, or can no longer be reached for it. */
  cancel(id: RequestId): void {
    this.#calls.get(id)?.cancel()
  }

  watch(uri: string): void {
    const { maxWatched } = this.#settings
    if (maxWatched === 0) throw new RondoError('PEER_METHOD')
    if (uri.length > MAX_URI) {
      throw new RondoError('PEER_PARAMS', `params.uri may be at most ${MAX_URI} characters long`)
    }
    if (this.#watched.has(uri)) return
    if (this.#watched.size >= maxWatched || !this.#keeper.take(costOf(uri))) {
      throw new RondoError('LIMIT_SUBSCRIPTIONS')
    }
    this.#watched.add(uri)
  }

  unwatch(uri: string): void {
    if (this.#watched.delete(uri)) this.#keeper.give(costOf(uri))
  }

  /** A stream over HTTP. One without responses becomes the session's own; a former one ends. */
  openStream(wish: StreamWish, outlet: Outlet, http: StreamOptions): SessionStream {
    this.#lastStream += 1
    const onOpen = (stream: SessionStream): void => this.#keep(stream)
    const setup = {
      ...wish,
      number: this.#lastStream,
      settings: this.#settings,
      keeper: this.#keeper,
      http,
      onOpen,
    }
    const stream = new SessionStream(setup, outlet)
    if (wish.responses === 0) {
      const former = this.#general
      if (former instanceof SessionStream) this.#drop(former)
      this.#general = stream
    }
    return stream
  }

  /** Sends the rest of the stream after an event. False if there is no such event, or what followed is gone. */
  resumeStream(eventId: string, outlet: Outlet): boolean {
    const numbered = readEventId(eventId)
    if (numbered) return this.#streams.get(numbered.stream)?.resume(outlet, numbered.number) ?? false
    for (const stream of this.#streams.values()) {
      const number = stream.numberOf(eventId)
      if (number !== undefined) return stream.resume(outlet, number)
    }
    return false
  }

  /** A client that lost the stream of a question waits here for what follows its answer. */
  awaitAnswer(turn: string, outlet: Outlet, http: StreamOptions): void {
    const wish = { primed: false, streams: true, responses: 1, batch: false }
    const stream = this.openStream({ ...wish, onLost: () => this.#awaited.delete(turn) }, outlet, http)
    this.#awaited.set(turn, stream)
    stream.beat()
  }

  /** The stream on which a client waits for what follows the answers of a turn. */
  awaited(turn: string): SessionStream | undefined {
    const stream = this.#awaited.get(turn)
    this.#awaited.delete(turn)
    return stream?.attached ? stream : undefined
  }

  /** Where messages go that belong to no call. */
  set general(channel: Channel) {
    this.#general = channel
  }

  tell(change: Change): void {
    if (change.kind === 'resource') {
      if (!this.#watched.has(change.uri)) return
      this.#general?.send(encodeNotification('notifications/resources/updated', { uri: change.uri }), false)
    } else {
      this.#general?.send(encodeNotification(`notifications/${change.kind}/list_changed`, {}), false)
    }
  }

  /** Looks at the clock. True if the session has been idle for too long. */
  sweep(now: number): boolean {
    for (const line of this.#calls.values()) line.sweep(now)
    for (const stream of [...this.#streams.values()]) if (stream.sweep(now)) this.#drop(stream)
    const attached = [...this.#streams.values()].some((stream) => stream.attached)
    if (attached || this.#calls.size > 0) this.#seenAt = now
    if (this.portable && this.#isBare) return true
    return now - this.#seenAt >= this.#settings.idleMs
  }

  /** Nothing is here that another request could need. */
  get #isBare(): boolean {
    return (
      this.#calls.size === 0 &&
      this.#streams.size === 0 &&
      this.#watched.size === 0 &&
      this.level === DEFAULT_LEVEL
    )
  }

  /** Calls that wait are told that nobody will answer them here. */
  refuseWaiting(error: RondoError): void {
    for (const line of this.#calls.values()) line.endWaiting(error)
  }

  end(): void {
    for (const line of [...this.#calls.values()]) line.cancel()
    for (const stream of [...this.#streams.values()]) this.#drop(stream)
    this.#general = undefined
    this.#awaited.clear()
    this.#questions.clear()
    for (const uri of [...this.#watched]) this.unwatch(uri)
  }

  #keep(stream: SessionStream): void {
    if (this.#streams.size >= MAX_STREAMS) {
      const over = [...this.#streams.values()].find(({ ended }) => ended)
      if (over) this.#drop(over)
    }
    this.#streams.set(stream.number, stream)
  }

  #drop(stream: SessionStream): void {
    stream.forget()
    this.#streams.delete(stream.number)
    if (this.#general === stream) this.#general = undefined
  }
}
