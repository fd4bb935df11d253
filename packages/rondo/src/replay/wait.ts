/**
 * Time in a run: sleeps, and questions that are open only for a while.
 *
 * wait 1: When such an operation is first opened, its end is fixed in the journal. No replay starts the clock again.
 * wait 2: What ended by itself is recorded like any other result, so that every later run sees the same order of events.
 * wait 3: In a frozen run (development mode's second one) nothing ends by itself.
 *
 * While other work runs, a timer of this run ends what is due. When only sleeps are left, the carrier decides: a task is
 * parked until the first of them is over, a request waits.
 */

import { misuse, RondoError } from '../errors.ts'
import type { AskEntry } from '../journal/journal.ts'
import { type Duration, describeDuration, toMilliseconds } from '../lib/clock.ts'
import type { Sleeping } from './input.ts'
import {
  append,
  continueDuring,
  type Ending,
  noteNews,
  noteReceived,
  noteReplayed,
  type RunState,
  takeName,
  type Wait,
} from './run-state.ts'

const DAY_MS = 86_400_000
/** No task lives longer. */
const MAX_DAYS = 366

/** Throws if `duration` is not a span of time that something can take. `what` begins the message. */
export function checkDuration(what: string, duration: unknown): number {
  const ms = toMilliseconds(duration)
  if (ms === undefined) {
    const got = typeof duration === 'string' ? JSON.stringify(duration) : String(duration)
    throw misuse(
      `${what} must be a number of milliseconds of 0 or more, or text such as '90 s' or '3 days'; got ${got}.`,
    )
  }
  if (ms > MAX_DAYS * DAY_MS) {
    throw misuse(`${what} may be at most ${MAX_DAYS} days, because no task lives longer; got ${duration}.`)
  }
  return ms
}

/** Throws if `date` is not a time. One in the past is fine: the sleep is over at once. */
function checkDate(date: unknown): number {
  const at = date instanceof Date ? date.getTime() : typeof date === 'string' ? Date.parse(date) : date
  if (typeof at === 'number' && Number.isFinite(at)) return Math.max(0, Math.ceil(at))
  throw misuse(
    `ctx.sleepUntil takes a Date, a number of milliseconds since 1970, or an ISO date; got ${String(date)}.`,
  )
}

export function sleepFor(run: RunState, key: string, duration: Duration): Promise<void> {
  const ms = checkDuration('The time of ctx.sleep', duration)
  return sleep(run, key, (now) => now + ms)
}

export function sleepUntil(run: RunState, key: string, date: Date | number | string): Promise<void> {
  const at = checkDate(date)
  return sleep(run, key, (now) => {
    if (at > now + MAX_DAYS * DAY_MS)
      throw misuse(`ctx.sleepUntil takes a date of at most ${MAX_DAYS} days from now: no task lives longer.`)
    return at
  })
}

function sleep(run: RunState, key: string, toDue: (now: number) => number): Promise<void> {
  return new Promise((resolve) => {
    if (!takeName(run, key, 'sleep')) return
    const found = run.record.find(key)
    if (found) {
      run.tally.replayed += 1
      return run.turn.deliver(found.index, found.entry.at, () => {
        noteReplayed(run)
        resolve()
      })
    }
    const end = (at: number): void =>
      append(run, { kind: 'sleep', key, at }, (index) =>
        run.turn.deliver(index, at, () => {
          noteNews(run)
          resolve()
        }),
      )
    const sleeping = run.sleeping()
    // The clock that fixed the deadline may be ahead of this one: a sleep never takes longer here than it was meant to.
    const due = Math.min(fixDeadline(run, key, toDue).due, toDue(run.platform.now()))
    const left = due - run.platform.now()
    if (isOver(run, due)) return end(run.platform.now())
    if (sleeping.skip && !run.frozen) {
      sleeping.skip(left)
      return end(due)
    }
    if (outlivesTask(run, `The tool sleeps ("${key}")`, due)) return
    const refusal = whyNot(sleeping, key, left)
    if (refusal) return run.turn.refuse(refusal)
    if (!sleeping.parks && left > sleeping.inlineMs)
      return run.turn.enqueue({ key, leaving: true, begin: () => {} })
    expect(run, key, { kind: 'sleep', due, end })
  })
}

function whyNot({ parks, inlineMs, beyond }: Sleeping, key: string, left: number): RondoError | undefined {
  if (parks || left <= inlineMs || beyond === 'leave') return undefined
  const wait = `The tool sleeps for ${describeDuration(left)} ("${key}"), and a request waits for at most ${describeDuration(inlineMs)}.`
  return new RondoError('LIMIT_SLEEP', `${wait} ${beyond}`)
}

/** Ends the run and returns true if the wait ends after its task: nobody would be there to notice. `what` begins the message. */
export function outlivesTask(run: RunState, what: string, due: number): boolean {
  const { until } = run.sleeping()
  if (until === undefined || due < until) return false
  const left = describeDuration(due - run.platform.now())
  const detail = `${what} for ${left}, and no task of this server lives that long. Raise tasks.maxTtlMs, or wait for less.`
  run.turn.refuse(new RondoError('LIMIT_SLEEP', detail))
  return true
}

/** Opens a question that closes by itself; `end` is called when its time is up. */
export function closeQuestionAt(run: RunState, key: string, due: number, end: (at: number) => void): void {
  expect(run, key, { kind: 'question', due, end })
}

/** The outcome of a question whose time is up. */
export const EXPIRED = { action: 'expired' } as const

/** Closes a question whose time is up, and records that. */
export function expireQuestion(run: RunState, entry: AskEntry, resolve: (value: unknown) => void): void {
  const { key, at } = entry
  run.turn.close(key)
  append(run, entry, (index) =>
    run.turn.deliver(index, at, () => {
      noteNews(run)
      noteReceived(run, key, EXPIRED)
      resolve(EXPIRED)
    }),
  )
}

/** True if the time of a question that has no answer is up. An answer that came in time counts, however long it had to wait. */
export function isTooLate(run: RunState, key: string): boolean {
  const due = run.record.deadline(key)
  return due !== undefined && isOver(run, due)
}

/** Opens a hook that closes by itself; `end` is called when its time is up. */
export function closeHookAt(run: RunState, name: string, due: number, end: (at: number) => void): void {
  expect(run, name, { kind: 'hook', due, end })
}

/** Calls `begin` when a step is retried. `elsewhere`: a run that waits for nothing else hands the call back. */
export function resumeAt(run: RunState, key: string, due: number, begin: () => void, elsewhere?: true): void {
  expect(run, key, { kind: 'sleep', due, end: begin, elsewhere })
}

/** When an operation ends by itself. `written` resolves when that is durable, or when the run was refused because it is not. */
interface Deadline {
  readonly due: number
  readonly written?: Promise<void>
}

/** Returns when the operation ends by itself; fixed now if it is new. */
export function fixDeadline(run: RunState, key: string, toDue: (now: number) => number): Deadline {
  const known = run.record.deadline(key)
  if (known !== undefined) return { due: known }
  const due = toDue(run.platform.now())
  run.record.fixDeadline(key, due)
  return { due, written: continueDuring(run, run.persistDeadline?.(key, due)) }
}

/** True if the time has come, by the clock of this run. */
export function isOver(run: RunState, due: number): boolean {
  return !run.frozen && run.platform.now() >= due
}

function expect(run: RunState, key: string, wait: Wait): void {
  run.waits ??= new Map()
  run.waits.set(key, wait)
  arm(run)
  run.turn.wake()
}

/** When the first of the open operations ends by itself. */
export function earliest({ waits }: RunState, kind?: Wait['kind']): number | undefined {
  let first: number | undefined
  for (const wait of waits?.values() ?? [])
    if ((kind === undefined || wait.kind === kind) && (first === undefined || wait.due < first))
      first = wait.due
  return first
}

function arm(run: RunState): void {
  run.alarm?.()
  run.alarm = undefined
  const due = earliest(run)
  if (due === undefined || run.frozen || run.turn.ended()) return
  run.alarm = run.platform.after(Math.max(0, due - run.platform.now()), () => {
    ring(run)
    arm(run)
  })
}

/** Ends what is due, the earliest first. */
function ring(run: RunState): void {
  const now = run.platform.now()
  const due = [...(run.waits ?? [])]
    .filter(([, wait]) => wait.due <= now)
    .sort(([, a], [, b]) => a.due - b.due)
  for (const [key, wait] of due) {
    if (run.turn.ended()) return
    run.waits?.delete(key)
    wait.end(now)
  }
}

/** A request that sleeps checks this often whether its instance wants to release it. */
const CHECK_MS = 250

/** Called when nothing but sleeps may be left: returns how the run ends, or nothing if it waits or does not sleep. */
export function rest(
  run: RunState,
  mayMove: () => Extract<Ending, { kind: 'moved' }>['reason'] | undefined,
): Ending | undefined {
  const wakeAt = earliest(run, 'sleep')
  if (wakeAt === undefined) return undefined
  if (run.sleeping().parks) return { kind: 'sleeping', wakeAt }
  const reason = run.frozen ? 'drain' : (mayMove() ?? leavesFor(run, wakeAt))
  if (reason !== undefined) return { kind: 'moved', reason }
  const { now, after, rest: pause = after } = run.platform
  run.resting?.()
  run.resting = pause(Math.max(0, Math.min(wakeAt - now(), CHECK_MS)), () => {
    ring(run)
    // Work may have begun meanwhile, and the run must not end before its result is recorded.
    run.turn.wake()
  })
  return undefined
}

function leavesFor({ waits }: RunState, wakeAt: number): 'time' | undefined {
  for (const { due, elsewhere } of waits?.values() ?? []) if (due === wakeAt && elsewhere) return 'time'
  return undefined
}

/** Stops all timers of a run that has ended. */
export function stopTimers(run: RunState): void {
  run.alarm?.()
  run.resting?.()
}
