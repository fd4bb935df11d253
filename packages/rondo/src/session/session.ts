/**
 * One client of an earlier era: what it declared in `initialize`, what it subscribed to, the questions that it was asked,
 * and its streams. All of this is gone when the session ends, and no other session depends on it.
 *
 * A session that is sealed into its id exists on every instance, and each has its own part of it here: the calls and
 * streams that it serves. Such a part is created on demand and dropped when it is empty.
 */

import type { PortableQuestion } from '../carry/push.ts'
import { RondoError } from '../errors.ts'
import type { PeerAnswer, PeerFacts, RequestId } from '../protocol/call.ts'
import type { SessionDialect } from '../protocol/codec.ts'
import { encodeNotification } from '../protocol/common/json-rpc.ts'
import type { LogLevel } from '../protocol/wire.ts'
import { digest } from '../seal/envelope.ts'
import { isSealedSession, isTurnsSession } from '../seal/session-id.ts'
import { principalTag } from '../seal/state.ts'
import { costOf } from '../serve/limits.ts'
import type { Change } from '../serve/port.ts'
import { type CallKeeper, type Channel, type LineHost, SessionLine } from './line.ts'
import { IDLE_MS, type MemoryBudget, type SessionSettings } from './options.ts'
import { SessionStream } from './stream.ts'
import { SessionStreams } from './streams.ts'

/** The name of a session: its id, and when it ends, ms since the epoch. */
export interface SessionName {
  readonly id: string
  readonly until?: number
  /** The key with which the names of its streams are authenticated, if every instance knows it. */
  readonly secret?: string
}

/** The parts that a session shares with others: limits, counters and the memory budget. */
interface SessionPlace {
  /** Whose share of the limits it uses: its owner's, or that of an anonymous caller's address. */
  readonly share: string
  readonly settings: SessionSettings
  readonly budget: MemoryBudget
  /** The budget of calls that wait. */
  readonly waiting: MemoryBudget
  /** Called when a call begins to wait, so that its deadline is watched. */
  onParked?(session: Session): void
}

const DEFAULT_LEVEL: LogLevel = 'info'

/** Tasks that a session is notified of at once. */
const MAX_TASKS = 64

/** The id of a question of a session that every instance knows begins with the tag of the process that asked. */
const ASKED_BY = /^[\w-]{8}\./

/** Longer than any URI that is in use. */
const MAX_URI = 8_192

/** Characters of all URIs of a session. An instance that shares a store reads them with every request of the session. */
const MAX_WATCHED_TEXT = 256 * 1024

const NOTHING = (): void => {}

const ANONYMOUS = principalTag(undefined)

/** True if the tag is that of an authenticated caller. All anonymous callers share one tag. */
export function isNamed(owner: string): boolean {
  return owner !== ANONYMOUS
}

/** The limit of an authenticated caller or of an address. No limit if neither is known, since then all callers share one tally. */
export function callerLimit({ owner, share }: Pick<Session, 'owner' | 'share'>, limit: number): number {
  return isNamed(owner) || share !== owner ? limit : Number.POSITIVE_INFINITY
}

/** The bytes that a waiting call counts as, besides its arguments: its journal, its questions and its stream. */
const PARKED_BYTES = 8_192

export class Session implements LineHost {
  readonly id: string
  /** Names the session where its id must not be: whoever knows the id can use the session. */
  readonly name: string
  readonly until: number
  readonly facts: PeerFacts
  /** The principal's tag: nobody else may use the session. */
  readonly owner: string
  /** The least level of log messages that the client asked for. */
  level: LogLevel = DEFAULT_LEVEL
  readonly share: string
  readonly streams: SessionStreams
  /** The watched resources, each with the function that ends the watch of another server's. */
  readonly #watched = new Map<string, () => void>()
  readonly #settings: SessionSettings
  readonly #budget: MemoryBudget
  readonly #waiting: MemoryBudget
  readonly #onParked: SessionPlace['onParked']
  readonly #calls = new Map<RequestId, SessionLine>()
  readonly #questions = new Map<
    string,
    {
      take(answer: PeerAnswer): void
      readonly handed?: Partial<PortableQuestion>
      readonly scopes: readonly string[]
    }
  >()
  /** Stops the notifications of a task. */
  readonly #tasks = new Map<string, () => void>()
  #seenAt: number
  #lastQuestion = 0

  constructor(
    { id, until = Number.POSITIVE_INFINITY, secret }: SessionName,
    facts: PeerFacts,
    owner: string,
    { share, settings, budget, waiting, onParked }: SessionPlace,
  ) {
    this.id = id
    this.name = digest(id)
    this.until = until
    this.facts = facts
    this.owner = owner
    this.#settings = settings
    this.#budget = budget
    this.#waiting = waiting
    this.share = share
    this.#onParked = onParked
    this.#seenAt = settings.now()
    this.streams = new SessionStreams(this.portable, settings, budget, secret)
  }

  get portable(): boolean {
    return isSealedSession(this.id)
  }

  get tag(): string {
    return this.#settings.tag
  }

  get resumeMs(): number {
    return this.#settings.resumeMs
  }

  get now(): () => number {
    return this.#settings.now
  }

  get randomId(): () => string {
    return this.#settings.randomId
  }

  /** Records that the client has sent something. */
  touch(): void {
    this.#seenAt = this.#settings.now()
  }

  expect(
    take: (answer: PeerAnswer) => void,
    handed?: Pick<PortableQuestion, 'id'> & Partial<PortableQuestion>,
    scopes: readonly string[] = [],
  ): string {
    this.#lastQuestion += 1
    const id = handed?.id ?? `${this.portable ? this.#settings.tag : 'ask'}.${this.#lastQuestion}`
    this.#questions.set(id, { take, handed, scopes })
    return id
  }

  /** The scopes that an answer needs: those of the call that asked. */
  scopesOf(id: RequestId): readonly string[] {
    return (typeof id === 'string' ? this.#questions.get(id)?.scopes : undefined) ?? []
  }

  forget(id: string): void {
    this.#questions.delete(id)
  }

  /** True if a call that runs on this instance asked the question, whether or not it has been answered. */
  asked(id: RequestId): boolean {
    if (typeof id !== 'string') return false
    return this.#questions.has(id) || [...this.#calls.values()].some((line) => line.asked(id))
  }

  /** True if another process asked the question, or this one before it was restarted. */
  askedElsewhere(id: RequestId): boolean {
    if (!this.portable || typeof id !== 'string' || this.#questions.has(id)) return false
    return ASKED_BY.test(id) && !id.startsWith(`${this.#settings.tag}.`)
  }

  /** Delivers an answer. Returns false if its state is not the one that the question was sent with. */
  answer(id: RequestId, answer: PeerAnswer, state?: unknown): boolean {
    const question = typeof id === 'string' ? this.#questions.get(id) : undefined
    if (question === undefined) return true
    if (state !== undefined && question.handed?.accepts?.(state) === false) return false
    question.take(answer)
    return true
  }

  park(bytes: number): boolean {
    // A call that waits matters more than the ends of streams that a client might have missed.
    while (!this.#waiting.take(PARKED_BYTES + bytes)) if (!this.streams.dropEnded()) return false
    this.#onParked?.(this)
    return true
  }

  unpark(bytes: number): void {
    this.#waiting.release(PARKED_BYTES + bytes)
  }

  /** True if no call runs and no stream is attached: the client would not notice the end before its next request. */
  get unused(): boolean {
    if (this.#calls.size > 0) return false
    const { general, attached } = this.streams
    if (general !== undefined && !(general instanceof SessionStream)) return false
    return !attached
  }

  /** Returns the line of a new call. Throws if the id is in use. */
  begin(
    id: RequestId,
    channel: Channel,
    dialect: SessionDialect,
    size?: () => number,
    keeper?: CallKeeper,
  ): SessionLine {
    if (this.#calls.has(id))
      throw new RondoError('PEER_REQUEST', 'Another request with this id is still open')
    const line = new SessionLine(this, channel, dialect, size, keeper)
    this.#calls.set(id, line)
    return line
  }

  /** Returns the line of a call that continues here. It replaces the line of an earlier attempt. */
  resume(
    id: RequestId,
    channel: Channel,
    dialect: SessionDialect,
    size?: () => number,
    keeper?: CallKeeper,
  ): SessionLine {
    this.#calls.get(id)?.cancel()
    this.#calls.delete(id)
    return this.begin(id, channel, dialect, size, keeper)
  }

  /** Ends a call here without a word, because it continues on another stream. */
  leave(id: RequestId): void {
    this.#calls.get(id)?.leave()
    this.#calls.delete(id)
  }

  finish(id: RequestId, line: SessionLine): void {
    if (this.#calls.get(id) === line) this.#calls.delete(id)
    this.touch()
  }

  /**
   * Cancels a call, because the client asked for it or can no longer be reached on `channel`. Returns false if this instance has
   * none.
   */
  cancel(id: RequestId, channel?: Channel): boolean {
    const line = this.#calls.get(id)
    if (channel === undefined || line?.channel === channel) line?.cancel()
    return line !== undefined
  }

  /** `observe` reports changes that the bus does not, and returns a function that ends this, or undefined if it cannot. */
  watch(uri: string, observe: (changed: () => void) => (() => void) | undefined = () => NOTHING): void {
    const { maxWatched } = this.#settings
    if (maxWatched === 0) throw new RondoError('PEER_METHOD')
    if (uri.length > MAX_URI) {
      throw new RondoError('PEER_PARAMS', `params.uri may be at most ${MAX_URI} characters long`)
    }
    const known = this.#watched.get(uri)
    // A watch that was adopted from another instance is observed nowhere here.
    if (known !== undefined && known !== NOTHING) return
    let text = uri.length
    for (const other of this.#watched.keys()) text += other.length
    const full = this.#watched.size >= maxWatched || text > MAX_WATCHED_TEXT
    if (known === undefined && (full || !this.#budget.take(costOf(uri)))) {
      throw new RondoError('LIMIT_SUBSCRIPTIONS')
    }
    this.#watched.set(uri, NOTHING)
    try {
      const stop = observe(() => this.note(encodeNotification('notifications/resources/updated', { uri })))
      if (stop === undefined) throw new RondoError('PEER_METHOD')
      this.#watched.set(uri, stop)
    } catch (error) {
      this.unwatch(uri)
      throw error
    }
  }

  unwatch(uri: string): void {
    const stop = this.#watched.get(uri)
    if (stop === undefined) return
    this.#watched.delete(uri)
    this.#budget.release(costOf(uri))
    stop()
  }

  /** The facts about the session that other instances have to know, as they are here. */
  get state(): { readonly level: LogLevel; readonly watched: readonly string[] } {
    return { level: this.level, watched: [...this.#watched.keys()] }
  }

  /** Takes over what other instances know of the session. */
  adopt({ level = DEFAULT_LEVEL, watched = [] }: Partial<Session['state']>): void {
    this.level = level
    const wanted = new Set(watched)
    for (const uri of [...this.#watched.keys()]) if (!wanted.has(uri)) this.unwatch(uri)
    for (const uri of wanted) {
      if (!this.#watched.has(uri) && this.#budget.take(costOf(uri))) this.#watched.set(uri, NOTHING)
    }
  }

  /** Bytes that may be kept in the store for the session's caller. */
  get keptBytes(): number {
    const { maxKeptBytes, maxKeptBytesPerCaller } = this.#settings
    return Math.min(maxKeptBytes, callerLimit(this, maxKeptBytesPerCaller))
  }

  /**
   * Notifies the client of a task until it has ended. `observe` reports its changes as messages; `ended` is true for the last.
   * A session of a single request has nobody to notify.
   */
  followTask(
    taskId: string,
    observe: (report: (json: string | undefined, ended: boolean) => void) => Promise<() => void>,
  ): void {
    if (this.#settings.maxWatched === 0 || this.#tasks.has(taskId) || this.#tasks.size >= MAX_TASKS) return
    let isOver = false
    let stop = (): void => {}
    const end = (): void => {
      isOver = true
      this.#tasks.delete(taskId)
      stop()
    }
    this.#tasks.set(taskId, end)
    observe((json, ended) => {
      if (isOver) return
      if (json !== undefined) this.note(json)
      if (ended) end()
    }).then(
      (stopObserving) => {
        stop = stopObserving
        if (isOver) stop()
      },
      (error) => {
        end()
        this.#settings.onError(error)
      },
    )
  }

  /** Sends a message on the session's own stream, which another instance may have. */
  note(json: string): void {
    if (this.streams.general) this.streams.general.send(json, false)
    else if (this.portable) this.#settings.elsewhere?.(this.name, json)
  }

  /** Like `note`, for a message that another instance sent. */
  noteHere(json: string): void {
    this.streams.general?.send(json, false)
  }

  notify(change: Change): void {
    if (change.kind === 'everything') {
      for (const kind of ['tools', 'prompts', 'resources'] as const) this.notify({ kind })
      for (const uri of this.#watched.keys()) this.notify({ kind: 'resource', uri })
    } else if (change.kind === 'resource') {
      if (!this.#watched.has(change.uri)) return
      this.streams.general?.send(
        encodeNotification('notifications/resources/updated', { uri: change.uri }),
        false,
      )
    } else {
      this.streams.general?.send(encodeNotification(`notifications/${change.kind}/list_changed`, {}), false)
    }
  }

  /** Ends what is due at this time. Returns true if the session itself has been idle for too long. */
  sweep(now: number): boolean {
    for (const line of this.#calls.values()) line.sweep(now)
    this.streams.sweep(now)
    if (this.streams.attached || this.#calls.size > 0) this.#seenAt = now
    if (isTurnsSession(this.id) && this.#isEmpty) return true
    return now >= this.until || now - this.#seenAt >= IDLE_MS
  }

  /** True if this part of the session holds nothing that another request could need. */
  get #isEmpty(): boolean {
    return (
      this.#calls.size === 0 &&
      this.streams.size === 0 &&
      this.#watched.size === 0 &&
      this.#tasks.size === 0 &&
      this.level === DEFAULT_LEVEL
    )
  }

  /** Ends the waiting of all calls with this error. */
  refuseWaiting(error: RondoError): void {
    for (const line of this.#calls.values()) line.endWaiting(error)
  }

  end(): void {
    for (const line of [...this.#calls.values()]) line.cancel()
    this.streams.end()
    this.#questions.clear()
    for (const uri of [...this.#watched.keys()]) this.unwatch(uri)
    for (const stop of [...this.#tasks.values()]) stop()
  }
}
