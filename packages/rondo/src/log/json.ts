/** The log for programs: one line of JSON per event. */

import { describeError } from './error.ts'
import type { LogEvent } from './event.ts'
import { writeToStandardError } from './standard-error.ts'

export interface JsonLogOptions {
  /** Receives each line, without a line break. Default: stderr. */
  write?: (line: string) => void
  /** Includes messages and stacks of errors that an author's code threw. Default: false. */
  authorErrors?: boolean
  /** The clock, in ms since the epoch. */
  now?: () => number
}

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
export function createJsonLog({
  write = (line) => writeToStandardError(line, true),
  authorErrors = false,
  now = Date.now,
}: JsonLogOptions = {}): (event: LogEvent) => void {
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
