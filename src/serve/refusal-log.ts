/**
 * Logs requests that were refused before anything ran, with the option that would allow them. A caller decides how many
 * such requests there are, so each reason is logged at most once in ten seconds, with the number of requests since the
 * last line. Nothing of a request is logged: headers may contain secrets.
 */

import type { ErrorCode } from '../errors.ts'
import type { Log } from './log.ts'

const ADVICE: Partial<Record<ErrorCode, string>> = {
  PEER_HOST: 'The Host header is not an allowed name of this server: add the name to allowedHosts',
  PEER_ORIGIN: 'The Origin header names a page that may not call: add its origin to allowedOrigins',
  PEER_UNAUTHENTICATED: 'The caller is not authenticated: the option authenticate refused it, or threw',
  PEER_FORBIDDEN: 'The caller is not permitted: the option authenticate refused it',
  LIMIT_TASKS: 'A caller has too many open tasks: tasks.maxOpen',
  LIMIT_SESSIONS:
    'There are too many sessions: sessions.maxSessions, maxSessionsPerPrincipal or maxSessionsPerAddress',
}

const EVERY_MS = 10_000

export function createRefusalLog(log: Log, now: () => number): (code: ErrorCode, status: number) => void {
  const seen = new Map<ErrorCode, { count: number; loggedAt: number }>()
  return (code, status) => {
    const one = seen.get(code) ?? { count: 0, loggedAt: Number.NEGATIVE_INFINITY }
    seen.set(code, one)
    one.count += 1
    if (now() - one.loggedAt < EVERY_MS) return
    const { count } = one
    one.count = 0
    one.loggedAt = now()
    log({ event: 'refused', status, code, message: ADVICE[code] ?? code, count })
  }
}
