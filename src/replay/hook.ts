/**
 * The way of an event from outside through a run. `ctx.hook` opens a hook like a step and records its id, which is then the same
 * on every replay; `received()` resolves with the recorded event, records one that has arrived, or waits for it.
 *
 * hook 1: A hook is durable before the handler has its id, so that no event comes too early.
 * hook 2: An event is recorded before the handler sees it. One that does not fit the schema is recorded too: the hook
 * took it, and every replay sees the same refusal.
 */

import { EventRejected } from '../errors.ts'
import type { Found, WorkEntry } from '../journal/journal.ts'
import type { JsonSchema } from '../protocol/wire.ts'
import type { Hook, HookOptions, Schema } from '../tool/context.ts'
import { type Compiled, compileEvent, describeProblems } from '../tool/schema/schema.ts'
import { whenRead } from './ask.ts'
import type { Reading } from './question.ts'
import {
  append,
  type Background,
  needsTask,
  noteNews,
  noteReplayed,
  operate,
  type RunState,
  takeName,
} from './run-state.ts'
import { copyJson, work } from './work.ts'

/** Opens hooks, where that is possible: in a task. */
export interface Hooks {
  /** Resolves with the id of the hook when it is durable. Opening it again has no effect. */
  open(key: string, schema: JsonSchema | undefined): Promise<string>
}

export async function openHook(
  run: RunState,
  { hooks, background }: { readonly hooks?: Hooks; readonly background: Background },
  key: string,
  options: HookOptions<Schema> = {},
): Promise<Hook<unknown>> {
  const { schema } = options
  const compiled = schema === undefined ? undefined : compileEvent(schema, run.limits)
  if (!hooks) return leaveFor(run, background, key)
  const id = (await work(run, 'hook', key, () => hooks.open(key, compiled?.json))) as string
  return createHook(run, key, id, compiled)
}

/** Continues as a task, where the handler comes here again; ends the call if it cannot. */
function leaveFor(run: RunState, { possible, whyNot = needsTask }: Background, key: string): Promise<never> {
  if (possible) run.turn.enqueue({ key, strict: false, passing: true, leaving: true, begin: () => {} })
  else run.turn.refuse(whyNot(`the hook "${key}"`))
  return new Promise(() => {})
}

function createHook(run: RunState, key: string, id: string, compiled: Compiled | undefined): Hook<unknown> {
  let received: Promise<unknown> | undefined
  return {
    id,
    received() {
      received ??= operate(run, `event of the hook "${key}"`, () => receive(run, key, compiled))
      return received
    },
  }
}

/** The name under which the event of a hook is recorded. */
function eventName(key: string): string {
  return `${key}.received`
}

function receive(run: RunState, key: string, compiled: Compiled | undefined): Promise<unknown> {
  const name = eventName(key)
  return new Promise((resolve, reject) => {
    if (!takeName(run, name, 'event')) return
    const settle = (reading: Reading): void =>
      reading.ok ? resolve(reading.value) : reject(new EventRejected(key, reading.problem))
    const found = run.record.find(name) as (Found & { readonly entry: WorkEntry }) | undefined
    if (found) {
      const { index, entry } = found
      const event = 'value' in entry ? copyJson(entry.value) : undefined
      run.tally.replayed += 1
      whenRead(run, read(compiled, event), index, (reading) =>
        run.turn.deliver(index, entry.at, () => {
          noteReplayed(run)
          settle(reading)
        }),
      )
      return
    }
    const take = (event: unknown): void => {
      run.arrivals.delete(name)
      run.turn.heard(name)
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
    if (run.events.has(key)) return take(run.events.get(key))
    run.arrivals.set(name, () => take(run.events.get(key)))
    run.turn.listen(name)
  })
}

/** An event from outside has arrived while the handler runs. Returns false if the run is over. */
export function eventArrived(run: RunState, key: string, event: unknown): boolean {
  if (run.turn.ended()) return false
  run.events.set(key, event)
  run.arrivals.get(eventName(key))?.()
  return true
}

function read(compiled: Compiled | undefined, event: unknown): Reading | Promise<Reading> {
  if (!compiled) return { ok: true, value: event }
  const result = compiled.validate(event)
  const toReading = (settled: Awaited<typeof result>): Reading =>
    settled.ok
      ? { ok: true, value: settled.value }
      : { ok: false, problem: describeProblems(settled.problems) }
  return result instanceof Promise ? result.then(toReading) : toReading(result)
}
