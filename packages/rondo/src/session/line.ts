/**
 * The line of one call of a session: notifications and questions go out on the call's own channel; answers come back
 * through the session.
 *
 * line 1  All questions of a round are sent before any answer is awaited.
 * line 2  A question that went out with its sealed state outlives this process: when the server stops, the stream just
 *         ends, and the question stays valid. So does one of a call that is kept in the store.
 * line 3  With a store, a call is kept there before its first effect, before the first that can be undone, and before its questions
 *         are sent, and one that waits for a task before anything is.
 */

import type { Asked, AskingLine, AskOptions, Resting, StoredCall } from '../carry/push.ts'
import { RondoError } from '../errors.ts'
import type { PeerAnswer } from '../protocol/call.ts'
import type { SessionDialect } from '../protocol/codec.ts'
import { encodeNotification } from '../protocol/common/json-rpc.ts'
import type { InputRequests } from '../protocol/wire.ts'
import { Pulse } from '../serve/heartbeat.ts'
import { OpenQuestions, type QuestionHost, type SentQuestion } from './question.ts'

/** Carries messages to the client of a session: the stream of one call, the session's own stream, or stdout. */
export interface Channel {
  /**
   * Sends one message. A `droppable` one (progress, logs) may be skipped if the client does not read. `eventId` is the id
   * of its event, if every instance has to recognise it.
   */
  send(json: string, droppable: boolean, eventId?: string): void
  /** Sends a heartbeat, if the channel has one that is not a message. */
  beat?(): void
  /** True if requests to the client can be sent here. */
  readonly open: boolean
  /** The number of the last event, on a stream that other instances can continue. */
  readonly last?: number
}

/** Keeps a call that waits where another instance finds it. */
export interface CallKeeper {
  /** Names the questions of the next round: `count` ids. */
  name(count: number): readonly string[]
  /** Resolves when the call is durable. Rejects if it cannot be kept. */
  park(
    call: { readonly kept?: StoredCall; readonly task?: string },
    questions: readonly SentQuestion[],
    until: number,
  ): Promise<void>
  /** Deletes the call: nobody continues it. Resolves with false if another instance has it. Never rejects. */
  drop(): Promise<boolean>
  /** True once the call has been kept; a call that was taken over is, from the beginning on. */
  isKept(): boolean
  /** Resolves with true if another instance has the call. Never rejects. */
  isTaken(): Promise<boolean>
  /** Delivers the answers that were stored before the questions were asked again. */
  catchUp(): void
  /** Releases the call, so that another instance may continue it. */
  release(): void
}

/** The session, as its lines need it. */
export interface LineHost extends QuestionHost {
  readonly now: () => number
  readonly randomId: () => string
  /** True if every instance knows the session. */
  readonly portable: boolean
}

/** Questions that another instance asked, and the number of the last event that the client has seen. */
interface Recalled {
  readonly questions: readonly SentQuestion[]
  readonly answers: Readonly<Record<string, PeerAnswer>>
  readonly seen: number
}

/** How long a call that waits for a task is kept in the store. */
const REST_MS = 24 * 60 * 60_000

const noRoom = (): Asked => ({ kind: 'refused', error: new RondoError('LIMIT_PARKED') })

export class SessionLine implements AskingLine {
  readonly #host: LineHost
  readonly #size: () => number
  readonly #keeper: CallKeeper | undefined
  readonly #channel: Channel
  readonly #dialect: Pick<SessionDialect, 'encodeRequest'>
  #pulse = new Pulse()
  readonly #listeners = new Set<() => void>()
  /** Ids of questions that went out with a sealed state. */
  readonly #handed = new Set<string>()
  #questions: OpenQuestions | undefined
  #resting: Resting | undefined
  #closed = false
  /** Another instance continues the call. */
  #left = false
  /** Whether the call that was cancelled was this instance's. */
  #dropped: Promise<boolean> | undefined
  /** Nothing else is sent until the questions are, so that their events have the numbers that were kept. */
  #parking = false
  #keeping: Promise<void> | undefined
  /** Questions that another instance asked for the task of this call, until the task is found to ask them still. */
  #recalled: Recalled | undefined
  /** The scopes that the call needs. */
  scopes: readonly string[] = []
  /** Resolves when the call may continue with the answers that it has waited for. */
  ready: (() => Promise<void>) | undefined

  /** `size` returns the bytes that the request keeps while it waits. */
  constructor(
    host: LineHost,
    channel: Channel,
    dialect: Pick<SessionDialect, 'encodeRequest'>,
    size: () => number = () => 0,
    keeper?: CallKeeper,
  ) {
    this.#size = size
    this.#keeper = keeper
    this.#host = host
    this.#channel = channel
    this.#dialect = dialect
  }

  get closed(): boolean {
    return this.#closed
  }

  get left(): boolean {
    return this.#left
  }

  get channel(): Channel {
    return this.#channel
  }

  get #isKept(): boolean {
    return this.#keeper?.isKept() === true
  }

  async isTaken(): Promise<boolean> {
    return this.#left || (this.#isKept && (await this.#keeper?.isTaken()) === true)
  }

  get portable(): boolean {
    return this.#host.portable
  }

  get durable(): boolean {
    return this.#keeper !== undefined && this.#channel.last !== undefined
  }

  /** True if this call asked the question, whether or not it has been answered. */
  asked(id: string): boolean {
    return this.#handed.has(id)
  }

  get waiting(): boolean {
    return this.#isAsking || this.#resting !== undefined
  }

  get #isAsking(): boolean {
    return this.#questions?.isOpen === true
  }

  onClose(listener: () => void): () => void {
    // Wrapped, so that a function that was added twice can be removed once.
    const entry = (): void => listener()
    if (this.#closed) listener()
    else this.#listeners.add(entry)
    return () => {
      this.#listeners.delete(entry)
    }
  }

  notify(method: string, params: Record<string, unknown>): void {
    if (this.#closed || this.#parking || this.#keepResting()) return
    this.#channel.send(encodeNotification(method, this.#pulse.say(method, params)), true)
  }

  /** Continues after the last progress that another instance reported. */
  continueFrom(progress: number | undefined): void {
    this.#pulse = new Pulse(progress)
  }

  /** Sends a heartbeat if the call has been silent. Returns false after the call has ended. */
  beat(progressToken: string | number | undefined): boolean {
    if (this.#closed) return false
    if (this.#parking || !this.#pulse.isQuiet() || this.#keepResting()) return true
    if (progressToken === undefined) this.#channel.beat?.()
    else {
      const params = this.#pulse.beat(progressToken)
      this.#channel.send(encodeNotification('notifications/progress', params), true)
    }
    return true
  }

  async ask(questions: InputRequests, options: AskOptions): Promise<Asked> {
    if (this.#closed || !this.#channel.open) return this.#gone()
    const recalled = this.#recalled
    this.#recalled = undefined
    if (recalled && isSame(questions, recalled.questions))
      return this.askAgain(recalled.questions, recalled.answers, recalled.seen, options)
    const { timeoutMs, task, trace, signal, enough, handed = {}, kept } = options
    const keys = Object.keys(questions)
    const keeper = this.durable && (kept || task !== undefined) ? this.#keeper : undefined
    const isHanded = keeper !== undefined || keys.every((key) => Object.hasOwn(handed, key))
    const open = this.#open(timeoutMs, isHanded)
    if (!open) return noRoom()
    const ids = keeper?.name(keys.length)
    const sent = Object.entries(questions).map(([key, request], index): SentQuestion => {
      const held = Object.hasOwn(handed, key) ? handed[key] : undefined
      const named = ids?.[index] === undefined ? held : { id: ids[index] as string }
      const id = open.expect(key, named)
      const json = this.#dialect.encodeRequest(id, request, this.#host.randomId(), { task, trace })
      if (held !== undefined) this.#handed.add(id)
      return { id, key, json: held ? held.attach(json) : json, event: (this.#channel.last ?? 0) + index + 1 }
    })
    if (keeper) await this.#park(open, () => keeper.park({ kept, task }, sent, open.until))
    if (open.isOpen) {
      for (const { id, json } of sent) this.#channel.send(json, false, this.#handed.has(id) ? id : undefined)
      open.heed(enough, signal)
    }
    return this.#answered(open)
  }

  /** Parks the call, until `timeoutMs` have passed. Returns undefined if there is no room for it. */
  #open(timeoutMs: number, handed: boolean): OpenQuestions | undefined {
    this.#questions = OpenQuestions.park(this.#host, {
      until: this.#host.now() + timeoutMs,
      bytes: this.#size(),
      handed,
      scopes: this.scopes,
      send: (json) => this.#channel.send(json, false),
    })
    return this.#questions
  }

  /** Keeps the call in the store. If that fails, the waiting ends with the error. */
  async #park(open: OpenQuestions, park: () => Promise<void>): Promise<void> {
    try {
      if (this.#keeping) await this.#keeping
      this.#parking = true
      await park()
    } catch (error) {
      const known =
        error instanceof RondoError ? error : new RondoError('SERVER_INTERNAL', undefined, { cause: error })
      open.end({ kind: 'refused', error: known }, true)
    } finally {
      this.#parking = false
    }
  }

  async #answered(open: OpenQuestions): Promise<Asked> {
    const asked = await open.ended
    if (this.#questions === open) this.#questions = undefined
    if (asked.kind === 'gone') return this.#gone()
    if (asked.kind === 'answers' || (asked.kind === 'refused' && asked.unable !== undefined))
      await this.ready?.()
    return asked
  }

  /** The end of a call whose client cannot be reached: one that resumed its stream elsewhere is gone only here. */
  async #gone(): Promise<Asked> {
    const isElsewhere = this.#dropped ? (await this.#dropped) === false : await this.isTaken()
    return { kind: isElsewhere ? 'left' : 'gone' }
  }

  /** Keeps a call before an effect, and begins its stream, so that the client has an event to resume from. */
  async keep(kept: StoredCall): Promise<void> {
    if (!this.durable || this.#closed || !this.#channel.open) return
    await this.#keeping
    this.#parking = true
    try {
      await this.#keeper?.park({ kept }, [], kept.claims.flowExpires)
    } finally {
      this.#parking = false
    }
    if (!this.#closed) this.#channel.beat?.()
  }

  /** Waits for questions that another instance asked. Those that the client has not seen are sent again. */
  async askAgain(
    questions: readonly SentQuestion[],
    answers: Readonly<Record<string, PeerAnswer>>,
    seen: number,
    { timeoutMs, enough, signal }: AskOptions,
  ): Promise<Asked> {
    if (this.#closed) return this.#gone()
    const open = this.#open(timeoutMs, true)
    if (!open) return noRoom()
    for (const { id, key, json, event } of questions) {
      open.expect(key, { id })
      if (event > seen && answers[id] === undefined) this.#channel.send(json, false)
    }
    for (const [id, answer] of Object.entries(answers)) open.take(id, answer)
    this.#keeper?.catchUp()
    open.heed(enough, signal)
    return this.#answered(open)
  }

  /** The next time that the task of this call asks the same, these questions are not asked again. */
  recall(
    questions: readonly SentQuestion[],
    answers: Readonly<Record<string, PeerAnswer>>,
    seen: number,
  ): void {
    this.#recalled = { questions, answers, seen }
  }

  rest(resting: Resting): () => void {
    this.#resting = resting
    return () => {
      if (this.#resting === resting) this.#resting = undefined
    }
  }

  /** Keeps a call that waits for a task before its client learns of the stream. Returns true while nothing may be sent. */
  #keepResting(): boolean {
    const task = this.#resting?.task
    if (this.#isKept || task === undefined || !this.durable || !this.#channel.open) return false
    this.#parking = true
    const keep = async (): Promise<void> => {
      try {
        await this.#keeper?.park({ task }, [], this.#host.now() + REST_MS)
      } catch {
        // It waits here alone, until the next heartbeat tries again.
      }
      this.#keeping = undefined
      this.#parking = false
      if (!this.#closed) this.#channel.beat?.()
    }
    this.#keeping = keep()
    return true
  }

  /** Ends the call, because the client cancelled it or is gone. */
  cancel(): void {
    if (this.#closed) return
    this.#questions?.end({ kind: 'gone' })
    this.#dropped = this.#keeper?.drop()
    this.#close()
  }

  /** Ends the call here without a word, because another instance continues it. */
  leave(): void {
    if (this.#closed) return
    this.#left = true
    this.#questions?.end({ kind: 'left' }, true)
    this.#close()
  }

  #close(): void {
    this.#closed = true
    const listeners = [...this.#listeners]
    this.#listeners.clear()
    for (const listener of listeners) listener()
  }

  /** Ends all waiting, because the server stops. */
  endWaiting(error: RondoError): void {
    const waitsForTask = this.#resting?.task !== undefined && !this.#isAsking
    if (this.#isAsking ? this.#questions?.handed : this.#isKept && waitsForTask) {
      if (this.#isKept) this.#keeper?.release()
      return this.leave()
    }
    // The handler runs on for longer than the server waits: another instance continues the call when its lease has run out.
    if (this.#isKept && !this.waiting) return this.leave()
    this.#questions?.refuse(error)
    this.#resting?.refuse(error)
  }

  sweep(now: number): void {
    if (this.#questions && now >= this.#questions.until)
      this.#questions.refuse(new RondoError('INPUT_TIMEOUT'))
  }
}

function isSame(questions: InputRequests, recalled: readonly SentQuestion[]): boolean {
  return (
    Object.keys(questions).length === recalled.length &&
    recalled.every(({ key }) => Object.hasOwn(questions, key))
  )
}
