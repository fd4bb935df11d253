/**
 * A step's or an effect's way through a run: recorded result, or run it and record what it gave.
 *
 * R5 No new effect while a recorded one has not been reached. R7 The recorded outcome is the only one the handler sees:
 * also on the run that did the work, what it gets has been through the journal's form.
 */

import { RondoError } from '../errors.ts'
import type { WorkEntry, WorkEntryKind } from '../journal/journal.ts'
import { isThenable } from '../lib/is-thenable.ts'
import { fromFailure, toFailure } from './failure.ts'
import { copyJson, findNonJson } from './json-value.ts'
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
    isUncertain(thrown)
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

/** Nobody can tell now whether the work was done: that is no outcome to remember. */
function isUncertain(thrown: unknown): thrown is RondoError {
  return thrown instanceof RondoError && (thrown.code === 'STORE_UNAVAILABLE' || thrown.code === 'STORE_BUSY')
}

function toEntry(run: RunState, kind: WorkEntryKind, key: string, value: unknown): WorkEntry | RondoError {
  const at = run.platform.now()
  if (value === undefined) return { kind, key, at }
  const found = findNonJson(value)
  if (found === undefined) return { kind, key, at, value: copyJson(value) }
  const detail = `What the ${kind} "${key}" gave cannot be remembered: ${found}. Return plain JSON from it.`
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
