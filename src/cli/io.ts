/**
 * The ends of the command: what it reads, where it writes, what it knows of its surroundings. Results go to `stdout`,
 * everything said to a person goes to `stderr`.
 */

import { displayText } from '../client/display-text.ts'
import type { StatusLine } from './status-line.ts'

export interface Io {
  readonly stdin: NodeJS.ReadStream
  readonly stdout: NodeJS.WriteStream
  readonly stderr: NodeJS.WriteStream
  /** The moving line at the bottom of stderr. */
  readonly status: StatusLine
  readonly env: Readonly<Record<string, string | undefined>>
  readonly cwd: string
  readonly now: () => number
  /** Aborted by Ctrl-C while no question is on the screen, and by SIGTERM. */
  readonly signal: AbortSignal
}

/** Somebody can be asked: they see the questions (stderr) and can type (stdin). Results may still go to a pipe. */
export function canAsk({ stdin, stderr, env }: Io): boolean {
  return stdin.isTTY === true && stderr.isTTY === true && env.TERM !== 'dumb'
}

export function print(io: Io, text: string): void {
  io.status.hide()
  io.stdout.write(`${text}\n`)
}

export function printJson(io: Io, value: unknown): void {
  print(io, JSON.stringify(value, undefined, 2))
}

/** Something for the person, beside the result. */
export function tell(io: Io, text: string): void {
  io.status.hide()
  io.stderr.write(`${text}\n`)
}

/** Text from a server as it may go to stdout: untouched into a pipe, without control characters onto a terminal. */
export function foreign(io: Io, text: string): string {
  return io.stdout.isTTY ? displayText(text) : text
}

/** All of stdin as text. */
export async function readStdin({ stdin }: Io): Promise<string> {
  const chunks: Buffer[] = []
  for await (const chunk of stdin) chunks.push(typeof chunk === 'string' ? Buffer.from(chunk) : chunk)
  return Buffer.concat(chunks).toString('utf8')
}
