/**
 * The streams and the environment of the command, and text for people: tables, times, shell words. Results go to `stdout`,
 * everything else to `stderr`.
 *
 * Text for a terminal is cleaned here, whoever wrote it: line breaks stay, all other control characters are removed. Results
 * go into a pipe unchanged. If a line break from a server could imitate a line of ours, the caller joins the lines first.
 */

import { displayText } from 'rondo/client'
import { escapeUnsafe, oneLine } from 'rondo/internal'

export interface Io {
  readonly stdin: NodeJS.ReadStream
  readonly stdout: NodeJS.WriteStream
  readonly stderr: NodeJS.WriteStream
  /** The progress line at the bottom of stderr. */
  readonly status: StatusLine
  readonly env: Readonly<Record<string, string | undefined>>
  readonly cwd: string
  readonly now: () => number
  /** Aborted by SIGTERM, and by Ctrl-C while no prompt is open. */
  readonly signal: AbortSignal
}

/** True if a person can be asked: stdin and stderr are terminals. Results may still go to a pipe. */
export function canAsk({ stdin, stderr, env }: Io): boolean {
  return stdin.isTTY === true && stderr.isTTY === true && env.TERM !== 'dumb'
}

/** Prints on stdout. `mark` comes first and is not cleaned, so it may have colours. */
export function print(io: Io, text: string, mark = ''): void {
  io.status.hide()
  io.stdout.write(`${mark}${io.stdout.isTTY ? terminalText(text) : text}\n`)
}

export function printJson(io: Io, value: unknown): void {
  print(io, sayJson(value, io.stdout))
}

/** The value as JSON. For a terminal, control characters are escaped, which does not change the JSON value. */
export function sayJson(value: unknown, { isTTY }: { readonly isTTY?: boolean }, indent = 2): string {
  const json = JSON.stringify(value, undefined, indent)
  return isTTY ? escapeUnsafe(json) : json
}

/** A value that should be a text, and may be anything where a server sent it. */
export function sayValue(value: unknown): string {
  return typeof value === 'string' ? value : (JSON.stringify(value) ?? '')
}

/** Prints a message on stderr. */
export function tell(io: Io, text: string): void {
  io.status.hide()
  io.stderr.write(`${terminalText(text)}\n`)
}

const TAB_WIDTH = 8

/** Cleans text for a terminal: no control characters, and tabs as spaces. */
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

/** Reads all of stdin as text. */
export async function readStdin({ stdin }: Io): Promise<string> {
  const chunks: Buffer[] = []
  for await (const chunk of stdin) chunks.push(typeof chunk === 'string' ? Buffer.from(chunk) : chunk)
  return Buffer.concat(chunks).toString('utf8')
}

/**
 * One animated line on stderr: a spinner, or a bar if the server reports progress. Drawn on a terminal only. Unlike the
 * spinner of @clack/prompts it does not touch stdin, so that Ctrl-C stays a signal.
 */
interface StatusLine {
  /** Shows the line. */
  start(text: string): void
  progress(value: number, total?: number, message?: string): void
  /** Erases the line so that something else can be written; the next tick draws it again. */
  hide(): void
  stop(): void
}

const FRAMES = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏']
const TICK_MS = 80
const BAR_WIDTH = 24

export function createStatusLine(output: NodeJS.WriteStream): StatusLine {
  if (output.isTTY !== true) return { start() {}, progress() {}, hide() {}, stop() {} }
  let timer: NodeJS.Timeout | undefined
  let frame = 0
  let text = ''
  let drawn = false
  const hide = (): void => {
    if (drawn) output.write('\r\x1b[2K')
    drawn = false
  }
  const draw = (): void => {
    frame = (frame + 1) % FRAMES.length
    const line = `${FRAMES[frame]} ${text}`
    output.write(`\r\x1b[2K${line.slice(0, Math.max(10, (output.columns ?? 80) - 1))}`)
    drawn = true
  }
  return {
    start(what) {
      text = oneLine(what)
      timer ??= setInterval(draw, TICK_MS).unref()
      draw()
    },
    progress(value, total, message) {
      const bar = total === undefined || !(total > 0) ? String(value) : drawBar(value, total)
      text = message === undefined ? bar : `${bar}  ${oneLine(message)}`
      if (timer !== undefined) draw()
    },
    hide,
    stop() {
      clearInterval(timer)
      timer = undefined
      hide()
    },
  }
}

export function drawBar(value: number, total: number): string {
  const share = Math.min(1, Math.max(0, value / total))
  const full = Math.round(share * BAR_WIDTH)
  return `${'█'.repeat(full)}${'░'.repeat(BAR_WIDTH - full)} ${value}/${total}`
}

/** A cell of a server may be as long as a response. It is not cut, but the other rows are not aligned to it. */
const WIDEST = 120

/** Rows with aligned columns, one line each. The last column is not padded; `width` truncates lines that would wrap. */
export function formatTable(
  cells: readonly (readonly string[])[],
  width: number = Number.POSITIVE_INFINITY,
): string {
  const rows = cells.map((row) => row.map((cell) => displayText(cell).replace(/[\n\t]/g, ' ')))
  const columns = rows.reduce((most, row) => Math.max(most, row.length), 0)
  const widths = Array.from({ length: Math.max(0, columns - 1) }, (_, i) =>
    rows.reduce((widest, row) => Math.max(widest, Math.min(WIDEST, [...(row[i] ?? '')].length)), 0),
  )
  return rows
    .map((row) => {
      const line = row.map((cell, i) => cell + ' '.repeat(pad(widths[i], cell))).join('  ')
      return cut(line.trimEnd(), width)
    })
    .join('\n')
}

function pad(width: number | undefined, cell: string): number {
  return width === undefined ? 0 : Math.max(0, width - [...cell].length)
}

function cut(line: string, width: number): string {
  const letters = [...line]
  return letters.length <= width ? line : `${letters.slice(0, Math.max(1, width - 1)).join('')}…`
}

/** Characters without a meaning in any shell; `…` is what the user fills in. */
const PLAIN = /^[\p{L}\p{N}@%+=:,./_…-]+$/u

/** Quotes a word for a shell: users copy commands that contain names chosen by a server. */
export function shellWord(text: string): string {
  return PLAIN.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`
}

const LAST_DATE = 8.64e15

/** An ISO time, also for numbers from a server that are not a date. */
export function sayTime(ms: number): string {
  return Math.abs(ms) <= LAST_DATE ? new Date(ms).toISOString() : 'unknown'
}

/** Like `sayAge`, as part of a sentence: "5 min ago". */
export function sayAgo(ms: number): string {
  const age = sayAge(ms)
  return age === 'now' ? 'just now' : `${age} ago`
}

/** A duration in its largest unit. */
export function sayAge(ms: number): string {
  const minutes = Math.floor(Math.max(0, ms) / 60_000)
  if (minutes < 1) return 'now'
  if (minutes < 120) return `${minutes} min`
  return minutes < 2880 ? `${Math.floor(minutes / 60)} h` : `${Math.floor(minutes / 1440)} d`
}
