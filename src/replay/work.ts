/**
 * A step's or an effect's way through a run: recorded result, or run it and record what it gave.
 *
 * R5 No new effect while a recorded one has not been reached. R7 The recorded outcome is the only one the handler sees:
 * also on the run that did the work, what it gets has been through the journal's form.
 */

import { type ErrorCode, RondoError, ToolError } from '../errors.ts'
import type { Failure, WorkEntry, WorkEntryKind } from '../journal/journal.ts'
import { isThenable } from '../lib/narrow.ts'
import type { Mark } from './operation.ts'
import { append, noteNews, noteReplayed, type RunState, takeName } from './run-state.ts'

interface Settlers {
  handed(run: RunState): void
  resolve(value: unknown): void
  reject(error: Error): void
}

export function work(run: RunState, kind: WorkEntryKind, key: string, fn: () => unknown): Promise<unknown> {
  return new Promise((resolve, reject) => {
    if (!takeName(run, key, kind)) return
    const found = run.record.find(key)
    if (found) {
      run.record.reach(key)
      run.tally.replayed += 1
      const settlers = { resolve, reject, handed: noteReplayed }
      return handOver(run, found.index, found.entry as WorkEntry, settlers)
    }
    run.turn.enqueue({
      key,
      strict: kind === 'effect',
      check: kind === 'effect' ? () => diverged(run, key) : undefined,
      begin: () => begin(run, kind, key, fn, { resolve, reject, handed: noteNews }),
    })
  })
}

function diverged(run: RunState, key: string): RondoError | undefined {
  const unreached = run.record.unreachedEffect()
  if (unreached === undefined) return undefined
  const detail =
    `The effect "${key}" is new, and the effect "${unreached}", which already ran in this flow, was not reached before it. ` +
    'The tool has changed under an open call: keep the order of effects, or let open calls end first.'
  return new RondoError('REPLAY_DIVERGED', detail)
}

function begin(run: RunState, kind: WorkEntryKind, key: string, fn: () => unknown, settlers: Settlers): void {
  run.tally.executed += 1
  noteNews(run)
  const settled = run.turn.busy()
  const finish = (entry: WorkEntry | RondoError, thrown?: unknown): void => {
    if (!run.turn.ended()) {
      if (entry instanceof RondoError) run.turn.refuse(entry)
      else append(run, entry, (index) => handOver(run, index, entry, settlers, thrown))
    }
    settled()
  }
  const done = (value: unknown): void => finish(toEntry(run, kind, key, value))
  const failed = (thrown: unknown): void =>
    endsTheCall(thrown)
      ? finish(thrown)
      : finish({ kind, key, at: run.platform.now(), failure: toFailure(thrown) }, thrown)
  const mark: Mark = { run, label: `${kind} "${key}"` }
  try {
    const value = run.platform.scope.within(mark, fn)
    // A promise of our own settles once, whatever the author's thenable does.
    if (isThenable(value)) Promise.resolve(value).then(done, failed)
    else done(value)
  } catch (thrown) {
    failed(thrown)
  }
}

const NOT_RECORDED: readonly ErrorCode[] = ['STORE_UNAVAILABLE', 'STORE_BUSY', 'REPLAY_NOT_JSON']

/** Nobody can tell now whether the work was done, or its result cannot be recorded: neither is an outcome of the work. */
function endsTheCall(thrown: unknown): thrown is RondoError {
  return isA(RondoError, thrown) && NOT_RECORDED.includes(thrown.code)
}

function toEntry(run: RunState, kind: WorkEntryKind, key: string, value: unknown): WorkEntry | RondoError {
  const at = run.platform.now()
  if (value === undefined) return { kind, key, at }
  const found = whyNotJson(value)
  return found === undefined ? { kind, key, at, value: copyJson(value) } : notJson(kind, key, found)
}

/** Why a result cannot be recorded; undefined if it can. */
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

function handOver(
  run: RunState,
  index: number,
  entry: WorkEntry,
  { resolve, reject, handed }: Settlers,
  thrown?: unknown,
): void {
  run.turn.deliver(index, entry.at, () => {
    handed(run)
    if ('failure' in entry) reject(fromFailure(entry.failure, thrown))
    else resolve(copyJson(entry.value))
  })
}

/*
 * A failed step, there and back. What the handler catches is built from the record also on the run in which the step
 * really failed: live and replayed runs see the same error.
 */

/** Whatever was thrown, the record of it is text: what could not be read back would take the whole flow with it. */
function toFailure(thrown: unknown): Failure {
  if (!isA(Error, thrown)) return { name: 'Error', message: toText(() => thrown) }
  const code = read(() => ('code' in thrown ? thrown.code : undefined))
  return {
    name: toText(() => thrown.name),
    message: toText(() => thrown.message),
    ...(typeof code === 'string' || Number.isFinite(code) ? { code: code as string | number } : {}),
    ...(isA(ToolError, thrown) ? { open: true } : {}),
  }
}

/** `instanceof` for whatever an author throws: on a proxy it may throw itself. */
function isA<T>(kind: new (...params: never[]) => T, thrown: unknown): thrown is T {
  return read(() => thrown instanceof kind) === true
}

function read(get: () => unknown): unknown {
  try {
    return get()
  } catch {
    return undefined
  }
}

function toText(get: () => unknown): string {
  const value = read(get)
  const text = typeof value === 'string' ? value : read(() => String(value))
  return typeof text === 'string' ? text : 'unknown'
}

/** What was thrown in this process, by the error that the handler got in its place. */
const origins = new WeakMap<Error, Error>()

/** `thrown`: what the step threw, if it was in this run. The handler does not see it; the log does. */
function fromFailure(failure: Failure, thrown?: unknown): Error {
  const error = failure.open ? new ToolError(failure.message) : new Error(failure.message)
  error.name = failure.name
  if (isA(Error, thrown)) origins.set(error, thrown)
  return failure.code === undefined ? error : Object.assign(error, { code: failure.code })
}

/** The error as its author threw it, where that was in this run of the handler. */
export function originOf(error: unknown): unknown {
  return error instanceof Error ? (origins.get(error) ?? error) : error
}

/*
 * What a step gives must survive the journal. A value that JSON would silently change (a Date, a Map, a NaN) is refused
 * on the first run, where the author sees it, and not on the second, where the user would.
 */

const MAX_DEPTH = 64

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

/** Where and what in `value` would not come back from JSON as it was; undefined if all of it does. */
function findNonJson(value: unknown, path = '', depth = 0): string | undefined {
  if (value === null || typeof value === 'string' || typeof value === 'boolean') return undefined
  if (typeof value === 'number' && Number.isFinite(value)) return undefined
  const where = path === '' ? 'the value itself' : path
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

/** A copy that shares nothing with the original: what a handler does to it does not reach the journal. */
export function copyJson<T>(value: T): T {
  return typeof value === 'object' && value !== null ? JSON.parse(JSON.stringify(value)) : value
}
