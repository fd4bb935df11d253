/**
 * The line of one call of a session: notifications and questions go out on the call's own channel; answers come back
 * through the session.
 *
 * Q1 All questions of a round are sent before any answer is awaited. Q2 The call waits until every one is answered, one
 * is answered with an error, time is up, the client cancels, or the server ends. Q3 Whatever ends the waiting, the
 * client is told of questions that no longer need an answer. Q4 A call that waits counts as parked, and only then.
 * Q5 A question in the client's hands outlives this process: where the server ends, its stream ends and nothing is said.
 */

import type { Asked, AskingLine, AskOptions, Handed, Resting } from '../../carry/push.ts'
import { RondoError } from '../../errors.ts'
import type { PeerAnswer } from '../../protocol/call.ts'
import type { SessionDialect } from '../../protocol/codec.ts'
import { encodeNotification } from '../../protocol/common/json-rpc.ts'
import type { InputRequests } from '../../protocol/wire.ts'
import { Pulse } from '../heartbeat.ts'

/** What a line needs of its session. */
export interface Desk {
  /** Has the answer to a question handed to `take`; gives the id of the question. */
  expect(take: (answer: PeerAnswer) => void, handed?: Handed): string
  forget(id: string): void
  /** Counts the call as parked, with what it keeps. False if there are too many, or no room. */
  park(bytes: number): boolean
  unpark(bytes: number): void
  readonly now: () => number
  readonly signMs: number
  readonly randomId: () => string
  /** Every instance knows the session. */
  readonly portable: boolean
}

interface Waiting {
  /** Keys of the questions that are open, by id. */
  readonly open: Map<string, string>
  readonly answers: Record<string, unknown>
  readonly until: number
  readonly bytes: number
  /** All questions are in the client's hands. */
  readonly handed: boolean
  nextSign: number
  alive(): void
  resolve(asked: Asked): void
}

const METHOD_NOT_FOUND = -32601

export class SessionLine implements AskingLine {
  readonly #desk: Desk
  readonly #size: () => number
  readonly #channel: Channel
  readonly #dialect: Pick<SessionDialect, 'encodeRequest'>
  readonly #pulse = new Pulse()
  readonly #listeners = new Set<() => void>()
  readonly #handed = new Set<string>()
  #waiting: Waiting | undefined
  #resting: (Resting & { nextSign: number }) | undefined
  #closed = false

  /** `size` says what the request holds while it waits. */
  constructor(
    desk: Desk,
    channel: Channel,
    dialect: Pick<SessionDialect, 'encodeRequest'>,
    size: () => number = () => 0,
  ) {
    this.#size = size
    this.#desk = desk
    this.#channel = channel
    this.#dialect = dialect
  }

  get closed(): boolean {
    return this.#closed
  }

  get portable(): boolean {
    return this.#desk.portable
  }

  /** True if this call asked the question, be it answered or not. */
  asked(id: string): boolean {
    return this.#handed.has(id)
  }

  get waiting(): boolean {
    return this.#waiting !== undefined || this.#resting !== undefined
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
    if (this.#closed) return
    this.#channel.send(encodeNotification(method, this.#pulse.say(method, params)), true)
  }

  /** Shows that the call is alive, if it has been silent. False when there is nothing more to show. */
  beat(progressToken: string | number | undefined): boolean {
    if (this.#closed) return false
    if (!this.#pulse.isQuiet()) return true
    if (progressToken === undefined) this.#channel.beat?.()
    else {
      const params = this.#pulse.beat(progressToken)
      this.#channel.send(encodeNotification('notifications/progress', params), true)
    }
    return true
  }

  ask(questions: InputRequests, options: AskOptions): Promise<Asked> {
    if (this.#closed || !this.#channel.open) return Promise.resolve({ kind: 'gone' })
    const bytes = this.#size()
    if (!this.#desk.park(bytes)) {
      return Promise.resolve({ kind: 'refused', error: new RondoError('LIMIT_PARKED') })
    }
    const { timeoutMs, alive, task, signal, handed = {} } = options
    const now = this.#desk.now()
    const keys = Object.keys(questions)
    return new Promise((resolve) => {
      const open = new Map<string, string>()
      this.#waiting = {
        open,
        answers: Object.create(null),
        until: now + timeoutMs,
        bytes,
        handed: keys.every((key) => Object.hasOwn(handed, key)),
        nextSign: now + this.#desk.signMs,
        alive,
        resolve,
      }
      for (const [key, request] of Object.entries(questions)) {
        const held = Object.hasOwn(handed, key) ? handed[key] : undefined
        const id = this.#desk.expect((answer) => this.#take(id, answer), held)
        open.set(id, key)
        const json = this.#dialect.encodeRequest(id, request, this.#desk.randomId(), task)
        if (held !== undefined) this.#handed.add(id)
        this.#channel.send(held ? held.attach(json) : json, false, held?.id)
      }
      signal?.addEventListener('abort', () => this.refuse(new RondoError('INPUT_TIMEOUT')), { once: true })
    })
  }

  rest({ alive, refuse }: Resting): () => void {
    const resting = { alive, refuse, nextSign: this.#desk.now() + this.#desk.signMs }
    this.#resting = resting
    return () => {
      if (this.#resting === resting) this.#resting = undefined
    }
  }

  /** The client has cancelled, or is gone. */
  cancel(): void {
    if (this.#closed) return
    this.#stopWaiting({ kind: 'gone' })
    this.#close()
  }

  #close(): void {
    this.#closed = true
    const listeners = [...this.#listeners]
    this.#listeners.clear()
    for (const listener of listeners) listener()
  }

  /** Ends the waiting, if the call waits, for a reason of ours. */
  refuse(error: RondoError): void {
    this.#stopWaiting({ kind: 'refused', error })
  }

  /** The server ends: nothing is waited for any longer. */
  endWaiting(error: RondoError): void {
    if (this.#waiting?.handed) {
      this.#stopWaiting({ kind: 'gone' }, true)
      return this.#close()
    }
    this.refuse(error)
    this.#resting?.refuse(error)
  }

  sweep(now: number): void {
    if (this.#waiting !== undefined && now >= this.#waiting.until) {
      return this.refuse(new RondoError('INPUT_TIMEOUT'))
    }
    const one = this.#waiting ?? this.#resting
    if (this.#closed || one === undefined || now < one.nextSign) return
    one.nextSign = now + this.#desk.signMs
    one.alive()
  }

  #take(id: string, answer: PeerAnswer): void {
    const waiting = this.#waiting
    const key = waiting?.open.get(id)
    if (waiting === undefined || key === undefined) return
    waiting.open.delete(id)
    this.#desk.forget(id)
    if (answer.kind === 'error') {
      const detail = `The client did not answer "${key}": ${answer.message || `error ${answer.code}`}`
      const error = new RondoError('INPUT_FAILED', detail)
      this.#stopWaiting({ kind: 'refused', error, ...(answer.code === METHOD_NOT_FOUND && { unable: key }) })
      return
    }
    waiting.answers[key] = answer.result
    if (waiting.open.size === 0) this.#stopWaiting({ kind: 'answers', answers: waiting.answers })
  }

  #stopWaiting(asked: Asked, silently = false): void {
    const waiting = this.#waiting
    if (waiting === undefined) return
    this.#waiting = undefined
    this.#desk.unpark(waiting.bytes)
    for (const requestId of waiting.open.keys()) {
      this.#desk.forget(requestId)
      if (silently) continue
      const params = { requestId, reason: 'No answer is needed any more' }
      this.#channel.send(encodeNotification('notifications/cancelled', params), false)
    }
    waiting.resolve(asked)
  }
}

/** Where messages to a client of a session go: the stream of one call, the session's own stream, or stdout. */
export interface Channel {
  /**
   * Sends one message. One that is `droppable` (progress, logs) may be left out for a client that does not read. `eventId`
   * names its event where any instance must know the name.
   */
  send(json: string, droppable: boolean, eventId?: string): void
  /** Shows that something is still going on, where that takes no message. */
  beat?(): void
  /** True if requests to the client can be sent here. */
  readonly open: boolean
}
