/**
 * Writes events as JSON or for a terminal, or passes them to the operator's function. No line contains content: of an error
 * that an author's code threw it has the kind and the place, and the message, which may quote a user, only in development
 * or if the operator says so. Errors of Rondo are logged in full, because they say what to do.
 *
 * A log cannot break what it reports on: a function that throws or rejects is reported on stderr, and everything
 * continues (R11).
 */

import { randomBytes } from 'node:crypto'
import { writeSync } from 'node:fs'
import { hostname } from 'node:os'
import { isOurs, misuse, RondoError } from '../errors.ts'
import { quietly } from '../lib/quietly.ts'
import type { Observer } from '../protocol/observer.ts'
import type { LogEvent, LogFacts, LogOrigin, RoundLine } from './event.ts'
import { formatForTerminal } from './terminal.ts'

/** `at` is the time of the event, if the caller knows it; else it is now. */
export type Log = (facts: LogFacts, at?: number) => void

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

/** Returns a line. That of a round is formatted only now: formatting the lines of a write one after the other costs less. */
type LogLine = () => string

/** Where lines go. */
export interface LogScreen {
  /** An `urgent` line is written before the call returns. */
  write(line: LogLine, urgent: boolean): void
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
  if (option === 'off') return { observer: {}, log: () => {}, instance }
  const development = dev ?? (screen.isTerminal && !screen.production)
  const authorErrors = settings.logAuthorErrors ?? development
  const open = (write: (event: LogEvent) => void): OpenLog => ({
    observer: { event: write },
    log: (facts) => write(toEvent(facts, instance)),
    instance,
  })
  const put = (event: LogEvent, line: string): void => screen.write(() => `${line}\n`, event.level !== 'info')
  const writeJson = quietly((event: LogEvent) => put(event, toJsonLine(event, now(), authorErrors)))
  if (typeof option === 'function') return open(quietly(option, reportOnce(writeJson, instance, now)))
  if (option === 'pretty' || (option === undefined && screen.isTerminal && development)) {
    const { colors } = screen
    return open(
      quietly((event: LogEvent) =>
        put(event, formatForTerminal(event, now(), colors, describeError(event, authorErrors))),
      ),
    )
  }
  const { observer, log } = open(writeJson)
  const headAt = createRoundHead(instance)
  const writeRound = (line: RoundLine, at: number): void =>
    screen.write(() => toRoundLine(line, headAt(at)), false)
  return {
    observer,
    log: (facts, at) => (facts.event === 'round' ? writeRound(facts, at ?? now()) : log(facts)),
    instance,
  }
}

/** Returns what tells the log and the telemetry of an event. Neither may throw. */
export function createEvents(
  { log, instance }: OpenLog,
  telemetry: Pick<Observer, 'event'> | undefined,
): Log {
  if (telemetry?.event === undefined) return log
  return (facts, at) => {
    log(facts, at)
    telemetry.event?.(toEvent(facts, instance))
  }
}

function toEvent(facts: LogFacts, instance: string): LogEvent {
  return { level: levelOf(facts), instance, ...facts } as LogEvent
}

/** Reports on the log itself that the operator's function fails, once a minute. */
function reportOnce(
  write: (event: LogEvent) => void,
  instance: string,
  now: () => number,
): (error: unknown) => void {
  let reportedAt = Number.NEGATIVE_INFINITY
  return (error) => {
    if (now() - reportedAt < REPORT_MS) return
    reportedAt = now()
    const message = 'The log function threw or rejected; its event is lost'
    write({ level: 'warn', instance, event: 'warning', message, error })
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

/**
 * Lines of this turn of the event loop that are not written yet. A call that is alone is in the log before its client has
 * the reply: the first line of a turn is written at once, unless there were several in the turn before. Under load, the
 * lines of a turn share a write: a system call for each would cost more than everything else about a line.
 */
let batch: { lines: LogLine[]; inTurn: number; isBusy: boolean } | undefined
const MAX_BATCH = 64

/** From now on lines may share a write. For processes in which a timer of one request may write the lines of another. */
export function batchLogLines(): void {
  if (batch !== undefined) return
  batch = { lines: [], inTurn: 0, isBusy: false }
  process.once('exit', () => {
    writeBatch()
    // No turn follows: what others log while the process exits is written at once.
    batch = undefined
  })
}

function writeBatch(): void {
  if (batch === undefined || batch.lines.length === 0) return
  const { lines } = batch
  batch.lines = []
  let text = ''
  for (const line of lines) text += formatted(line)
  try {
    const rest = writeDirectly(text)
    if (rest !== undefined) process.stderr.write(rest, ignoreFailure)
  } catch {
    // Somebody replaced `process.stderr`, and it fails. There is no other place to report it.
  }
}

/**
 * Writes to the file or pipe behind `process.stderr`, which costs less than its stream does. Returns what is left for the
 * stream: everything, if lines are waiting there or somebody replaced its method; the rest, if a pipe is full.
 */
function writeDirectly(text: string): string | Uint8Array | undefined {
  const { stderr } = process
  if (stderr.fd !== 2 || stderr.isTTY || stderr.writableLength > 0 || Object.hasOwn(stderr, 'write'))
    return text
  const bytes = Buffer.byteLength(text)
  let written: number
  try {
    // As many bytes as characters: the text is ASCII, which needs no conversion.
    written = writeSync(2, text, null, bytes === text.length ? 'latin1' : 'utf8')
  } catch {
    // A full or broken pipe: the stream waits for it, or reports it.
    return text
  }
  return written === bytes ? undefined : Buffer.from(text).subarray(written)
}

const writeAlone = quietly((line: LogLine) => console.error(line().slice(0, -1)))

/** A line that cannot be formatted does not take the others of its write with it. */
function formatted(line: LogLine): string {
  try {
    return line()
  } catch {
    return ''
  }
}

function endTurn(): void {
  if (batch === undefined) return
  batch.isBusy = batch.inTurn > 1
  batch.inTurn = 0
  writeBatch()
}

function writeToStandardError(line: LogLine, urgent: boolean): void {
  if (batch === undefined) return writeAlone(line)
  batch.lines.push(line)
  batch.inTurn += 1
  const isFirst = batch.inTurn === 1
  if (urgent || (isFirst && !batch.isBusy) || batch.lines.length === MAX_BATCH) writeBatch()
  if (isFirst) setImmediate(endTurn)
}

/** Without a listener, a broken pipe would end the process. Node calls this before it emits the error. */
function ignoreFailure(error: Error | null | undefined): void {
  const { stderr } = process
  if (error && stderr.listenerCount('error') === 0) stderr.once('error', () => {})
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
  write = (line) => writeToStandardError(() => `${line}\n`, true),
  authorErrors = false,
  now = Date.now,
}: JsonLogOptions = {}): (event: LogEvent) => void {
  return (event) => write(toJsonLine(event, now(), authorErrors))
}

function toJsonLine(event: LogEvent, moment: number, authorErrors: boolean): string {
  const error = describeError(event, authorErrors)
  const text = JSON.stringify(error === undefined ? event : { ...event, error })
  return `{"time":"${new Date(moment).toISOString()}",${text.slice(1)}`
}

/** How the line of a round begins, written once a millisecond: under load, many lines share it. */
function createRoundHead(instance: string): (moment: number) => string {
  const origin = `"level":"info","instance":${quoted(instance)}`
  let at = Number.NaN
  let head = ''
  let since = Number.NaN
  let second = ''
  return (moment) => {
    if (moment === at) return head
    if (!(moment >= since && moment < since + 1_000)) {
      const start = Math.floor(moment / 1_000) * 1_000
      // Throws if the clock is wrong: nothing is remembered of such a time.
      second = new Date(start).toISOString().slice(0, -4)
      since = start
    }
    const ms = Math.floor(moment - since)
    const place = `${origin},"event":"round","flow":"`
    head = flat('{"time":"', second, ms < 10 ? '00' : ms < 100 ? '0' : '', String(ms), 'Z",', place)
    at = moment
    return head
  }
}

/**
 * The same line as `toJsonLine`, in a fraction of the time: every request has one. Joining the pieces costs most, so what
 * repeats from line to line is remembered as one piece.
 */
function toRoundLine(line: RoundLine, head: string): string {
  const { flow, asks, events, moved, task, turn, code, replayed, executed } = line
  const { stateBytes, keyId, sealedVersion } = line
  const { text: ending, withoutWork } = endingOf(line)
  const isShort = asks === undefined && events === undefined && moved === undefined && code === undefined
  let text = `${head}${PLAIN.test(flow) ? flow : quoted(flow).slice(1, -1)}${roundText(line.round)}`
  if (isShort && task === undefined && turn === undefined && replayed === 0 && executed === 0) {
    text += withoutWork
  } else {
    text += ending
    if (asks !== undefined) text += asksText(asks)
    if (events !== undefined) text += `,"events":${JSON.stringify(events)}`
    if (moved !== undefined) text += `,"moved":"${moved}"`
    if (task !== undefined) text += `,"task":${quoted(task)}`
    if (turn !== undefined) text += `,"turn":${turn}`
    if (code !== undefined) text += `,"code":${quoted(code)}`
    text += replayed === 0 && executed === 0 ? NO_WORK : `,"replayed":${replayed},"executed":${executed}`
  }
  if (stateBytes !== undefined) text += `,"stateBytes":${stateBytes}`
  if (keyId !== undefined) text += keyText(keyId)
  if (sealedVersion !== undefined) text += `,"sealedVersion":${quoted(sealedVersion)}`
  return text + msText(line.ms)
}

const NO_WORK = ',"replayed":0,"executed":0'

const quoted: (text: string) => string = JSON.stringify

/** Ids that JSON quotes as they are. */
const PLAIN = /^[\w-]+$/

/** Joins texts that are used often. A template would keep its pieces, to be joined at every use. */
function flat(...pieces: readonly string[]): string {
  return pieces.join('')
}

/**
 * Returns `write`, which remembers for each name what it returned for the last word. Names of tools, keys and questions are
 * few and short, unless an author makes them up.
 */
function remembering<V>(write: (name: string, word: string) => V): (name: string, word?: string) => V {
  const known = new Map<string, { readonly word: string; readonly value: V }>()
  return (name, word = '') => {
    const found = known.get(name)
    if (found !== undefined && found.word === word) return found.value
    const value = write(name, word)
    if (name.length > MAX_NAME) return value
    if (known.size >= MAX_NAMES) known.clear()
    known.set(name, { word, value })
    return value
  }
}

const MAX_NAMES = 1_000

/** Returns a function that writes a number between two texts, and remembers it for numbers that are small. */
function numbering(before: string, after: string): (value: number) => string {
  const known: string[] = []
  return (value) => {
    const found = known[value]
    if (found !== undefined) return found
    const text = flat(before, String(value), after)
    if (Number.isInteger(value) && value >= 0 && value < MAX_NUMBERS) known[value] = text
    return text
  }
}

const MAX_NUMBERS = 256

const roundText = numbering('","round":', '')
const msText = numbering(',"ms":', '}\n')
const keyText = remembering((keyId) => flat(',"keyId":', quoted(keyId)))
const askText = remembering((key, kind) => flat('{"key":', quoted(key), ',"kind":"', kind, '"}'))
const onlyAskText = remembering((key, kind) => flat(',"asks":[', askText(key, kind), ']'))

function asksText(asks: NonNullable<RoundLine['asks']>): string {
  const [first] = asks
  if (first !== undefined && asks.length === 1) return onlyAskText(first.key, first.kind)
  return `,"asks":[${asks.map(({ key, kind }) => askText(key, kind)).join(',')}]`
}

/** What was called and how it ended; `withoutWork` also says that nothing was replayed or executed. */
type Ending = (target: string, method: string) => { readonly text: string; readonly withoutWork: string }

const endings = new Map<RoundLine['outcome'], Ending>()

function endingOf({ method, target, outcome }: RoundLine): ReturnType<Ending> {
  const known = endings.get(outcome)
  if (known !== undefined) return known(target, method)
  const ending = remembering((target, method) => {
    const text = flat(',"method":"', method, '","target":', quoted(target), ',"outcome":"', outcome, '"')
    return { text, withoutWork: flat(text, NO_WORK) }
  })
  endings.set(outcome, ending)
  return ending(target, method)
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

/** What is logged of an error. */
export interface DescribedError {
  readonly name: string
  readonly code?: string
  readonly message?: string
  readonly stack?: readonly string[]
  readonly cause?: DescribedError
}

function describeError(event: LogEvent, authorErrors: boolean): DescribedError | undefined {
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
