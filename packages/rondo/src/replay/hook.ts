/**
 * The way of an event from outside through a run. `ctx.hook` opens a hook like a step and records its id, which is then the same
 * on every replay; `received()` resolves with the recorded event, records one that has arrived, or waits for it.
 *
 * hook 1: A hook is durable before the handler has its id, so that no event comes too early.
 * hook 2: An event is recorded before the handler sees it. One that does not fit the schema is recorded too: the hook
 * took it, and every replay sees the same refusal.
 * hook 3: When the time of a hook is up, it is closed in the store before that is recorded. An event that the store accepted
 * in time is never lost to the deadline.
 */

import { EventExpired, EventRejected, misuse, RondoError } from '../errors.ts'
import type { Found, WorkEntry } from '../journal/journal.ts'
import { copyParsed } from '../lib/json.ts'
import { defineOptions, type OptionsOf, unchecked } from '../options.ts'
import type { Hook, HookOptions, Schema } from '../tool/context.ts'
import { compileEvent, describeProblems } from '../tool/schema/schema.ts'
import type { Compiled } from '../tool/schema/standard.ts'
import { type Hooks, needsTask } from './input.ts'
import { type Reading, whenRead } from './question.ts'
import { append, arrivingOf, noteNews, noteReplayed, operate, type RunState, takeName } from './run-state.ts'
import { checkDuration, closeHookAt, fixDeadline, isOver, outlivesTask } from './wait.ts'
import { copyJson, whyNotJson, work } from './work.ts'

const OPTIONS = defineOptions('hook', {
  within: unchecked(),
  schema: unchecked(),
  about: unchecked(),
} satisfies OptionsOf<HookOptions>)

export async function openHook(
  run: RunState,
  key: string,
  options: HookOptions<Schema> = {},
): Promise<Hook<unknown>> {
  const { hooks } = run
  OPTIONS.assert(options, `The hook "${key}"`)
  const { schema, within, about } = options
  const notJson = whyNotJson(about)
  if (notJson !== undefined) throw misuse(`What the hook "${key}" is about must be plain JSON: ${notJson}.`)
  if (typeof key === 'string' && key.length > MAX_KEY)
    throw misuse(`The name of a hook may be at most ${MAX_KEY} characters long; got ${key.length}.`)
  const limit =
    within === undefined ? undefined : checkDuration(`The time limit of "${key}" (within)`, within)
  const compiled = schema === undefined ? undefined : compileEvent(schema, run.limits)
  if (!hooks) return leaveFor(run, `the hook "${key}"`, key)
  if (limit !== undefined && !run.record.find(key)) {
    const due = run.record.deadline(eventName(key)) ?? run.platform.now() + limit
    if (outlivesTask(run, `The hook "${key}" is open (within)`, due)) return new Promise(() => {})
  }
  const id = (await work(run, 'hook', key, async () => {
    const fixed = limit === undefined ? undefined : fixDeadline(run, eventName(key), (now) => now + limit)
    // The journal knows the deadline before the store does, so that both go by the same one after a crash.
    await fixed?.written
    return hooks.open(key, { schema: compiled?.json, about }, fixed?.due)
  })) as string
  return createHook({ run, hooks, key, compiled }, id)
}

/** The event is recorded under a longer name. */
const MAX_KEY = 119

/** A hook that is open in this run. */
interface OpenHook {
  readonly run: RunState
  readonly hooks: Hooks
  readonly key: string
  readonly compiled: Compiled | undefined
}

/** Continues as a task, where the handler comes here again; ends the call if it cannot. */
export function leaveFor(run: RunState, what: string, key: string): Promise<never> {
  const { possible, whyNot = needsTask } = run.background
  if (possible) run.turn.enqueue({ key, leaving: true, begin: () => {} })
  else run.turn.refuse(whyNot(what))
  return new Promise(() => {})
}

function createHook(hook: OpenHook, id: string): Hook<unknown> {
  let received: Promise<unknown> | undefined
  return {
    id,
    received() {
      received ??= operate(hook.run, `event of the hook "${hook.key}"`, () => receive(hook), 'question')
      return received
    },
  }
}

/** The name under which the event of a hook is recorded. */
function eventName(key: string): string {
  return `${key}.received`
}

/** The hook whose event is recorded under this name. */
export function hookOfEvent(name: string): string {
  return name.slice(0, -eventName('').length)
}

function receive({ run, hooks, key, compiled }: OpenHook): Promise<unknown> {
  const name = eventName(key)
  return new Promise((resolve, reject) => {
    if (!takeName(run, name, 'event')) return
    const settle = (reading: Reading): void =>
      reading.ok ? resolve(reading.value) : reject(new EventRejected(key, reading.problem))
    const found = run.record.find(name) as (Found & { readonly entry: WorkEntry }) | undefined
    if (found) {
      const { index, entry } = found
      run.tally.replayed += 1
      if (entry.expired)
        return run.turn.deliver(index, entry.at, () => {
          noteReplayed(run)
          reject(new EventExpired(key))
        })
      const event = 'value' in entry ? copyParsed(entry.value) : undefined
      whenRead(run, read(compiled, event), index, (reading) =>
        run.turn.deliver(index, entry.at, () => {
          noteReplayed(run)
          settle(reading)
        }),
      )
      return
    }
    const { events, wakers } = arrivingOf(run)
    const stopWaiting = (): void => {
      wakers.delete(name)
      run.waits?.delete(name)
      run.turn.heard(name)
    }
    const take = (event: unknown): void => {
      stopWaiting()
      const at = run.platform.now()
      append(run, { kind: 'event', key: name, at, value: event }, (index) => {
        whenRead(run, read(compiled, copyJson(event)), index, (reading) =>
          run.turn.deliver(index, at, () => {
            noteNews(run)
            settle(reading)
          }),
        )
      })
    }
    const expire = (): void => {
      const at = run.platform.now()
      whileBusy(run, hooks.close(key), () => {
        if (events.has(key)) return
        stopWaiting()
        append(run, { kind: 'event', key: name, at, expired: true }, (index) =>
          run.turn.deliver(index, at, () => {
            noteNews(run)
            reject(new EventExpired(key))
          }),
        )
      })
    }
    if (events.has(key)) return take(events.get(key))
    const due = run.record.deadline(name)
    wakers.set(name, () => take(events.get(key)))
    run.turn.listen(name)
    if (due === undefined) return
    if (isOver(run, due)) expire()
    else closeHookAt(run, name, due, expire)
  })
}

/** Calls `then` when the write is done, unless the run has ended; the run does not end before that. */
function whileBusy(run: RunState, written: Promise<void>, then: () => void): void {
  const settled = run.turn.busy()
  const failed = (error: unknown): void =>
    run.turn.refuse(
      error instanceof RondoError ? error : new RondoError('SERVER_INTERNAL', undefined, { cause: error }),
    )
  written
    .then(() => {
      if (!run.turn.ended()) then()
    })
    .catch(failed)
    .finally(settled)
}

/** An event from outside has arrived while the handler runs. Returns false if the run is over. */
export function eventArrived(run: RunState, key: string, event: unknown): boolean {
  if (run.turn.ended()) return false
  const { events, wakers } = arrivingOf(run)
  events.set(key, event)
  wakers.get(eventName(key))?.()
  return true
}

async function read(compiled: Compiled | undefined, event: unknown): Promise<Reading> {
  if (!compiled) return { ok: true, value: event }
  const result = await compiled.validate(event)
  return result.ok
    ? { ok: true, value: result.value }
    : { ok: false, problem: describeProblems(result.problems) }
}
