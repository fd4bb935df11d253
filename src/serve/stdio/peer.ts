/**
 * Serves the messages of one client over a pair of byte streams: a request on one line gets a response on one line. The
 * streams, the end of input and the process are the business of `stdio.ts`.
 *
 * A request has no stream of its own. The client cancels it with a message, and from then on nothing is written for it,
 * not even its response.
 */

import { isUtf8 } from 'node:buffer'
import { RondoError } from '../../errors.ts'
import { createInFlight, type InFlight } from '../../lib/collection.ts'
import type { InputLine } from '../../lib/lines.ts'
import type { Call, Line, ListenCall, Principal, RequestId } from '../../protocol/call.ts'
import { encodeError, encodeNotification } from '../../protocol/common/json-rpc.ts'
import type { WatchedCall } from '../heartbeat.ts'
import { Pulse, type Watch } from '../heartbeat.ts'
import { readMessage } from '../http/exchange.ts'
import { createSubscriptions, type Subscriptions } from '../http/subscription.ts'
import { NOBODY } from '../limits.ts'
import { type Service, settle } from '../service.ts'
import { SessionPeer } from '../session/peer.ts'

interface StdioPeerOptions {
  readonly principal?: Principal
  readonly maxSubscriptions?: number
  readonly watch: Watch | undefined
  readonly onError: (error: unknown) => void
}

export class StdioPeer {
  readonly #service: Service
  readonly #output: StdioOutput
  readonly #options: StdioPeerOptions
  readonly #subscriptions: Subscriptions
  readonly #inFlight: InFlight<WatchedCall>
  /** Functions that end the open requests when the client cancels them. */
  readonly #open = new Map<RequestId, () => void>()
  /** Serves the client if it turns out to be of an earlier era. */
  readonly #older: SessionPeer | undefined

  constructor(service: Service, output: StdioOutput, options: StdioPeerOptions) {
    this.#service = service
    this.#output = output
    this.#options = options
    this.#subscriptions = createSubscriptions(service, options)
    const { older } = service
    const inFlight = createInFlight(options.watch)
    this.#inFlight = inFlight
    this.#older = older && new SessionPeer({ ...options, older, output, inFlight, service })
  }

  /** Never throws: unexpected errors go to `onError`, and the next line is read. */
  receive(input: InputLine): void {
    try {
      this.#decode(input)
    } catch (error) {
      this.#options.onError(error)
      this.#refuse(null, new RondoError('SERVER_INTERNAL', undefined, { cause: error }))
    }
  }

  #decode(input: InputLine): void {
    if (input === 'too-long') return this.#refuse(null, new RondoError('LIMIT_BODY'))
    if (!isUtf8(input)) return this.#refuse(null, new RondoError('PEER_PARSE', 'Not UTF-8'))
    const text = input.toString('utf8')
    if (text.trim() !== '') this.#read(text)
  }

  /** Resolves when no call is in flight. */
  idle(): Promise<void> {
    return this.#inFlight.idle()
  }

  /** Ends every subscription with its result. */
  endSubscriptions(): void {
    this.#subscriptions.endAll()
  }

  /** Cancels everything that is open: the client has gone. */
  cancelAll(): void {
    for (const cancel of [...this.#open.values()]) cancel()
    this.#older?.end()
  }

  /** Refuses the calls that wait for an answer: none will come. */
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
    if (this.#service.state.draining) this.#refuse(call.id, new RondoError('SERVER_DRAINING'))
    else if (this.#open.has(call.id)) {
      this.#refuse(call.id, new RondoError('PEER_REQUEST', 'A request with this id is still open'))
    } else if (call.kind === 'listen') this.#listen(call)
    else this.#run(call)
  }

  #run(call: Exclude<Call, ListenCall>): void {
    const { principal, onError } = this.#options
    const line = new StdioLine(this.#output)
    const active = { call, principal, line }
    const { requests, newest } = this.#service.codecs
    const codec = requests.get(call.protocolVersion) ?? newest
    this.#open.set(call.id, () => line.cancel())
    this.#inFlight.enter(active)
    settle(this.#service, active, onError, (reply) => {
      const json = codec.encodeReply(call.id, reply, this.#service)
      this.#open.delete(call.id)
      line.finish(json)
      this.#inFlight.leave(active)
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

/** Where all messages to the client go. */
export interface StdioOutput {
  write(json: string): void
  /** True while too much of the output is unread. */
  readonly clogged: boolean
}

class StdioLine implements Line {
  readonly #output: StdioOutput
  readonly #listeners = new Set<() => void>()
  readonly #pulse = new Pulse()
  #closed = false
  #finished = false

  constructor(output: StdioOutput) {
    this.#output = output
  }

  get closed(): boolean {
    return this.#closed
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
    // Progress and logs are dropped for a client that does not read.
    if (this.#closed || this.#finished || this.#output.clogged) return
    this.#output.write(encodeNotification(method, this.#pulse.say(method, params)))
  }

  /** Over stdio only progress can show that a call is alive. */
  beat(progressToken: string | number | undefined): void {
    if (this.#closed || this.#finished || progressToken === undefined) return
    if (this.#pulse.isQuiet() && !this.#output.clogged) {
      this.#output.write(encodeNotification('notifications/progress', this.#pulse.beat(progressToken)))
    }
  }

  finish(json: string): void {
    if (!this.#closed && !this.#finished) this.#output.write(json)
    this.#finished = true
    this.#listeners.clear()
  }

  /** The client has cancelled, or has gone. */
  cancel(): void {
    if (this.#closed || this.#finished) return
    this.#closed = true
    const listeners = [...this.#listeners]
    this.#listeners.clear()
    for (const listener of listeners) listener()
  }
}
