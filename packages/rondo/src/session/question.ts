/**
 * The questions of one round of a call, from the moment they are asked until the waiting ends.
 *
 * question 1  A call waits until every question is answered, one is answered with an error, time runs out, the client
 *             cancels, or the server stops.
 * question 2  When the waiting ends early, the client is told which questions no longer need an answer.
 * question 3  A call counts as parked while it waits, and only then.
 */

import type { Asked, PortableQuestion } from '../carry/push.ts'
import { RondoError } from '../errors.ts'
import type { PeerAnswer } from '../protocol/call.ts'
import { encodeNotification } from '../protocol/common/json-rpc.ts'

/** A question as it is sent. */
export interface SentQuestion {
  readonly id: string
  readonly key: string
  readonly json: string
  /** The number of its event. */
  readonly event: number
}

/** The session, as its questions need it. */
export interface QuestionHost {
  /** Registers a question, whose answer goes to `take`, and returns its id. */
  expect(
    take: (answer: PeerAnswer) => void,
    handed?: Pick<PortableQuestion, 'id'> & Partial<PortableQuestion>,
    scopes?: readonly string[],
  ): string
  forget(id: string): void
  /** Counts the call as parked, with the bytes that it keeps. Returns false if there is no room. */
  park(bytes: number): boolean
  unpark(bytes: number): void
}

interface QuestionTerms {
  /** When the questions time out, ms since the epoch. */
  readonly until: number
  /** Bytes that the call keeps while it waits. */
  readonly bytes: number
  /** True if every instance can take the answers, so that the questions outlive this process. */
  readonly handed: boolean
  /** The scopes that an answer needs. */
  readonly scopes: readonly string[]
  /** Sends a message to the client. */
  send(json: string): void
}

const METHOD_NOT_FOUND = -32601

export class OpenQuestions {
  /** Resolves when the waiting ends. */
  readonly ended: Promise<Asked>
  readonly until: number
  readonly handed: boolean
  readonly #host: QuestionHost
  readonly #terms: QuestionTerms
  /** The keys of the open questions, by request id. */
  readonly #open = new Map<string, string>()
  readonly #answers: Record<string, unknown> = Object.create(null)
  #resolve: ((asked: Asked) => void) | undefined

  /** Parks the call. Returns undefined if there is no room for it. */
  static park(host: QuestionHost, terms: QuestionTerms): OpenQuestions | undefined {
    return host.park(terms.bytes) ? new OpenQuestions(host, terms) : undefined
  }

  private constructor(host: QuestionHost, terms: QuestionTerms) {
    this.#host = host
    this.#terms = terms
    this.until = terms.until
    this.handed = terms.handed
    this.ended = new Promise((resolve) => {
      this.#resolve = resolve
    })
  }

  get isOpen(): boolean {
    return this.#resolve !== undefined
  }

  /** Waits for the answer to one more question, and returns its request id. */
  expect(key: string, named: Parameters<QuestionHost['expect']>[1]): string {
    const id = this.#host.expect((answer) => this.take(id, answer), named, this.#terms.scopes)
    this.#open.set(id, key)
    return id
  }

  /** Ends the waiting when a signal fires: with the answers that are there, or with an error. */
  heed(enough?: AbortSignal, signal?: AbortSignal): void {
    const settle = (): void => this.end({ kind: 'answers', answers: this.#answers })
    if (enough?.aborted) return settle()
    enough?.addEventListener('abort', settle)
    signal?.addEventListener('abort', () => this.refuse(new RondoError('INPUT_TIMEOUT')))
  }

  take(id: string, answer: PeerAnswer): void {
    const key = this.#open.get(id)
    if (key === undefined) return
    this.#open.delete(id)
    this.#host.forget(id)
    if (answer.kind === 'error') {
      const detail = `The client did not answer "${key}": ${answer.message || `error ${answer.code}`}`
      const error = new RondoError('INPUT_FAILED', detail)
      return this.end({ kind: 'refused', error, ...(answer.code === METHOD_NOT_FOUND && { unable: key }) })
    }
    this.#answers[key] = answer.result
    if (this.#open.size === 0) this.end({ kind: 'answers', answers: this.#answers })
  }

  /** Ends the waiting with an error. */
  refuse(error: RondoError): void {
    this.end({ kind: 'refused', error })
  }

  /** Ends the waiting; `silently` if the client must not be told. */
  end(asked: Asked, silently = false): void {
    const resolve = this.#resolve
    if (resolve === undefined) return
    this.#resolve = undefined
    this.#host.unpark(this.#terms.bytes)
    for (const requestId of this.#open.keys()) {
      this.#host.forget(requestId)
      if (silently) continue
      const params = { requestId, reason: 'An answer is no longer needed' }
      this.#terms.send(encodeNotification('notifications/cancelled', params))
    }
    this.#open.clear()
    resolve(asked)
  }
}
