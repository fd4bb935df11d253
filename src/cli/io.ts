/**
 * The ends of the command: what it reads, where it writes, what it knows of its surroundings. Results go to `stdout`,
 * everything said to a person goes to `stderr`.
 *
 * Whatever is written here onto a terminal is cleaned here, whoever wrote it: it has line breaks and no other control
 * character. Into a pipe results go as they are. Where a line break of a server could pass for one of ours, the caller
 * puts foreign words into one line.
 */

import { displayText, escapeUnsafe } from '../form/clean-text.ts'
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

/** `mark` comes first, and is ours: it may have colours. */
export function print(io: Io, text: string, mark = ''): void {
  io.status.hide()
  io.stdout.write(`${mark}${io.stdout.isTTY ? terminalText(text) : text}\n`)
}

export function printJson(io: Io, value: unknown): void {
  print(io, sayJson(value, io.stdout))
}

/** The value as JSON. For a terminal, what it would obey is escaped, and the JSON says the same. */
export function sayJson(value: unknown, { isTTY }: { readonly isTTY?: boolean }, indent = 2): string {
  const json = JSON.stringify(value, undefined, indent)
  return isTTY ? escapeUnsafe(json) : json
}

/** Something for the person, beside the result. */
export function tell(io: Io, text: string): void {
  io.status.hide()
  io.stderr.write(`${terminalText(text)}\n`)
}

const TAB_WIDTH = 8

/** Text as it may go to a terminal: lines without control characters, tabs drawn as blanks. */
export function terminalText(text: string): string {
  return displayText(text)
    .split('\n')
    .map((line) =>
      line
        .split('\t')
        .map((part, i, { length }) => (i < length - 1 ? part.padEnd(nextStop(part)) : part))
        .join(''),
    )
    .join('\n')
}

function nextStop({ length }: string): number {
  return (Math.floor(length / TAB_WIDTH) + 1) * TAB_WIDTH
}

/** All of stdin as text. */
export async function readStdin({ stdin }: Io): Promise<string> {
  const chunks: Buffer[] = []
  for await (const chunk of stdin) chunks.push(typeof chunk === 'string' ? Buffer.from(chunk) : chunk)
  return Buffer.concat(chunks).toString('utf8')
}
