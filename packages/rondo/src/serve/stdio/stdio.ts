/**
 * `server.stdio()`: one client over a pair of byte streams, one JSON message per line.
 *
 * Nothing but messages is written to the output: one stray `console.log` of a tool would break it, so whatever else is
 * written to standard output goes to standard error. While the client does not read, its input is not read either. At the
 * end of the input the calls in flight get a grace period, then the rest is cancelled.
 */

import { isUtf8 } from 'node:buffer'
import type { Readable, Writable } from 'node:stream'
import { RondoError } from '../../errors.ts'
import { createEvery, type Every } from '../../lib/clock.ts'
import { createInFlight, type InFlight } from '../../lib/collection.ts'
import { quietly } from '../../lib/quietly.ts'
import { callable, defineOptions, flag, number, type OptionsOf, unchecked } from '../../options.ts'
import type { Call, Line, ListenCall, Principal, RequestId } from '../../protocol/call.ts'
import { encodeError, encodeNotification } from '../../protocol/common/json-rpc.ts'
import { createLineReader, type InputLine } from '../../protocol/common/lines.ts'
import { readRequestId } from '../../protocol/common/request-id.ts'
import type { Reply } from '../../protocol/reply.ts'
import { atMost, createStop, onSignals } from '../drain.ts'
import { createWatch, Pulse, type Watch } from '../heartbeat.ts'
import { assertPrincipal } from '../http/authenticate.ts'
import { toLine } from '../http/line.ts'
import { createSubscriptions, type Subscriptions } from '../http/subscription.ts'
import { createLoads, FREE_WEIGHT, HTTP_LIMITS, NOBODY } from '../limits.ts'
import { readMessage } from '../message.ts'
import type { Load, Loads, OlderPeer, Service, StdioOutput, WatchedCall } from '../port.ts'
import { finishOnce, replyTo } from '../service.ts'

export interface StdioOptions {
  /** Where messages are read from. Default: `process.stdin`. */
  input?: Readable
  /** Where messages are written; nothing else in the process can write there meanwhile. Default: `process.stdout`. */
  output?: Writable
  /** Who the client is: usually the user who started this process. Default: anonymous. */
  principal?: Principal
  /** The longest line that is accepted; then `LIMIT_BODY`. Default: 4 MiB. */
  maxLineBytes?: number
  /** Concurrent subscriptions. Default: 1024. */
  maxSubscriptions?: number
  /** How long a call may work in silence before it sends progress, if the client asked for it; 0 for never. Default: 5 s. */
  heartbeatMs?: number
  /** The timer of heartbeats. Default: `setInterval`. */
  every?: Every
  /** How long calls in flight may take after the end of the input, and while the process stops. Default: 10 s. */
  graceMs?: number
  /** Drains on SIGTERM and SIGINT, then ends the process; ends it after the end of standard input too. Default: `true`. */
  signals?: boolean
  /**
   * Logs unhandled rejections; `false` lets them end the process. Default: `true`.
   *
   * @see docs/decisions/0012-unhandled-rejections.md
   */
  rejections?: boolean
  /** Receives errors that no client is told about. Default: the log. */
  onError?: (error: unknown) => void
}

const { maxSubscriptions, heartbeatMs } = HTTP_LIMITS.table

const STDIO = defineOptions('stdio', {
  input: unchecked(),
  output: unchecked(),
  principal: unchecked(),
  maxLineBytes: number(4_194_304),
  maxSubscriptions,
  heartbeatMs,
  every: callable(),
  graceMs: number(10_000),
  signals: flag(true),
  rejections: flag(true),
  onError: callable(),
} satisfies OptionsOf<StdioOptions>)

/** Throws if `server.stdio` does not have an option or cannot use its value. */
export function assertStdioOptions(given: unknown): void {
  STDIO.assert(given)
}

interface StdioServing {
  /** Resolves when the client has gone and everything is finished. */
  readonly done: Promise<void>
  /** Drains, then stops reading. */
  close(): Promise<void>
}

/** Unread bytes beyond which progress and logs are dropped. */
const MAX_BACKLOG = 1_048_576

export function serveStdio(service: Service, given: StdioOptions = {}): StdioServing {
  const options = STDIO.pick(given)
  const { input = process.stdin, output = process.stdout, graceMs, heartbeatMs } = options
  if (options.principal !== undefined) assertPrincipal(options.principal)
  const onError = quietly(options.onError)
  const { every = createEvery(onError) } = options
  const watch = createWatch({ heartbeatMs, slow: service.slow, every, onError })
  const claim = output === process.stdout ? claimStdout(process.stdout, process.stderr) : undefined
  const write = claim ? claim.write : (text: string) => output.write(text)
  const peer = new StdioPeer(service, toOutput(input, output, write), { ...options, watch, onError })
  const { promise: done, resolve: finish } = deferred()
  const read = createLineReader(
    options.maxLineBytes,
    (line) => peer.receive(line),
    (id) => peer.refuse(id, new RondoError('LIMIT_BODY', 'The line is too long')),
  )
  const onData = (chunk: Buffer | string): void =>
    read(typeof chunk === 'string' ? Buffer.from(chunk) : chunk)
  const end = (): void => {
    input.off('data', onData)
    input.pause()
    peer.endSubscriptions()
    peer.cancelAll()
    claim?.release()
    finish()
  }
  const stop = createStop({
    begin: () => service.drain(),
    idle: () => peer.idle(),
    finish: async () => end(),
    graceMs,
  })
  const forget = options.signals === false ? () => {} : onSignals(stop)
  const onEnd = (): void => {
    forget()
    // The last line may lack its line break.
    read(Buffer.from('\n'))
    peer.refuseWaiting()
    atMost(peer.idle(), graceMs).then(end).catch(onError)
    if (input === process.stdin && options.signals !== false) done.then(endProcess)
  }
  let gone = false
  const onGone = (): void => {
    if (gone) return
    gone = true
    peer.cancelAll()
    onEnd()
  }
  input.on('data', onData)
  input.once('end', onEnd)
  // Standard output emits an error for every write to a reader that has gone, and each one needs a listener.
  input.on('error', onGone)
  output.on('error', onGone)
  output.once('close', onGone)
  return { done, close: stop }
}

function deferred(): { promise: Promise<void>; resolve: () => void } {
  let resolve = (): void => {}
  const promise = new Promise<void>((settle) => {
    resolve = settle
  })
  return { promise, resolve }
}

/** A process whose client has gone has nothing left to do. Whatever keeps it alive gets a second to end by itself. */
function endProcess(): void {
  setTimeout(() => process.exit(), 1_000).unref()
}

/** One message per line; while the client does not read, its input is not read either. */
function toOutput(input: Readable, output: Writable, write: (text: string) => boolean) {
  return {
    write(json: string) {
      if (output.destroyed || output.writableEnded) return
      if (write(`${toLine(json)}\n`) || input.isPaused()) return
      input.pause()
      output.once('drain', () => input.resume())
    },
    get clogged() {
      return output.writableLength > MAX_BACKLOG
    },
  }
}

interface StdoutClaim {
  write(text: string): boolean
  /** Restores standard output. */
  release(): void
}

export function claimStdout(stdout: Writable, stderr: Writable): StdoutClaim {
  const original = stdout.write
  // The host may have closed standard error. Then only what a tool prints is lost.
  const ignore = (): void => {}
  stderr.on('error', ignore)
  stdout.write = stderr.write.bind(stderr) as Writable['write']
  return {
    write: (text) => original.call(stdout, text, 'utf8', () => {}),
    release() {
      stdout.write = original
      stderr.off('error', ignore)
    },
  }
}

// Serves the messages of one client: a request on one line gets a response on one line.
//
// A request has no stream of its own. The client cancels it with a message, and from then on nothing is written for it,
// not even its response.

interface StdioPeerOptions {
  readonly principal?: Principal
  readonly maxSubscriptions?: number
  readonly watch: Watch | undefined
  readonly onError: (error: unknown) => void
}

class StdioPeer {
  readonly #service: Service
  readonly #output: StdioOutput
  readonly #options: StdioPeerOptions
  readonly #subscriptions: Subscriptions
  readonly #inFlight: InFlight<WatchedCall>
  readonly #loads: Loads
  /** Functions that end the open requests when the client cancels them. */
  readonly #open = new Map<RequestId, () => void>()
  /** Serves the client if it turns out to be of an earlier era. */
  readonly #older: OlderPeer | undefined

  constructor(service: Service, output: StdioOutput, options: StdioPeerOptions) {
    this.#service = service
    this.#output = output
    this.#options = options
    this.#loads = service.loads ?? createLoads()
    this.#subscriptions = createSubscriptions(service, options)
    const { older } = service
    const inFlight = createInFlight(options.watch)
    this.#inFlight = inFlight
    this.#older = older?.overStdio({ ...options, output, inFlight, service })
  }

  /** Never throws: unexpected errors go to `onError`, and the next line is read. */
  receive(input: InputLine): void {
    if (input === 'too-long') return
    try {
      this.#decode(input)
    } catch (error) {
      this.#options.onError(error)
      this.refuse(readRequestId(input), new RondoError('SERVER_INTERNAL', undefined, { cause: error }))
    }
  }

  #decode(input: Buffer): void {
    if (!isUtf8(input)) return this.refuse(readRequestId(input), new RondoError('PEER_PARSE', 'Not UTF-8'))
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
    let load: Load | undefined
    const weigh = (weight: number): RondoError | undefined => {
      if (weight <= FREE_WEIGHT) return undefined
      load = this.#loads.open(NOBODY)
      return load.weigh(weight) ? undefined : this.#loads.refusal()
    }
    const isOlder = older && ((message: unknown) => older.takes(message))
    const decoded = readMessage(text, undefined, this.#service, isOlder, weigh)
    const release = load?.hold()
    try {
      this.#serve(decoded, load)
    } finally {
      release?.()
    }
  }

  #serve(decoded: ReturnType<typeof readMessage>, load: Load | undefined): void {
    if (decoded.kind === 'older') this.#older?.receive(decoded.message, load)
    else if (decoded.kind === 'refused') this.refuse(decoded.id, decoded.error)
    else if (decoded.kind === 'call') this.#begin(decoded.call, load)
    else if (decoded.method === 'notifications/cancelled') {
      this.#open.get(decoded.params.requestId as RequestId)?.()
    }
  }

  #begin(call: Call, load: Load | undefined): void {
    if (this.#service.state.draining) this.refuse(call.id, new RondoError('SERVER_DRAINING'))
    else if (this.#open.has(call.id)) {
      this.refuse(call.id, new RondoError('PEER_REQUEST', 'A request with this id is still open'))
    } else if (call.kind === 'listen') this.#listen(call)
    else this.#run(call, load)
  }

  #run(call: Exclude<Call, ListenCall>, load: Load | undefined): void {
    const { principal, onError } = this.#options
    const line = new StdioLine(this.#output)
    const active = { call, principal, line }
    const { requests, newest } = this.#service.codecs
    const codec = requests.get(call.protocolVersion) ?? newest
    this.#open.set(call.id, () => line.cancel())
    this.#inFlight.enter(active)
    const release = load?.hold()
    const finish = (reply: Reply): void => {
      const json = codec.encodeReply(call.id, reply, this.#service)
      this.#open.delete(call.id)
      line.finish(json)
      this.#inFlight.leave(active)
      release?.()
    }
    void replyTo(this.#service, active, onError).then((reply) => finishOnce(reply, finish, onError))
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
      this.refuse(call.id, error)
    }
  }

  refuse(id: RequestId | null, error: RondoError): void {
    this.#output.write(encodeError(id, error))
  }
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
