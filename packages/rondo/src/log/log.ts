/**
 * Writes events as JSON or for a terminal, or passes them to the operator's function. No line contains content.
 *
 * A log cannot break what it reports on: a function that throws or rejects is reported on stderr, and everything
 * continues (R11).
 */

import { randomBytes } from 'node:crypto'
import { hostname } from 'node:os'
import { misuse } from '../errors.ts'
import { quietly } from '../lib/quietly.ts'
import { createRate } from '../lib/rate.ts'
import type { Observer } from '../protocol/observer.ts'
import { type LogEvent, type LogFacts, toEvent } from './event.ts'
import { describeError, toJsonLine } from './json.ts'
import { writeToStandardError } from './standard-error.ts'
import { formatForTerminal } from './terminal.ts'

export type Log = (facts: LogFacts) => void

export interface LogOptions {
  /**
   * `json` (one line per event on stderr), `pretty` (lines for people), `off`, or a function that receives the events. Default:
   * `pretty` on a terminal in development, else `json`.
   *
   * @see docs/reference/log.md
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

/** The destination of lines. */
export interface LogScreen {
  /** An `urgent` line is written before the call returns. */
  write(line: string, urgent: boolean): void
  readonly isTerminal: boolean
  readonly colors: boolean
  readonly production: boolean
}

type WriteEvent = (event: LogEvent) => void

export interface OpenLog {
  /** Absent if the log is off. */
  readonly write?: WriteEvent
  readonly log: Log
  readonly instance: string
}

export function createLog(settings: LogSettings, screen: LogScreen = standardError()): OpenLog {
  const instance = settings.instance ?? createInstance()
  assertLog(settings.log, instance)
  const write = createWriter(settings, instance, screen)
  return { write, log: (facts) => write?.(toEvent(facts, instance)), instance }
}

function createWriter(
  { log: option, dev, logAuthorErrors, now = Date.now }: LogSettings,
  instance: string,
  { write, isTerminal, colors, production }: LogScreen,
): WriteEvent | undefined {
  if (option === 'off') return undefined
  const development = dev ?? (isTerminal && !production)
  const authorErrors = logAuthorErrors ?? development
  const writeAs = (format: (event: LogEvent) => string): WriteEvent =>
    quietly((event) => write(format(event), event.level !== 'info'))
  const writeJson = writeAs((event) => toJsonLine(event, now(), authorErrors))
  if (typeof option === 'function') return quietly(option, reportOnce(writeJson, instance, now))
  if (option === 'pretty' || (option === undefined && isTerminal && development))
    return writeAs((event) => formatForTerminal(event, now(), colors, describeError(event, authorErrors)))
  return writeJson
}

/** Returns what tells the log and the telemetry of an event. Neither may throw. */
export function createEvents(
  { log, instance }: OpenLog,
  telemetry: Pick<Observer, 'event'> | undefined,
): Log {
  if (telemetry?.event === undefined) return log
  return (facts) => {
    log(facts)
    telemetry.event?.(toEvent(facts, instance))
  }
}

/** Reports on the log itself that the operator's function fails, once a minute. */
function reportOnce(write: WriteEvent, instance: string, now: () => number): (error: unknown) => void {
  const rate = createRate(60_000, now)
  return (error) => {
    if (rate() === undefined) return
    const message = 'The log function threw or rejected; its event is lost'
    write({ level: 'warn', instance, event: 'warning', message, error })
  }
}

const OPTIONS: readonly unknown[] = ['json', 'pretty', 'off', undefined]

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
  const place = `${hostname()}-${process.pid}`
  try {
    return `${place}-${randomBytes(4).toString('hex')}`
  } catch {
    // Workers have no random numbers while a module is loaded.
    return place
  }
}

function standardError(): LogScreen {
  const { stderr, env } = process
  const isTerminal = stderr?.isTTY === true
  return {
    write: writeToStandardError,
    isTerminal,
    colors: isTerminal && (env.NO_COLOR ?? '') === '' && env.TERM !== 'dumb',
    production: env.NODE_ENV === 'production',
  }
}
