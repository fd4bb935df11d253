/**
 * A server as a child process: one JSON message per line on its stdin and stdout.
 *
 * The command is started without a shell and with a short list of environment variables, so that secrets of this process
 * do not leak into every server. Notifications go to every request in flight, which filter for their own. A line on stdout
 * that is not a message is reported and skipped.
 *
 * stdio 1: A server that writes nothing but lines of that kind, that does not read what it is sent, or that closes its stdout, is
 *          given up.
 * stdio 2: `close` does not wait for processes that the server started: they may hold its pipes open for ever.
 */

import { type ChildProcess, spawn } from 'node:child_process'
import { RondoError } from '../../errors.ts'
import { isRecord } from '../../lib/json.ts'
import type { RequestId } from '../../protocol/call.ts'
import { createLineReader } from '../../protocol/common/lines.ts'
import { parseMessage } from './response-reader.ts'
import { guard, type Outgoing, type Transport } from './transport.ts'

export interface StdioTarget {
  readonly command: string
  readonly args?: readonly string[]
  /** Added to the few variables every server gets (PATH, HOME, LANG and the like). */
  readonly env?: Readonly<Record<string, string>>
  readonly cwd?: string
  /** The destination of the server's stderr; a function receives it line by line. Default `inherit`. */
  readonly stderr?: 'inherit' | 'ignore' | ((line: string) => void)
}

export interface ProcessOptions {
  /** Bytes of one message. */
  readonly maxBytes: number
  /** How long the process may take to exit after its stdin is closed, and again after SIGTERM. */
  readonly graceMs?: number
  readonly onWarning?: (text: string) => void
}

type Listener = (message: Readonly<Record<string, unknown>>) => void

interface Waiting {
  readonly outgoing: Outgoing
  resolve(message: unknown): void
  reject(reason: unknown): void
}

const INHERITED = [
  ...['PATH', 'HOME', 'LANG', 'LC_ALL', 'LOGNAME', 'SHELL', 'TERM', 'TMPDIR', 'TZ', 'USER'],
  ...['APPDATA', 'LOCALAPPDATA', 'PATHEXT', 'SYSTEMDRIVE', 'SYSTEMROOT', 'TEMP', 'USERPROFILE', 'WINDIR'],
]
const STDERR_LINE_BYTES = 65_536
/** Lines in a row that are not messages: how many are tolerated, and how many are reported. */
const MAX_STRAY_LINES = 10_000
const MAX_REPORTED_LINES = 10
/** How many times the largest message may wait for a server that does not read. */
const MAX_UNREAD = 4
/** Common reasons why a command does not start, by the code of the system's error. */
const START_HINTS: Readonly<Record<string, string>> = {
  ENOENT: 'no such command, or no such working directory',
  EACCES: 'the file is not executable',
}

export function createStdioTransport(target: StdioTarget, options: ProcessOptions): Transport {
  const waiting = new Map<RequestId, Waiting>()
  const warn = options.onWarning ?? (() => {})
  const child = start(target, warn)
  let gone: RondoError | undefined
  let listener: Listener | undefined
  const lose = (reason: string, cause?: unknown) => {
    gone ??= new RondoError('PEER_UNREACHABLE', reason, { cause })
    for (const one of [...waiting.values()]) one.reject(gone)
  }
  /** The process runs, but nothing it writes is of use any more. */
  const giveUp = (reason: string, cause?: unknown) => {
    lose(reason, cause)
    child.stdout?.destroy()
  }
  const exited = new Promise<void>((resolve) => {
    child.on('exit', () => resolve())
    child.on('error', (error: NodeJS.ErrnoException) => {
      const hint = START_HINTS[error.code ?? '']
      const reason =
        error.code === undefined ? '' : ` (${error.code})${hint === undefined ? '' : `: ${hint}`}`
      lose(`"${target.command}" could not be started${reason}`, error)
      resolve()
    })
  })
  const graceMs = options.graceMs ?? 2_000
  const loseExited = (): void =>
    lose(`The server process exited (${child.signalCode ?? `exit code ${child.exitCode}`})`)
  child.on('close', loseExited)
  child.stdout?.on('end', async () => {
    if (await endsWithin(exited, graceMs)) loseExited()
    else lose('The server closed its stdout')
  })
  let stray = 0
  const take = (line: string): void => {
    const parsed = /^\s*[[{]/.test(line) ? parseMessage(line) : undefined
    if (parsed !== undefined) {
      stray = 0
      return deliver(parsed, waiting, warn, listener)
    }
    stray += 1
    if (stray <= MAX_REPORTED_LINES) warn('The server wrote a line to stdout that is not a message')
    if (stray > MAX_STRAY_LINES) giveUp('The server writes lines to stdout that are not messages')
  }
  const read = createTextReader(
    options.maxBytes,
    (line) => {
      if (gone) return
      // An event listener has no caller: what is thrown in it would end the process.
      try {
        take(line)
      } catch (error) {
        if (error instanceof RondoError) giveUp('The server wrote a message that cannot be read', error)
        else warn(`A message from the server could not be handled: ${String(error)}`)
      }
    },
    () => giveUp(`The server wrote a line longer than ${options.maxBytes} bytes`),
  )
  const write = (line: string): void => {
    const { stdin } = child
    if (stdin && stdin.writableLength > MAX_UNREAD * options.maxBytes)
      giveUp('The server does not read what it is sent')
    else stdin?.write(`${line}\n`)
  }
  child.stdout?.on('data', read)
  // 'close' reports a process that has gone; errors of its pipes add nothing.
  for (const pipe of [child.stdin, child.stdout, child.stderr]) pipe?.on('error', () => {})
  return {
    kind: 'stdio',
    target: [target.command, ...(target.args ?? [])].join(' '),
    exchange: (outgoing) => (gone ? Promise.reject(gone) : exchange(outgoing, waiting, write)),
    listen(onMessage) {
      listener = onMessage
    },
    close: () => stop(child, exited, graceMs),
  }
}

function start(target: StdioTarget, warn: (text: string) => void): ChildProcess {
  const env: Record<string, string> = {}
  for (const name of INHERITED) {
    const value = process.env[name]
    if (value !== undefined) env[name] = value
  }
  const { stderr = 'inherit' } = target
  const child = spawn(target.command, [...(target.args ?? [])], {
    ...(target.cwd !== undefined && { cwd: target.cwd }),
    env: { ...env, ...target.env },
    shell: false,
    windowsHide: true,
    stdio: ['pipe', 'pipe', typeof stderr === 'function' ? 'pipe' : stderr],
  })
  if (typeof stderr === 'function') {
    const report = (line: string) =>
      void guard(
        () => stderr(line),
        (error) => warn(`The stderr callback threw: ${String(error)}`),
      )
    child.stderr?.on(
      'data',
      createTextReader(STDERR_LINE_BYTES, report, () => report('(a very long line)')),
    )
  }
  return child
}

/** Reads lines of text and skips blank ones. */
function createTextReader(
  maxBytes: number,
  onText: (text: string) => void,
  onTooLong: () => void,
): (chunk: Buffer) => void {
  return createLineReader(maxBytes, (line) => {
    if (line === 'too-long') return onTooLong()
    const text = new TextDecoder().decode(line)
    if (text.trim() !== '') onText(text)
  })
}

function exchange(
  outgoing: Outgoing,
  waiting: Map<RequestId, Waiting>,
  write: (line: string) => void,
): Promise<unknown> {
  const { id, signal } = outgoing
  return new Promise((resolve, reject) => {
    if (signal.aborted) return reject(signal.reason)
    if (outgoing.oneWay) {
      write(outgoing.body)
      return resolve({})
    }
    const abort = () => {
      if (outgoing.cancel !== undefined) write(outgoing.cancel)
      settle(() => reject(signal.reason))
    }
    const settle = (end: () => void) => {
      waiting.delete(id)
      signal.removeEventListener('abort', abort)
      end()
    }
    signal.addEventListener('abort', abort, { once: true })
    waiting.set(id, {
      outgoing,
      resolve: (message) => settle(() => resolve(message)),
      reject: (reason) => settle(() => reject(reason)),
    })
    write(outgoing.body)
  })
}

function deliver(
  parsed: unknown,
  waiting: ReadonlyMap<RequestId, Waiting>,
  warn: (text: string) => void,
  listener: Listener | undefined,
): void {
  // Batches exist in 2025-03-26, which is spoken with a listener.
  for (const message of listener && Array.isArray(parsed) ? parsed : [parsed]) {
    if (!isRecord(message)) warn('The server wrote JSON to stdout that is not a message')
    // The response to a cancelled request may still arrive.
    else if (message.method === undefined) find(message, waiting)?.resolve(message)
    else {
      listener?.(message)
      if (message.id === undefined)
        for (const { outgoing } of waiting.values()) outgoing.onNotification?.(message)
      else if (!listener) warn('The server sent a request, which this revision forbids')
    }
  }
}

/** A server that could not read a request may refuse it without its id. If only one request waits, it is that one. */
function find(
  { id, error }: Readonly<Record<string, unknown>>,
  waiting: ReadonlyMap<RequestId, Waiting>,
): Waiting | undefined {
  if (id !== null || !isRecord(error)) return waiting.get(id as RequestId)
  const [only, ...others] = waiting.values()
  return others.length === 0 ? only : undefined
}

/** Closes stdin, then sends signals to a process that does not exit. */
async function stop(child: ChildProcess, exited: Promise<void>, graceMs: number): Promise<void> {
  child.stdin?.end()
  for (const signal of ['SIGTERM', 'SIGKILL'] as const) {
    if (await endsWithin(exited, graceMs)) break
    child.kill(signal)
  }
  await endsWithin(exited, graceMs)
  // A process that the server started may hold them open.
  for (const pipe of [child.stdin, child.stdout, child.stderr]) pipe?.destroy()
}

async function endsWithin(ended: Promise<void>, ms: number): Promise<boolean> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<boolean>((resolve) => {
    timer = setTimeout(resolve, ms, false)
  })
  const inTime = await Promise.race([ended.then(() => true), late])
  clearTimeout(timer)
  return inTime
}
