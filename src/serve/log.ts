/**
 * Where events go. The JSON form holds no content: of what a handler threw, it keeps the kind and where it was thrown,
 * not the message, which may quote a user.
 */

import type { LogEvent } from '../carry/flow-host.ts'
import { RondoError } from '../errors.ts'

export type Log = (event: LogEvent) => void

const LEVELS: Readonly<Record<LogEvent['event'], string>> = {
  round: 'info',
  state_refused: 'warn',
  fault: 'error',
  continuation: 'warn',
  warning: 'warn',
}

export function createLog(
  option: 'json' | 'off' | Log = 'json',
  write: (line: string) => void = (line) => console.error(line),
  now: () => number = Date.now,
): Log {
  if (typeof option === 'function') return option
  if (option === 'off') return () => {}
  return (event) => {
    const error = 'error' in event ? { error: describe(event.error) } : {}
    write(
      JSON.stringify({ time: new Date(now()).toISOString(), level: LEVELS[event.event], ...event, ...error }),
    )
  }
}

/** An author's mistake is ours to word, so it is told; what anybody else threw is named and located. */
function describe(error: unknown): Record<string, unknown> {
  if (!(error instanceof Error)) return { name: typeof error }
  if (error instanceof RondoError) return { name: error.name, code: error.code, message: error.message }
  const frames = error.stack?.split('\n').filter((line) => /^\s+at /.test(line)) ?? []
  return { name: error.name, stack: frames.slice(0, 8).map((line) => line.trim()) }
}
