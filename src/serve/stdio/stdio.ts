/**
 * `server.stdio()`: one client over a pair of byte streams, one JSON message per line.
 *
 * Nothing but messages is written to the output. While the client does not read, its input is not read either. At the
 * end of the input the calls in flight get a bounded time, then the rest is cancelled.
 */

import type { Readable, Writable } from 'node:stream'
import { createEvery, type Every } from '../../lib/clock.ts'
import { createLineReader } from '../../lib/lines.ts'
import type { Principal } from '../../protocol/call.ts'
import { atMost, createStop, onSignals } from '../drain.ts'
import { assertInterval, createWatch, HEARTBEAT_MS } from '../heartbeat.ts'
import { assertPrincipal } from '../http/authenticate.ts'
import { toLine } from '../http/line.ts'
import { quietly, type Service } from '../service.ts'
import { StdioPeer } from './peer.ts'

export interface StdioOptions {
  /** `process.stdin` unless given. */
  input?: Readable
  /** `process.stdout` unless given; then nothing else of this process can write there. */
  output?: Writable
  /** Who the client is. It is this process's own user, so usually nobody says. */
  principal?: Principal
  /** The longest line that is read. */
  maxLineBytes?: number
  /** Subscriptions that may be open at once. */
  maxSubscriptions?: number
  /** How long a call may work in silence before it shows that it is alive, where the client asked for progress; 0 for never. */
  heartbeatMs?: number
  /** The timer of the heartbeat. */
  every?: Every
  /** How long calls in flight may take after the end of the input, or while the process stops. */
  graceMs?: number
  /** Drain on SIGTERM and SIGINT, then end the process. On unless false. */
  signals?: boolean
  /** Log rejections that the code of handlers leaves unhandled; they do not end the process. On unless false. */
  rejections?: boolean
  /** Hears of faults that no client is told about. */
  onError?: (error: unknown) => void
}

export interface StdioServing {
  /** Resolves when the client has gone and everything is finished. */
  readonly done: Promise<void>
  /** Drains, then stops reading. */
  close(): Promise<void>
}

/** Unread bytes beyond which progress and logs are left out. */
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
    // The last line may lack its end.
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
  // Standard output fails once for every write to a reader that has gone: each of these events needs its listener.
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

/** A process whose client has gone has no more to do; what would keep it alive gets a moment to end by itself. */
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

/*
 * Standard output is the wire: one stray `console.log` of a tool would break it. While it is claimed, whatever else is
 * written there goes to standard error; only the claimant writes to the real one.
 */

export interface StdoutClaim {
  write(text: string): boolean
  /** Gives standard output back. */
  release(): void
}

export function claimStdout(stdout: Writable, stderr: Writable): StdoutClaim {
  const original = stdout.write
  // The host may have closed it; what a tool prints is then lost, and nothing else.
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
