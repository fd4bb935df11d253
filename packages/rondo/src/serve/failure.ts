/**
 * Requests that fail, and listeners that do: the error that the client gets, and what the operator reads.
 *
 * A caller decides how many requests are refused before anything runs, so each reason is logged at most once in ten
 * seconds, with the number of requests since the last line and the option that would allow them. Nothing of a request is
 * logged: headers may contain secrets. Refusals with a reason of their own have a line each, up to a bound a minute for each
 * kind of reason and each caller.
 */

import type { FlowHost } from '../carry/host.ts'
import { placeOfError } from '../carry/report.ts'
import { type ErrorCode, isStoreFault, RondoError } from '../errors.ts'
import { createRate } from '../lib/rate.ts'
import type { LogFacts } from '../log/event.ts'
import { shorten } from '../log/json.ts'
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

/**
 * Turns what was thrown into a reply. Unexpected errors, and those that an operator has to fix, are logged; failures of a store
 * that is known to fail are only counted.
 */
export function toErrorReply(
  error: unknown,
  { log, storeWatch }: Pick<FlowHost, 'log' | 'storeWatch'>,
): Reply {
  if (!(error instanceof RondoError))
    log({ event: 'warning', message: 'A request failed unexpectedly', ...placeOfError(error), error })
  else if (isStoreFault(error) && !storeWatch?.requestFailed())
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

const ADVICE: Partial<Record<ErrorCode, string>> = {
  PEER_HOST: 'The Host header is not an allowed name of this server: add the name to allowedHosts',
  PEER_ORIGIN: 'The Origin header names a page that may not call: add its origin to allowedOrigins',
  PEER_UNAUTHENTICATED: 'The caller is not authenticated: the option authenticate refused it, or threw',
  SERVER_IDENTITY: 'The caller cannot be identified at the moment: the option authenticate responds with 503',
  PEER_SCOPE: "The caller's token lacks a scope that the request needs",
  PEER_FORBIDDEN: 'The caller is not permitted: the option authenticate refused it',
  LIMIT_IN_FLIGHT:
    'What is in flight weighs too much: maxWeightInFlight, maxWeightInFlightPerCaller, or addressHeader behind a proxy',
  LIMIT_TASKS: 'A caller has too many open tasks: tasks.maxOpen',
  LIMIT_SESSIONS: 'There are too many sessions: sessions.maxSessions, or maxSessionsPerCaller',
}

export function createRefusalLog(
  log: (event: LogFacts) => void,
  now: () => number,
): (code: ErrorCode, status: number) => void {
  const rate = createRate(10_000, now)
  return (code, status) => {
    const leftOut = rate(code)
    if (leftOut === undefined) return
    log({ event: 'refused', status, code, message: ADVICE[code] ?? code, count: leftOut + 1 })
  }
}

const MINUTE = 60_000
/** Lines of one kind within a minute, and how many of them one caller may cause. */
const LINES = 5
const LINES_OF_CALLER = 3
/** Kinds that are told apart within a minute, and how many of them one caller may begin; the rest is one kind. */
const MAX_KINDS = 40
const KINDS_OF_CALLER = 10
/** Kinds that a summary names. */
const MAX_NAMED = 10
const OTHER = 'other reasons'

interface Kind {
  /** Who began it. */
  readonly by: string | undefined
  readonly lines: (string | undefined)[]
  more: number
}

export interface CallerLog {
  /** `caller` stands for the address, if that is known. */
  refused(status: number, reason: string, caller?: string, error?: unknown): void
  /** Says how many lines were left out until now. */
  summarize(): void
}

/**
 * Bounds what strangers can write into the log. Each kind of reason has its own share, so that many refusals of one kind
 * hide no other, and each caller has a share of that; what is beyond is counted, and the numbers are logged later.
 */
export function createCallerLog(log: (event: LogFacts) => void, now: () => number): CallerLog {
  let since = Number.NEGATIVE_INFINITY
  const kinds = new Map<string, Kind>()
  const summarize = (): void => {
    const message = summaryOf(kinds)
    if (message !== undefined) log({ event: 'warning', message })
    kinds.clear()
  }
  const kindFor = (named: string, caller: string | undefined): Kind => {
    const known = kinds.get(named)
    if (known) return known
    const own = caller === undefined ? 0 : count([...kinds.values()], ({ by }) => by === caller)
    const name = kinds.size < MAX_KINDS && own < KINDS_OF_CALLER ? named : OTHER
    const kind = kinds.get(name) ?? { by: caller, lines: [], more: 0 }
    kinds.set(name, kind)
    return kind
  }
  return {
    refused(status, reason, caller, error) {
      if (Math.abs(now() - since) >= MINUTE) {
        summarize()
        since = now()
      }
      const place = error === undefined ? '' : ` (${placeOf(error)})`
      const kind = kindFor(`${status} ${kindOfReason(reason)}${place}`, caller)
      const { lines } = kind
      const own = caller === undefined ? 0 : count(lines, (by) => by === caller)
      if (lines.length >= LINES || own >= LINES_OF_CALLER) {
        kind.more += 1
        return
      }
      lines.push(caller)
      if (error === undefined) log({ event: 'caller_refused', status, reason: shorten(reason, MAX_REASON) })
      else log({ event: 'warning', message: reason, error })
    },
    summarize,
  }
}

function count<T>(list: readonly T[], is: (one: T) => boolean): number {
  return list.filter(is).length
}

const MAX_REASON = 2_000
const MAX_READ = 500
const MAX_KIND = 100

/** Reasons that differ only in values and numbers are of one kind: a caller chooses those. */
function kindOfReason(reason: string): string {
  const words = reason
    .slice(0, MAX_READ)
    .replace(/"[^"]*"(?:, "[^"]*")*/g, '"…"')
    .replace(/\d+/g, '#')
  return shorten(words, MAX_KIND)
}

/** The class of an error and the line that threw it, which no caller chooses. */
function placeOf(error: unknown): string {
  try {
    if (!(error instanceof Error)) return typeof error
    // Not `\s`, which matches line breaks: a message full of them would take quadratic time.
    const frame = /^[ \t]+at .*/m.exec(error.stack ?? '')?.[0].trim() ?? ''
    return shorten(`${error.constructor.name} ${frame}`, MAX_KIND)
  } catch {
    return 'unreadable'
  }
}

function summaryOf(kinds: ReadonlyMap<string, Kind>): string | undefined {
  const left = [...kinds].filter(([, { more }]) => more > 0).sort(([, a], [, b]) => b.more - a.more)
  if (left.length === 0) return undefined
  const total = left.reduce((sum, [, { more }]) => sum + more, 0)
  const named = left.slice(0, MAX_NAMED).map(([name, { more }]) => `${more} × ${name}`)
  const rest = left.length > MAX_NAMED ? [`and ${left.length - MAX_NAMED} more kinds`] : []
  return `… and ${total} more requests were refused within a minute: ${[...named, ...rest].join('; ')}`
}
