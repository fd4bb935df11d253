/**
 * Undo: what takes back an effect when its call ends without success, or when the handler calls `ctx.undo()`.
 *
 * undo 1: The intent is durable before an effect with `undo` begins (`Undoing.keep`), so whatever may have run is known.
 * undo 2: Undo functions run one after the other, in reverse order of the beginning of their effects.
 * undo 3: Each has a key of its own, derived from the key of its effect: the same in every attempt and under every carrier.
 * undo 4: The outcome is recorded, and a replay does not undo again. An undo that failed is left to a worker.
 * undo 5: What the handler knows when it calls `ctx.undo()` is durable first: if its run is lost, the next one undoes the same.
 *
 * The functions are found by running the handler: a run collects those of the effects that it reaches.
 */

import { misuse, RondoError } from '../errors.ts'
import type { Journal } from '../journal/journal.ts'
import { copyParsed } from '../lib/json.ts'
import type { RetryPolicy, Undoable, Undoing, UndoReport } from './input.ts'
import { attemptWithin } from './retry.ts'
import { type RunState, toHex, undoName } from './run-state.ts'
import { begunIn, effectKey, work } from './work.ts'

/** Returns the part of the carrier that keeps effects which can be undone; throws if there is none. */
export function undoingOf({ undoing }: RunState): Undoing {
  if (undoing && 'keep' in undoing) return undoing
  throw misuse(`An effect with { undo } needs a store: ${undoing?.missing ?? 'this call has none'}.`)
}

const MAX_KEY = 120

/** The options with which an effect that can be undone works: it writes its intent first, and its result before it is seen. */
export function keepsIntent(
  run: RunState,
  undoing: Undoing,
  key: string,
  branch: string,
  isOnce = false,
): { readonly linear: true; before(): Promise<void>; keep(journal: Journal): Promise<void> } {
  if (key.length > MAX_KEY)
    throw misuse(
      `The name of an effect with { undo } may be at most ${MAX_KEY} characters long; got ${key.length}.`,
    )
  // Like an effect's key, it depends on the client's answers: two branches of a call do not share what they can undo.
  run.record.nameLineage(run.platform.digest(`lineage ${branch}`))
  return {
    linear: true,
    async before() {
      // One that began in an earlier run may have been undone since, so its intent is written again.
      const known = begunIn(run, key)
      const effect = known ?? { key, effectKey: effectKey(run, key, branch), ...(isOnce && { branch }) }
      if (!known) run.record.noteBegun(effect)
      const journal = run.record.toJournal()
      await undoing.keep(journal, 'intent')
      if (!known) await run.persistBegun?.(effect, journal.lineage)
    },
    keep: (journal) => undoing.keep(journal, 'outcome'),
  }
}

/** Notes the undo function of an effect that the handler has called. `settled` resolves when the effect has an outcome. */
export function noteUndoable(run: RunState, undoable: Undoable): void {
  const { key } = undoable
  const other = run.names.get(undoName(key))
  if (other !== undefined) {
    const detail =
      `The effect "${key}" can be undone, which is recorded as "${undoName(key)}", but that name is used already (${other}). ` +
      'Rename one of the two.'
    run.turn.refuse(new RondoError('REPLAY_NAME_REUSED', detail))
  }
  run.undoable ??= new Map()
  run.undoable.set(key, undoable)
}

/** Undoes what the handler has called so far and has not undone yet. */
export async function undoSoFar(run: RunState): Promise<UndoReport> {
  const called = [...(run.undoable?.values() ?? [])].filter(({ key }) => !run.undone?.has(key))
  if (called.length === 0) return { undone: [], failed: [] }
  run.undone ??= new Set()
  for (const { key } of called) run.undone.add(key)
  await Promise.all(called.map(({ settled }) => settled))
  return undoEach(run, called)
}

/** In a call somebody waits. A worker is more patient (`Undoing.retry`). */
const RETRY: RetryPolicy = { times: 3, delayMs: 1_000, factor: 2, maxDelayMs: 10_000 }

/** The time for one attempt to undo an effect that has no `timeout`: nothing may wait forever. */
const ATTEMPT_MS = 30_000

/** Undoes these effects, the last that began first. */
export async function undoEach(run: RunState, undoables: readonly Undoable[]): Promise<UndoReport> {
  const undoing = undoingOf(run)
  const functions = new Map(undoables.map((one) => [one.key, one]))
  const undone: string[] = []
  const failed: string[] = []
  for (const { key, effectKey } of [...run.record.begun()].reverse()) {
    const undoable = functions.get(key)
    if (!undoable) continue
    const { undo, timeout = ATTEMPT_MS } = undoable
    const ownKey = toHex(run.platform.derive(run.journal.seed, `undo:${effectKey}`)).slice(0, 32)
    const outcome = run.record.find(key)?.entry
    const ran = outcome && !('failure' in outcome) ? 'yes' : 'maybe'
    const result = outcome && 'value' in outcome ? copyParsed(outcome.value) : undefined
    const act = async (): Promise<void> => {
      await attemptWithin(run, `undo of "${key}"`, timeout, (signal) =>
        undo(result, {
          key: ownKey,
          effectKey,
          ran,
          get signal() {
            return signal()
          },
        }),
      )
    }
    const keep = (journal: Journal): Promise<void> => undoing.keep(journal, 'undo')
    const isFirst = undone.length + failed.length === 0
    const before = isFirst && !run.undoes ? () => keep(run.record.toJournal()) : undefined
    try {
      await work(run, 'undo', undoName(key), act, { retry: undoing.retry ?? RETRY, before, keep })
      undone.push(key)
    } catch {
      failed.push(key)
    }
  }
  return { undone, failed }
}
