/**
 * The log for programs: one line of JSON per event.
 *
 * Errors of Rondo are logged in full, because they say what to do. Of one that an author's code threw, a line has the kind and
 * the place; the message, which may quote a user, only if that may be logged.
 */

import { isOurs, RondoError } from '../errors.ts'
import { callable, clock, defineOptions, flag, type OptionsOf } from '../options.ts'
import type { LogEvent } from './event.ts'
import { writeToStandardError } from './standard-error.ts'

export interface JsonLogOptions {
  /** Receives each line, without a line break. Default: stderr. */
  write?: (line: string) => void
  /** Includes messages and stacks of errors that an author's code threw. Default: `false`. */
  authorErrors?: boolean
  /** The clock, in ms since the epoch. Default: `Date.now`. */
  now?: () => number
}

const OPTIONS = defineOptions('createJsonLog', {
  write: callable<(line: string) => void>((line) => writeToStandardError(line, true)),
  authorErrors: flag(false),
  now: clock,
} satisfies OptionsOf<JsonLogOptions>)

/**
 * Returns the log function that `log: 'json'` uses, for those who pass a function of their own and want the same lines.
 *
 * @example
 * ```ts
 * const toStderr = createJsonLog()
 * const server = createServer({
 *   name: 'tables',
 *   version: '1.0.0',
 *   log: (event) => {
 *     if (event.level !== 'info') toStderr(event)
 *   },
 * })
 * ```
 */
export function createJsonLog(options: JsonLogOptions = {}): (event: LogEvent) => void {
  const { write, authorErrors, now } = OPTIONS.read(options)
  return (event) => write(toJsonLine(event, now(), authorErrors))
}

export function toJsonLine(event: LogEvent, now: number, authorErrors: boolean): string {
  const error = describeError(event, authorErrors)
  return JSON.stringify({ time: new Date(now).toISOString(), ...event, ...(error && { error }) })
}

/**
 * Returns the event as plain JSON, for another logger: errors are described as in `createJsonLog`. Time and level are left
 * to that logger.
 *
 * @example
 * ```ts
 * const shipped = createServer({ name: 'tables', version: '1.0.0', log: (event) => send(toLogRecord(event)) })
 * ```
 */
export function toLogRecord(
  event: LogEvent,
  { authorErrors = false }: Pick<JsonLogOptions, 'authorErrors'> = {},
): Record<string, unknown> {
  const { level: _, ...facts } = event
  const error = describeError(event, authorErrors)
  return error === undefined ? facts : { ...facts, error }
}

/** An error as it is logged. */
export interface DescribedError {
  readonly name: string
  readonly code?: string
  readonly message?: string
  readonly stack?: readonly string[]
  readonly cause?: DescribedError
}

export function describeError(event: LogEvent, authorErrors: boolean): DescribedError | undefined {
  if (!('error' in event) || event.error === undefined) return undefined
  try {
    return describe(event.error, authorErrors)
  } catch {
    // The line matters more than an error that cannot be read.
    return { name: 'unreadable' }
  }
}

const MAX_CAUSES = 3
const MAX_FRAMES = 8
const MAX_MESSAGE = 2_000
const MAX_NAME = 128
const MAX_FRAME = 500

/** Our own errors in full; of any other its name and place, and its message if that may be logged. */
function describe(error: unknown, authorErrors: boolean, depth = 0): DescribedError {
  if (!(error instanceof Error)) {
    return { name: typeof error, ...(authorErrors && { message: shorten(String(error), MAX_MESSAGE) }) }
  }
  const cause =
    error.cause === undefined || depth === MAX_CAUSES
      ? {}
      : { cause: describe(error.cause, authorErrors, depth + 1) }
  const shown = authorErrors || isOurs(error)
  const message = shown && { message: shorten(String(error.message), MAX_MESSAGE) }
  const named = { name: shorten(String(error.name), MAX_NAME), ...codeOf(error), ...message }
  const frames = String(error.stack ?? '')
    .split('\n')
    .filter((line) => /^\s+at /.test(line))
  const theirs = frames.filter((line) => !NOT_THEIRS.test(line))
  // Of our own errors, only where the author's code is in them.
  const shownFrames = theirs.length > 0 || error instanceof RondoError ? theirs : frames
  const stack = shownFrames.slice(0, MAX_FRAMES).map((line) => shorten(line.trim(), MAX_FRAME))
  return { ...named, ...(stack.length > 0 && { stack }), ...cause }
}

/** Frames in which an author finds nothing: those of Node and of this package. */
const NOT_THEIRS = /[\\/]node_modules[\\/]rondo[\\/]|\(node:|at node:|\(<anonymous>\)$/

/** Codes such as `ECONNREFUSED`, `ERR_MODULE_NOT_FOUND` or an SQLSTATE, which never contain content. */
function codeOf(error: Error): { code?: string } {
  const { code } = error as { code?: unknown }
  return typeof code === 'string' && /^[A-Z0-9_]{1,64}$/.test(code) ? { code } : {}
}

/** The beginning of a text that may be of any length, such as one that an author built from what a client sent. */
export function shorten(text: string, max: number): string {
  return text.length > max ? `${text.slice(0, max)}…` : text
}
