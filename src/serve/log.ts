/**
 * Writes events as JSON or passes them to the operator's function. JSON contains no content: of an error that a handler
 * threw, it has the name and the stack, but not the message, which may quote a user. Errors of Rondo are logged in full,
 * because they say what to do.
 *
 * A log cannot break what it reports on: a function that throws or rejects is reported on stderr, and everything
 * continues (R11).
 */

import type { LogEvent } from '../carry/host.ts'
import { isOurs, RondoError } from '../errors.ts'
import { quietly } from './service.ts'

export type Log = (event: LogEvent) => void

const LEVELS: Readonly<Record<LogEvent['event'], string>> = {
  round: 'info',
  state_refused: 'warn',
  fault: 'error',
  continuation: 'warn',
  warning: 'warn',
}

/** A log function that keeps failing is reported this often. */
const REPORT_MS = 60_000
const MAX_CAUSES = 3

export function createLog(
  option: 'json' | 'off' | ((event: LogEvent) => unknown) = 'json',
  write: (line: string) => void = (line) => console.error(line),
  now: () => number = Date.now,
): Log {
  if (option === 'off') return () => {}
  const writeJson: Log = (event) => {
    const error = 'error' in event ? { error: describe(event.error) } : {}
    write(
      JSON.stringify({ time: new Date(now()).toISOString(), level: LEVELS[event.event], ...event, ...error }),
    )
  }
  if (option === 'json') return quietly(writeJson)
  let reportedAt: number | undefined
  return quietly(option, (error) => {
    if (reportedAt !== undefined && now() - reportedAt < REPORT_MS) return
    reportedAt = now()
    quietly(writeJson)({
      event: 'warning',
      message: 'The log function threw or rejected; its event is lost',
      error,
    })
  })
}

/** Our own errors in full; of any other, only its name and stack. */
function describe(error: unknown, depth = 0): Record<string, unknown> {
  if (!(error instanceof Error)) return { name: typeof error }
  const cause =
    error.cause === undefined || depth === MAX_CAUSES ? {} : { cause: describe(error.cause, depth + 1) }
  const named = { name: error.name, ...codeOf(error), ...(isOurs(error) && { message: error.message }) }
  if (error instanceof RondoError) return { ...named, ...cause }
  const frames = error.stack?.split('\n').filter((line) => /^\s+at /.test(line)) ?? []
  return { ...named, stack: frames.slice(0, 8).map((line) => line.trim()), ...cause }
}

/** Codes such as `ECONNREFUSED`, `ERR_MODULE_NOT_FOUND` or an SQLSTATE, which never contain content. */
function codeOf(error: Error): { code?: string } {
  const { code } = error as { code?: unknown }
  return typeof code === 'string' && /^[A-Z0-9_]{1,64}$/.test(code) ? { code } : {}
}
