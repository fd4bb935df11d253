/**
 * Requests that fail, and listeners that do: the error that the client gets, and what the operator reads.
 *
 * A caller decides how many requests are refused before anything runs, so each reason is logged at most once in ten
 * seconds, with the number of requests since the last line and the option that would allow them. Nothing of a request is
 * logged: headers may contain secrets. Refusals with a reason of their own have a line each, up to a bound a minute.
 */

import type { LogFacts } from '../carry/host.ts'
import { placeOfError } from '../carry/report.ts'
import { type ErrorCode, isStoreFault, RondoError } from '../errors.ts'
import { isThenable } from '../lib/json.ts'
import type { FlowCall } from '../protocol/call.ts'
import type { Reply } from '../protocol/reply.ts'

export type ErrorReply = Extract<Reply, { kind: 'error' }>

export function internalError(error: unknown, onError: (error: unknown) => void): ErrorReply {
  onError(error)
  return { kind: 'error', error: new RondoError('SERVER_INTERNAL', undefined, { cause: error }) }
}

export function unknownTarget({ method, target }: FlowCall): Reply {
  if (method === 'resources/read') {
    return { kind: 'error', error: new RondoError('PEER_RESOURCE', undefined, { data: { uri: target } }) }
  }
  const detail = `Unknown ${method === 'tools/call' ? 'tool' : 'prompt'}: ${target}`
  return { kind: 'error', error: new RondoError('PEER_PARAMS', detail) }
}

/** Turns what was thrown into a reply. Unexpected errors, and those that an operator has to fix, are logged. */
export function toErrorReply(error: unknown, log: (event: LogFacts) => void): Reply {
  if (!(error instanceof RondoError))
    log({ event: 'warning', message: 'A request failed unexpectedly', ...placeOfError(error), error })
  else if (isStoreFault(error))
    log({
      event: 'warning',
      message: 'A request failed because the store failed',
      ...placeOfError(error),
      error,
    })
  const known =
    error instanceof RondoError ? error : new RondoError('SERVER_INTERNAL', undefined, { cause: error })
  return { kind: 'error', error: known }
}

/** Guards a listener of the operator: what it throws or rejects with goes to `onFailure`, and everything continues. */
export function quietly<T>(
  listener: ((value: T) => unknown) | undefined,
  onFailure: (error: unknown) => void = () => {},
): (value: T) => void {
  return (value) => {
    try {
      const outcome = listener?.(value)
      if (isThenable(outcome)) Promise.resolve(outcome).catch(onFailure)
    } catch (error) {
      onFailure(error)
    }
  }
}

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

export function createRefusalLog(
  log: (event: LogFacts) => void,
  now: () => number,
): (code: ErrorCode, status: number) => void {
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

const MINUTE = 60_000
/** Lines about refused callers in a minute: with the same reason, and altogether. */
const MAX_SAME = 5
const MAX_LINES = 50

export interface CallerLog {
  refused(status: number, reason: string): void
  /** Says how many lines were left out until now. */
  summarize(): void
}

/** Bounds what strangers can write into the log: beyond the bound, lines are counted, and their number is logged later. */
export function createCallerLog(log: (event: LogFacts) => void, now: () => number): CallerLog {
  let since = Number.NEGATIVE_INFINITY
  let more = 0
  let lines = 0
  const texts = new Map<string, number>()
  const summarize = (): void => {
    if (more > 0)
      log({ event: 'warning', message: `… and ${more} more callers were refused within a minute` })
    more = 0
    lines = 0
    texts.clear()
  }
  return {
    refused(status, reason) {
      if (Math.abs(now() - since) >= MINUTE) {
        summarize()
        since = now()
      }
      const text = `${status} ${reason}`
      const same = texts.get(text) ?? 0
      if (same >= MAX_SAME || lines >= MAX_LINES) {
        more += 1
        return
      }
      texts.set(text, same + 1)
      lines += 1
      log({ event: 'caller_refused', status, reason })
    },
    summarize,
  }
}
