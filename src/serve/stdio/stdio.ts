/**
 * `server.stdio()`: one client over a pair of byte streams, one JSON message per line.
 *
 * Nothing but messages is written to the output: one stray `console.log` of a tool would break it, so whatever else is
 * written to standard output goes to standard error. While the client does not read, its input is not read either. At the
 * end of the input the calls in flight get a grace period, then the rest is cancelled.
 */

import type { Readable, Writable } from 'node:stream'
import { createEvery, type Every } from '../../lib/clock.ts'
import { createLineReader } from '../../lib/lines.ts'
import type { Principal } from '../../protocol/call.ts'
import { atMost, createStop, onSignals } from '../drain.ts'
import { quietly } from '../failure.ts'
import { assertInterval, createWatch, HEARTBEAT_MS } from '../heartbeat.ts'
import { assertPrincipal } from '../http/authenticate.ts'
import { toLine } from '../http/line.ts'
import type { Service } from '../service.ts'
import { StdioPeer } from './peer.ts'

export interface StdioOptions {
  /** Default: `process.stdin`. */
  input?: Readable
  /** Default: `process.stdout`, to which nothing else in this process can then write. */
  output?: Writable
  /** Who the client is. Usually absent, since the client is the user who started this process. */
  principal?: Principal
  /** Bytes of the longest line that is read. */
  maxLineBytes?: number
  /** Subscriptions that may be open at once. */
  maxSubscriptions?: number
  /** How long a call may be silent before it sends a heartbeat, if the client asked for progress; 0 for never. */
  heartbeatMs?: number
  /** The timer of heartbeats. */
  every?: Every
  /** Grace period of calls in flight after the end of the input, and while the process stops. */
  graceMs?: number
  /** Drains on SIGTERM and SIGINT, then exits. Default: true. */
  signals?: boolean
  /** Logs unhandled rejections, which then do not end the process. Default: true. */
  rejections?: boolean
  /** Receives errors that no client is told about. */
  onError?: (error: unknown) => void
}

interface StdioServing {
  /** Resolves when the client has gone and everything is finished. */
  readonly done: Promise<void>
  /** Drains, then stops reading. */
  close(): Promise<void>
}

/** Unread bytes beyond which progress and logs are dropped. */
const MAX_BACKLOG = 1_048_576

export function serveStdio(service: Service, options: StdioOptions = {}): StdioServing {
  const { input = process.stdin, output = process.stdout, graceMs = 10_000 } = options
  if (options.principal !== undefined) assertPrincipal(options.principal)
  const onError = quietly(options.onError)
  assertInterval('heartbeatMs', options.heartbeatMs, 0)
  const { heartbeatMs = HEARTBEAT_MS, every = createEvery(onError) } = options
  const watch = createWatch({ heartbeatMs, slow: service.slow, every, onError })
  const claim = output === process.stdout ? claimStdout(process.stdout, process.stderr) : undefined
  const write = claim ? claim.write : (text: string) => output.write(text)
  const peer = new StdioPeer(service, toOutput(input, output, write), { ...options, watch, onError })
  const { promise: done, resolve: finish } = deferred()
  const read = createLineReader(options.maxLineBytes ?? 4_194_304, (line) => peer.receive(line))
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
    if (input === process.stdin) done.then(endProcess)
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
