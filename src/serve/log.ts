/**
 * Writes events as JSON or for a terminal, or passes them to the operator's function. No line contains content: of an error
 * that an author's code threw it has the kind and the place, and the message, which may quote a user, only in development
 * or if the operator says so. Errors of Rondo are logged in full, because they say what to do.
 *
 * A log cannot break what it reports on: a function that throws or rejects is reported on stderr, and everything
 * continues (R11).
 */

import { randomBytes } from 'node:crypto'
import { hostname } from 'node:os'
import type { LogEvent, LogFacts, LogOrigin } from '../carry/host.ts'
import { isOurs, misuse, RondoError } from '../errors.ts'
import type { Observer } from '../protocol/observer.ts'
import { quietly } from './failure.ts'
import { formatForTerminal } from './log-terminal.ts'

export type Log = (facts: LogFacts) => void

export interface LogOptions {
  /**
   * `json` writes one line per event to stderr, `pretty` lines for people; a function receives the events. Default: `pretty`
   * on a terminal in development, else `json`.
   */
  log?: 'json' | 'pretty' | 'off' | ((event: LogEvent) => unknown)
  /**
   * Logs messages and stacks of errors that handlers, steps and hooks threw, which may quote users. Default: only in
   * development, which is `dev`, or a terminal without `NODE_ENV=production`.
   */
  logAuthorErrors?: boolean
  /** Names this process in the log and in the store. Default: host name, process id and a random part. */
  instance?: string
}

interface LogSettings extends LogOptions {
  readonly dev?: boolean
  readonly now?: () => number
}

/** Where lines go. */
export interface LogScreen {
  write(line: string): void
  readonly isTerminal: boolean
  readonly colors: boolean
  readonly production: boolean
}

export interface OpenLog {
  /** The log is an observer of events, and of nothing else. */
  readonly observer: { event?(event: LogEvent): void }
  /** Tells this observer alone. */
  readonly log: Log
  readonly instance: string
}

const OPTIONS: readonly unknown[] = ['json', 'pretty', 'off', undefined]

export function createLog(settings: LogSettings, screen: LogScreen = standardError()): OpenLog {
  const { log: option, dev, now = Date.now } = settings
  const instance = settings.instance ?? createInstance()
  assertLog(option, instance)
  const open = (write?: (event: LogEvent) => void): OpenLog => {
    const observer = write ? { event: write } : {}
    return { observer, log: createEvents([observer], instance), instance }
  }
  if (option === 'off') return open()
  const development = dev ?? (screen.isTerminal && !screen.production)
  const pretty = option === 'pretty' || (option === undefined && screen.isTerminal && development)
  const authorErrors = settings.logAuthorErrors ?? development
  const writeLine: (event: LogEvent) => void = pretty
    ? (event) =>
        screen.write(formatForTerminal(event, now(), screen.colors, describeError(event, authorErrors)))
    : createJsonLog({ write: screen.write, authorErrors, now })
  if (typeof option !== 'function') return open(quietly(writeLine))
  let reportedAt: number | undefined
  const report = (error: unknown): void => {
    if (reportedAt !== undefined && now() - reportedAt < REPORT_MS) return
    reportedAt = now()
    const message = 'The log function threw or rejected; its event is lost'
    quietly(writeLine)({ level: 'warn', instance, event: 'warning', message, error })
  }
  return open(quietly(option, report))
}

/** Returns what tells all observers of an event. None of them may throw. */
export function createEvents(
  observers: readonly (Pick<Observer, 'event'> | undefined)[],
  instance: string,
): Log {
  const listening = observers.filter((observer) => observer?.event !== undefined)
  const [only] = listening
  if (!only) return () => {}
  const toEvent = (facts: LogFacts) => ({ level: levelOf(facts), instance, ...facts }) as LogEvent
  if (listening.length === 1) return (facts) => only.event?.(toEvent(facts))
  return (facts) => {
    const event = toEvent(facts)
    for (const observer of listening) observer?.event?.(event)
  }
}

function assertLog(option: unknown, instance: unknown): void {
  if (!OPTIONS.includes(option) && typeof option !== 'function') {
    throw misuse("log must be 'json', 'pretty', 'off' or a function that receives the events.")
  }
  if (typeof instance !== 'string' || !/^[\x21-\x7e]{1,128}$/.test(instance)) {
    throw misuse('instance must be a name of 1 to 128 printable ASCII characters without spaces.')
  }
}

/** Two processes in containers may share host name and process id. */
function createInstance(): string {
  return `${hostname()}-${process.pid}-${randomBytes(4).toString('hex')}`
}

function standardError(): LogScreen {
  const { stderr, env } = process
  const isTerminal = stderr?.isTTY === true
  return {
    write: (line) => console.error(line),
    isTerminal,
    colors: isTerminal && (env.NO_COLOR ?? '') === '' && env.TERM !== 'dumb',
    production: env.NODE_ENV === 'production',
  }
}

const LEVELS: Readonly<Record<LogFacts['event'], LogOrigin['level']>> = {
  round: 'info',
  state_refused: 'warn',
  caller_refused: 'warn',
  fault: 'error',
  slow: 'warn',
  continuation: 'warn',
  warning: 'warn',
  start: 'info',
  ready: 'info',
  drain: 'info',
  task: 'warn',
  session: 'info',
  refused: 'warn',
}

function levelOf(facts: LogFacts): LogOrigin['level'] {
  if (facts.event !== 'task') return LEVELS[facts.event]
  if (facts.phase === 'given_up') return 'error'
  return facts.phase === 'claimed' ? 'info' : 'warn'
}

/** A log function that keeps failing is reported this often. */
const REPORT_MS = 60_000

export interface JsonLogOptions {
  /** Receives each line, without a line break. Default: stderr. */
  write?: (line: string) => void
  /** Includes messages and stacks of errors that an author's code threw. Default: false. */
  authorErrors?: boolean
  /** The clock, in ms since the epoch. */
  now?: () => number
}

/** Returns the log function that `log: 'json'` uses, for those who pass a function of their own and want the same lines. */
export function createJsonLog({
  write = (line) => console.error(line),
  authorErrors = false,
  now = Date.now,
}: JsonLogOptions = {}): (event: LogEvent) => void {
  let at = Number.NaN
  let time = ''
  // There is a line for every request: it is built without copying the event, and a time is formatted once.
  return (event) => {
    const moment = now()
    if (moment !== at) {
      at = moment
      time = new Date(moment).toISOString()
    }
    const error = describeError(event, authorErrors)
    const text = JSON.stringify(error === undefined ? event : { ...event, error })
    write(`{"time":"${time}",${text.slice(1)}`)
  }
}

/**
 * Returns the event as plain JSON, for another logger: errors are described as in `createJsonLog`. Time and level are left
 * to that logger.
 */
export function toLogRecord(
  event: LogEvent,
  { authorErrors = false }: Pick<JsonLogOptions, 'authorErrors'> = {},
): Record<string, unknown> {
  const { level: _, ...facts } = event
  const error = describeError(event, authorErrors)
  return error === undefined ? facts : { ...facts, error }
}

/** What is logged of an error. */
export interface DescribedError {
  readonly name: string
  readonly code?: string
  readonly message?: string
  readonly stack?: readonly string[]
  readonly cause?: DescribedError
}

function describeError(event: LogEvent, authorErrors: boolean): DescribedError | undefined {
  return 'error' in event && event.error !== undefined ? describe(event.error, authorErrors) : undefined
}

const MAX_CAUSES = 3
const MAX_FRAMES = 8
const MAX_MESSAGE = 2_000

/** Our own errors in full; of any other its name and place, and its message if that may be logged. */
function describe(error: unknown, authorErrors: boolean, depth = 0): DescribedError {
  if (!(error instanceof Error)) {
    return { name: typeof error, ...(authorErrors && { message: shorten(String(error)) }) }
  }
  const cause =
    error.cause === undefined || depth === MAX_CAUSES
      ? {}
      : { cause: describe(error.cause, authorErrors, depth + 1) }
  const shown = authorErrors || isOurs(error)
  const named = { name: error.name, ...codeOf(error), ...(shown && { message: shorten(error.message) }) }
  const frames = error.stack?.split('\n').filter((line) => /^\s+at /.test(line)) ?? []
  const theirs = frames.filter((line) => !NOT_THEIRS.test(line))
  // Of our own errors, only where the author's code is in them.
  const shownFrames = theirs.length > 0 || error instanceof RondoError ? theirs : frames
  const stack = shownFrames.slice(0, MAX_FRAMES).map((line) => line.trim())
  return { ...named, ...(stack.length > 0 && { stack }), ...cause }
}

/** Frames in which an author finds nothing: those of Node and of this package. */
const NOT_THEIRS = /[\\/]node_modules[\\/]rondo[\\/]|\(node:|at node:|\(<anonymous>\)$/

function shorten(message: string): string {
  return message.length > MAX_MESSAGE ? `${message.slice(0, MAX_MESSAGE)}…` : message
}

/** Codes such as `ECONNREFUSED`, `ERR_MODULE_NOT_FOUND` or an SQLSTATE, which never contain content. */
function codeOf(error: Error): { code?: string } {
  const { code } = error as { code?: unknown }
  return typeof code === 'string' && /^[A-Z0-9_]{1,64}$/.test(code) ? { code } : {}
}
