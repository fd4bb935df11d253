/**
 * The messages of one client that talks over a pair of byte streams: what came in one line is answered in one line.
 * Streams, end of input and process belong to `stdio.ts`.
 */

import { RondoError } from '../errors.ts'
import type { Call, ListenCall, Principal, RequestId } from '../protocol/call.ts'
import { encodeError, encodeReply } from '../protocol/rev-2026-07-28/encode.ts'
import { type BeatOptions, startBeating } from './heartbeat.ts'
import { createInFlight } from './in-flight.ts'
import type { InputLine } from './line-reader.ts'
import { readMessage } from './message.ts'
import type { Service } from './service.ts'
import { SessionPeer } from './session/session-peer.ts'
import { settle } from './settle.ts'
import { NOBODY } from './share.ts'
import { StdioLine, type StdioOutput } from './stdio-line.ts'
import { createSubscriptions, type Subscriptions } from './subscription.ts'

export interface StdioPeerOptions {
  readonly principal?: Principal
  readonly maxSubscriptions?: number
  readonly beats: BeatOptions
  readonly onError: (error: unknown) => void
}

export class StdioPeer {
  readonly #service: Service
  readonly #output: StdioOutput
  readonly #options: StdioPeerOptions
  readonly #subscriptions: Subscriptions
  readonly #inFlight = createInFlight()
  /** What ends each open request when the client cancels it. */
  readonly #open = new Map<RequestId, () => void>()
  /** The client as one of an earlier era, if it turns out to be one. */
  readonly #older: SessionPeer | undefined

  constructor(service: Service, output: StdioOutput, options: StdioPeerOptions) {
    this.#service = service
    this.#output = output
    this.#options = options
    this.#subscriptions = createSubscriptions(service, options)
    const { older } = service
    const inFlight = this.#inFlight
    this.#older = older && new SessionPeer({ ...options, older, output, inFlight, service })
  }

  /** Never throws: what nobody expected is told to `onError`, and the next line is read. */
  receive(input: InputLine): void {
    try {
      this.#take(input)
    } catch (error) {
      this.#options.onError(error)
      this.#refuse(null, new RondoError('SERVER_INTERNAL', undefined, { cause: error }))
    }
  }

  #take(input: InputLine): void {
    if (input.kind === 'too-long') this.#refuse(null, new RondoError('LIMIT_BODY'))
    else if (input.kind === 'not-utf8') this.#refuse(null, new RondoError('PEER_PARSE', 'Not UTF-8'))
    else if (input.text.trim() !== '') this.#read(input.text)
  }

  /** Resolves when no call is in flight. */
  idle(): Promise<void> {
    return this.#inFlight.idle()
  }

  /** Ends every subscription with its result. */
  endSubscriptions(): void {
    this.#subscriptions.endAll()
  }

  /** The client has gone: nothing that is open will be read. */
  cancelAll(): void {
    for (const cancel of [...this.#open.values()]) cancel()
    this.#older?.end()
  }

  /** Nobody will answer a question any more. */
  refuseWaiting(): void {
    this.#older?.refuseWaiting()
  }

  #read(text: string): void {
    const older = this.#older
    const decoded = readMessage(text, undefined, this.#service, older && ((message) => older.takes(message)))
    if (decoded.kind === 'older') older?.receive(decoded.message)
    else if (decoded.kind === 'refused') this.#refuse(decoded.id, decoded.error)
    else if (decoded.kind === 'call') this.#begin(decoded.call)
    else if (decoded.method === 'notifications/cancelled') {
      this.#open.get(decoded.params.requestId as RequestId)?.()
    }
  }

  #begin(call: Call): void {
    if (this.#service.draining) this.#refuse(call.id, new RondoError('SERVER_DRAINING'))
    else if (this.#open.has(call.id)) {
      this.#refuse(call.id, new RondoError('PEER_REQUEST', 'A request with this id is still open'))
    } else if (call.kind === 'listen') this.#listen(call)
    else this.#run(call)
  }

  #run(call: Exclude<Call, ListenCall>): void {
    const { principal, onError } = this.#options
    const line = new StdioLine(this.#output)
    this.#open.set(call.id, () => line.cancel())
    this.#inFlight.enter()
    const { progressToken } = call
    const stopBeating =
      progressToken === undefined
        ? () => {}
        : startBeating(this.#options.beats, () => line.beat(progressToken))
    settle(this.#service, call, principal, line, onError, (reply) => {
      const json = encodeReply(call.id, reply, this.#service)
      this.#open.delete(call.id)
      stopBeating()
      line.finish(json)
      this.#inFlight.leave()
    })
  }

  #listen(call: ListenCall): void {
    const close = (): void => {
      this.#open.delete(call.id)
    }
    this.#open.set(call.id, close)
    try {
      const stop = this.#subscriptions.open(
        call,
        { principal: this.#options.principal, share: NOBODY },
        {
          send: (json) => this.#output.write(json),
          end: close,
        },
      )
      if (!this.#open.has(call.id)) return
      this.#open.set(call.id, () => {
        close()
        stop()
      })
    } catch (error) {
      close()
      if (!(error instanceof RondoError)) throw error
      this.#refuse(call.id, error)
    }
  }

  #refuse(id: RequestId | null, error: RondoError): void {
    this.#output.write(encodeError(id, error))
  }
}
