/**
 * What the command reads, where it writes, and its environment. Results go to `stdout`, everything else to `stderr`.
 *
 * Text for a terminal is cleaned here, whoever wrote it: it keeps line breaks and loses all other control characters. Into
 * a pipe, results are written unchanged. Where a line break of a server could pass for one of ours, the caller joins lines.
 */

import { displayText, escapeUnsafe, oneLine } from '../form/clean-text.ts'

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

/** Whether a person can be asked: stderr and stdin are terminals. Results may still go to a pipe. */
export function canAsk({ stdin, stderr, env }: Io): boolean {
  return stdin.isTTY === true && stderr.isTTY === true && env.TERM !== 'dumb'
}

/** `mark` is printed first and not cleaned: it may have colours. */
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

/** Prints a message on stderr. */
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

/**
 * One animated line on stderr: a spinner, or a bar if the server reports progress. Drawn on a terminal only. Unlike the spinner of @clack/prompts it leaves stdin alone, so that Ctrl-C stays a signal.
 */
export interface StatusLine {
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

/** Rows with aligned columns, one line each. The last column is not padded; `width` truncates lines that would wrap. */
export function formatTable(
  cells: readonly (readonly string[])[],
  width: number = Number.POSITIVE_INFINITY,
): string {
  const rows = cells.map((row) => row.map((cell) => displayText(cell).replace(/[\n\t]/g, ' ')))
  const columns = Math.max(0, ...rows.map((row) => row.length))
  const widths = Array.from({ length: columns - 1 }, (_, i) =>
    Math.max(...rows.map((row) => [...(row[i] ?? '')].length)),
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
