/**
 * Retries of steps and effects, and the time that one attempt may take.
 *
 * retry 1: A failed attempt that will be retried is noted in the journal with the time of the next one. No replay starts the
 * count or the clock again.
 * retry 2: The handler receives the outcome of the last attempt only. Every attempt of an effect has the same key (R7).
 * retry 3: While it waits, a task is parked and a request waits like one that sleeps. A request without time left is handed
 * back, becomes a task, or ends with advice (`LIMIT_RETRY`).
 */

import { Fatal, misuse, RetryLater, RondoError, ToolError } from '../errors.ts'
import { type Duration, describeDuration, toMilliseconds } from '../lib/clock.ts'
import { defineOptions, number, type OptionsOf, unchecked } from '../options.ts'
import type { RetryOptions } from '../tool/context.ts'
import type { FailedAttempt, RetryPolicy, Sleeping } from './input.ts'
import { continueDuring, isA, keepMarks, type RunState, read } from './run-state.ts'
import { createRunSignal } from './signal.ts'
import { checkDuration, isOver, resumeAt } from './wait.ts'

const RETRY_OPTIONS = defineOptions('retry', {
  times: number(3, { whole: true, max: 1_000 }),
  delay: unchecked<Duration>('1 s'),
  factor: number(2, { min: 1, finite: true }),
  maxDelay: unchecked<Duration>('1 min'),
} satisfies OptionsOf<RetryOptions>)

/** Checks the option `retry`. `of` names the step or effect. */
export function readRetry(given: RetryOptions | undefined, of: string): RetryPolicy | undefined {
  if (given === undefined) return undefined
  const { times, factor, delay, maxDelay } = RETRY_OPTIONS.read(given, `The option retry of ${of}`)
  return {
    times,
    factor,
    delayMs: checkDuration(`The option retry.delay of ${of}`, delay),
    maxDelayMs: checkDuration(`The option retry.maxDelay of ${of}`, maxDelay),
  }
}

/** Checks the option `timeout`. A timeout of 0 would fail every attempt. */
export function readTimeout(given: Duration | undefined, of: string): number | undefined {
  if (given === undefined) return undefined
  const ms = checkDuration(`The option timeout of ${of}`, given)
  if (ms === 0) throw misuse(`The option timeout of ${of} must be more than 0. Leave it out for no limit.`)
  return ms
}

/** Returns the delay after this attempt, counted from 1, has failed; undefined if that was the last one. */
export function delayAfter(
  { times, delayMs, factor, maxDelayMs }: RetryPolicy,
  attempt: number,
  thrown: unknown,
  now: number,
): number | undefined {
  if (attempt > times || isA(ToolError, thrown) || isA(Fatal, thrown)) return undefined
  const grown = delayMs === 0 ? 0 : Math.ceil(Math.min(maxDelayMs, delayMs * factor ** (attempt - 1)))
  return isA(RetryLater, thrown) ? (delayOf(thrown, now) ?? grown) : grown
}

/** The delay that an error asks for; undefined if it is not a time, as after a header that could not be read. */
function delayOf(later: RetryLater, now: number): number | undefined {
  const ms = read(() => {
    const { after } = later
    return after instanceof Date ? Math.max(0, after.getTime() - now) : after
  })
  return toMilliseconds(ms)
}

/** Notes a failed attempt, and calls `begin` when it is time for the next one. */
export function retryLater(run: RunState, failed: FailedAttempt, begin: () => void): void {
  const { key, attempt, due } = failed
  run.record.noteAttempt(key, attempt, due)
  continueDuring(run, run.persistAttempt?.(key, attempt, due))
  run.trace?.retried?.(key, attempt)
  run.onRetry?.(failed)
  waitToRetry(run, failed, begin)
}

/** Continues the wait of an earlier run. */
export function resumeRetry(
  run: RunState,
  { due, ...failed }: Pick<FailedAttempt, 'kind' | 'key' | 'due'>,
  begin: () => void,
): void {
  const { parks, inlineMs, beyond } = run.sleeping()
  const hasToWaitHere = !parks && beyond !== 'leave'
  // A longer wait would not be in the journal of such a request: the clock that fixed its end is ahead of this one.
  const latest = hasToWaitHere ? run.platform.now() + inlineMs : due
  waitToRetry(run, { ...failed, due: Math.min(due, latest) }, begin)
}

/** Calls `begin` when the next attempt is due, unless the run cannot wait until then. */
function waitToRetry(
  run: RunState,
  { kind, key, due }: Pick<FailedAttempt, 'kind' | 'key' | 'due'>,
  begin: () => void,
): void {
  if (isOver(run, due)) return begin()
  const sleeping = run.sleeping()
  const left = due - run.platform.now()
  if (sleeping.skip && !run.frozen) {
    sleeping.skip(left)
    return begin()
  }
  switch (placeToWait(sleeping, due, left)) {
    case 'here':
      return resumeAt(run, key, due, begin)
    case 'next round':
      return resumeAt(run, key, due, begin, true)
    case 'task':
      return run.turn.enqueue({ key, leaving: true, begin: () => {} })
    case 'nowhere':
      return run.turn.refuse(tooLong(sleeping, `${kind} "${key}"`, left))
  }
}

function placeToWait(
  { parks, inlineMs, beyond, until = Number.POSITIVE_INFINITY, round }: Sleeping,
  due: number,
  left: number,
): 'here' | 'task' | 'next round' | 'nowhere' {
  if (parks) return due < until ? 'here' : 'nowhere'
  const fits = left <= Math.min(inlineMs, round?.ms ?? Number.POSITIVE_INFINITY)
  if (fits && due <= (round?.until ?? Number.POSITIVE_INFINITY)) return 'here'
  if (beyond === 'leave') return 'task'
  return fits && round?.handsBack ? 'next round' : 'nowhere'
}

function tooLong({ parks, inlineMs, beyond, round }: Sleeping, what: string, left: number): RondoError {
  const wait = describeDuration(left)
  const longest = describeDuration(Math.min(inlineMs, round?.ms ?? Number.POSITIVE_INFINITY))
  const bound = parks
    ? 'no task of this server lives that long. Raise tasks.maxTtlMs, or retry sooner.'
    : `a request waits for at most ${longest}. ${beyond}`
  const detail = `The ${what} failed and can be retried in ${wait}, but ${bound} Call the tool again in ${wait}.`
  return new RondoError('LIMIT_RETRY', detail)
}

/**
 * Runs one attempt with its signal. After `ms` it counts as failed and its signal fires; whatever it does from then on is
 * ignored, and an operation that it calls is still refused.
 */
export function attemptWithin(
  run: RunState,
  label: string,
  ms: number | undefined,
  act: (signal: () => AbortSignal) => unknown,
): unknown {
  if (ms === undefined) return act(run.signal)
  const signal = createRunSignal(run.line, (error) => run.onAsideError?.(error))
  return new Promise((resolve, reject) => {
    const expire = (): void => reject(timedOut(label, ms))
    const cancel = run.platform.after(ms, expire)
    const attempt = async (): Promise<unknown> => act(signal.get)
    const settled = keepMarks(run.platform.scope)
    attempt()
      .then(resolve, reject)
      .finally(() => {
        cancel()
        settled()
      })
  }).finally(signal.abort)
}

function timedOut(label: string, ms: number): Error {
  const error = new Error(`The ${label} did not settle within ${describeDuration(ms)}.`)
  error.name = 'TimeoutError'
  return error
}
