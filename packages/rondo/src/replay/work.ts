/**
 * The way of a step or an effect through a run: resolve with the recorded result, or run the function and record its result.
 * Also the keys of effects, and what makes a result or an error recordable.
 *
 * R5 No new effect runs while a recorded one has not been reached. R7 The handler sees only recorded outcomes: even the run
 * that did the work receives a result or an error that was built from its entry.
 */

import { type ErrorCode, RondoError, ToolError } from '../errors.ts'
import type { BegunEffect, Journal, RecordedFailure, WorkEntry, WorkEntryKind } from '../journal/journal.ts'
import { canonicalJson, copyParsed } from '../lib/json.ts'
import type { RetryPolicy } from './input.ts'
import { delayAfter, resumeRetry, retryLater } from './retry.ts'
import {
  append,
  isA,
  type Mark,
  noteNews,
  noteReplayed,
  type RunState,
  read,
  runMarked,
  takeName,
  toHex,
  toRefusal,
} from './run-state.ts'

interface Settlers {
  delivered(run: RunState): void
  resolve(value: unknown): void
  reject(error: Error): void
}

interface WorkOptions {
  /** Returns why an effect must not begin, if so. */
  check?(): RondoError | undefined
  readonly retry?: RetryPolicy
  /** May begin only in a call whose states count once. */
  readonly linear?: true
  /** Called before the first attempt. If it rejects, the call ends here. */
  before?(): Promise<void>
  /** Makes the journal with the result durable before the handler sees it. If it rejects, the call ends here. */
  keep?(journal: Journal): Promise<void>
}

/** `act` is called for each attempt; attempts are counted from 1. */
export function work(
  run: RunState,
  kind: WorkEntryKind,
  key: string,
  act: (attempt: number) => unknown,
  { check, retry, linear, before, keep }: WorkOptions = {},
): Promise<unknown> {
  return new Promise((resolve, reject) => {
    if (!takeName(run, key, kind)) return
    const found = run.record.find(key)
    if (found) {
      run.record.reach(key)
      run.tally.replayed += 1
      run.observed?.replayed(kind, key)
      const settlers = { resolve, reject, delivered: noteReplayed }
      return deliver(run, found.index, found.entry as WorkEntry, settlers)
    }
    const settlers = { resolve, reject, delivered: noteNews }
    const attempt = (): void =>
      run.turn.enqueue({
        key,
        strict: kind === 'effect' || kind === 'undo',
        linear,
        check: kind === 'effect' ? () => diverged(run, key) ?? check?.() : undefined,
        begin: () => begin(run, { kind, key, act, retry, before, keep }, attempt, settlers),
      })
    const due = run.record.attempts(key) > 0 ? run.record.deadline(key) : undefined
    if (due === undefined) attempt()
    else resumeRetry(run, { kind, key, due }, attempt)
  })
}

function diverged(run: RunState, key: string): RondoError | undefined {
  const unreached = run.record.unreachedEffect()
  if (unreached === undefined) return undefined
  const detail =
    `The effect "${key}" is new, but this run has not reached the effect "${unreached}", which already ran in this flow. ` +
    'The tool has changed while a call was open: keep the order of effects, or let open calls end first.'
  return new RondoError('REPLAY_DIVERGED', detail)
}

interface Job extends Pick<WorkOptions, 'retry' | 'before' | 'keep'> {
  readonly kind: WorkEntryKind
  readonly key: string
  act(attempt: number): unknown
}

/** Runs one attempt. `again` enqueues the next one. */
function begin(run: RunState, job: Job, again: () => void, settlers: Settlers): void {
  const { kind, key, retry } = job
  const attempt = run.record.attempts(key) + 1
  run.tally.executed += 1
  noteNews(run)
  const settled = run.turn.busy()
  const finish = (entry: WorkEntry | RondoError, thrown?: unknown): void => {
    if (!run.turn.ended()) {
      if (entry instanceof RondoError) run.turn.refuse(entry)
      else append(run, entry, (index) => deliver(run, index, entry, settlers, thrown))
    }
    settled()
  }
  const refuse = (error: unknown): void => finish(toRefusal(error))
  const settle = (entry: WorkEntry, thrown?: unknown): void => {
    if (!job.keep || run.turn.ended()) return finish(entry, thrown)
    const journal = run.record.toJournal()
    job.keep({ ...journal, entries: [...journal.entries, entry] }).then(() => finish(entry, thrown), refuse)
  }
  const done = (value: unknown): void => {
    const entry = toEntry(run, kind, key, value)
    if (entry instanceof RondoError) finish(entry)
    else settle(entry)
  }
  const failed = (thrown: unknown): void => {
    if (endsCall(thrown)) return finish(thrown)
    const now = run.platform.now()
    const delay = retry && delayAfter(retry, attempt, thrown, now)
    if (delay === undefined) {
      const entry: WorkEntry = { kind, key, at: now, failure: toFailure(thrown) }
      return kind === 'undo' ? finish(entry, thrown) : settle(entry, thrown)
    }
    const failure = { kind, key, attempt, due: now + delay, error: thrown }
    if (!run.turn.ended()) retryLater(run, failure, again)
    settled()
  }
  const mark: Mark = { run, label: `${kind} "${key}"` }
  const { observed } = run
  const { admit } = run
  // An effect is admitted later, inside what it waits for.
  const act = (): unknown =>
    admit && kind === 'undo' ? admit().then(() => job.act(attempt)) : job.act(attempt)
  const start = (): void => {
    runMarked(mark, observed ? () => observed.work(kind, key, act, attempt) : act).then(done, failed)
  }
  if (job.before) job.before().then(start, refuse)
  else start()
}

const NOT_RECORDED: readonly ErrorCode[] = ['STORE_UNAVAILABLE', 'STORE_BUSY', 'REPLAY_NOT_JSON']

/** It is unknown whether the work was done, or its result cannot be recorded: neither is an outcome of the work. */
function endsCall(thrown: unknown): thrown is RondoError {
  return isA(RondoError, thrown) && NOT_RECORDED.includes(read(() => thrown.code) as ErrorCode)
}

function toEntry(run: RunState, kind: WorkEntryKind, key: string, value: unknown): WorkEntry | RondoError {
  const at = run.platform.now()
  if (value === undefined) return { kind, key, at }
  const found = whyNotJson(value)
  return found === undefined ? { kind, key, at, value: copyJson(value) } : notJson(kind, key, found)
}

/** Returns why a result cannot be recorded, or undefined if it can. */
export function whyNotJson(value: unknown): string | undefined {
  try {
    return value === undefined ? undefined : findNonJson(value)
  } catch {
    // A getter, or a proxy that was revoked.
    return 'reading it throws'
  }
}

export function notJson(kind: WorkEntryKind, key: string, why: string): RondoError {
  const detail = `The result of the ${kind} "${key}" cannot be recorded: ${why}. Return plain JSON from it.`
  return new RondoError('REPLAY_NOT_JSON', detail)
}

function deliver(
  run: RunState,
  index: number,
  entry: WorkEntry,
  { resolve, reject, delivered }: Settlers,
  thrown?: unknown,
): void {
  run.turn.deliver(index, entry.at, () => {
    delivered(run)
    if ('failure' in entry) reject(fromFailure(entry.failure, thrown))
    else resolve(copyParsed(entry.value))
  })
}

/**
 * Returns the idempotency key of an effect. `branch` is what `branchOf` returned when the handler called it: a client that
 * redeems one state twice with different answers gets two keys. An effect that may have run keeps the key that was recorded with
 * its intent, even in a new release that calls it with other answers.
 */
export function effectKey(run: RunState, name: string, branch: string): string {
  const begun = begunIn(run, name)
  if (begun) return begun.effectKey
  const label = branch === '' ? `effect:${name}` : `effect@${branch}:${name}`
  return toHex(run.platform.derive(run.journal.seed, label)).slice(0, 32)
}

/** The intent of an effect with an undo function that may have run. */
export function begunIn(run: RunState, name: string): BegunEffect | undefined {
  return run.record.begun().find(({ key }) => key === name)
}

/**
 * Returns a digest of what the handler has received from the client so far, in any order; empty if that is nothing. A flow that an
 * operator continued from an earlier step is another branch.
 */
export function branchOf({ received, platform, journal: { rerun } }: RunState): string {
  if (received.size === 0 && rerun === undefined) return ''
  const parts: [string, string][] = []
  for (const [name, item] of received) {
    item.digest ??= platform.digest(canonicalJson(item.answer))
    parts.push([name, item.digest])
  }
  parts.sort(([a], [b]) => (a < b ? -1 : 1))
  return platform.digest(canonicalJson(rerun === undefined ? parts : [rerun, ...parts]))
}

/** Records whatever was thrown as text: an entry that could not be read back would end the whole flow. */
function toFailure(thrown: unknown): RecordedFailure {
  if (!isA(Error, thrown)) return { name: 'Error', message: toText(() => thrown) }
  const code = read(() => ('code' in thrown ? thrown.code : undefined))
  return {
    name: toText(() => thrown.name),
    message: toText(() => thrown.message),
    ...(typeof code === 'string' || Number.isFinite(code) ? { code: code as string | number } : {}),
    ...(isA(ToolError, thrown) ? { open: true } : {}),
  }
}

function toText(get: () => unknown): string {
  const value = read(get)
  const text = read(() => String(value))
  return typeof text === 'string' ? text : 'unknown'
}

/** The errors that steps threw, by the error that the handler received in place of each. */
const origins = new WeakMap<Error, Error>()

/** `thrown` is what the step threw, if it failed in this run. The handler does not see it; the log does. */
function fromFailure(failure: RecordedFailure, thrown?: unknown): Error {
  const error = failure.open ? new ToolError(failure.message) : new Error(failure.message)
  error.name = failure.name
  if (isA(Error, thrown)) origins.set(error, thrown)
  return failure.code === undefined ? error : Object.assign(error, { code: failure.code })
}

/** Returns the error as its author threw it, if that was in this process; otherwise the error itself. */
export function originOf(error: unknown): unknown {
  return error instanceof Error ? (origins.get(error) ?? error) : error
}

/** Deeper than a message may nest, so that a step can return what a client sent. */
const MAX_DEPTH = 1_000
const MAX_PATH = 200

/**
 * Returns where `value` contains something that JSON would silently change (a Date, a Map, a NaN), and what. It is refused
 * on the first run, where the author sees it, and not on a replay, where the user would.
 */
function findNonJson(value: unknown, path = '', depth = 0): string | undefined {
  if (value === null || typeof value === 'string' || typeof value === 'boolean') return undefined
  if (Number.isFinite(value)) return undefined
  const where = path === '' ? 'the value itself' : path.slice(0, MAX_PATH)
  if (typeof value !== 'object') return `${where} is ${describe(value)}`
  if (depth === MAX_DEPTH) return `${where} is nested deeper than ${MAX_DEPTH} levels`
  if (Array.isArray(value)) {
    for (const [i, item] of value.entries()) {
      const found = findNonJson(item, `${path}[${i}]`, depth + 1)
      if (found !== undefined) return found
    }
    return undefined
  }
  if (!isPlain(value)) return `${where} is ${describe(value)}`
  for (const [name, item] of Object.entries(value)) {
    if (item === undefined) continue
    const found = findNonJson(item, path === '' ? name : `${path}.${name}`, depth + 1)
    if (found !== undefined) return found
  }
  return undefined
}

function describe(value: unknown): string {
  if (typeof value === 'number') return String(value)
  if (typeof value !== 'object' || value === null) return `a ${typeof value}`
  const name: unknown = value.constructor?.name
  return typeof name === 'string' && name !== '' ? `a ${name}` : 'an object of a class'
}

function isPlain(value: object): boolean {
  const proto = Object.getPrototypeOf(value)
  return proto === Object.prototype || proto === null
}

/** Returns a copy that shares nothing with the original, so that a handler cannot change the journal. */
export function copyJson<T>(value: T): T {
  return typeof value === 'object' ? JSON.parse(JSON.stringify(value)) : value
}
