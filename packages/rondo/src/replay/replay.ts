/**
 * Runs a handler against a journal until it ends or has to wait. Does no I/O: clock, digests, idle moments and the line to
 * the client are parameters.
 *
 * R8 A suspended handler is dropped: `ctx.signal` fires, `ctx.defer` functions run, its `catch` and `finally` do not.
 */

import { RondoError } from '../errors.ts'
import { createRecord, type Entry, type Journal } from '../journal/journal.ts'
import type { Observed } from '../protocol/observer.ts'
import type { Context } from '../tool/context.ts'
import { keepSolicited } from './ask.ts'
import { createContext, type Deferred, runDeferred, type Scene } from './context.ts'
import { eventArrived } from './hook.ts'
import {
  answerArrived,
  continueDuring,
  type Ending,
  type Incoming,
  type MoveReason,
  notAwaited,
  type OpenQuestion,
  type Platform,
  type ReplayLimits,
  type RunReport,
  type RunState,
  type RunTrace,
} from './run-state.ts'
import { createRunSignal, type RunSignal } from './signal.ts'
import { createTurn } from './turn.ts'
import { earliest, rest, type Sleeping, stopTimers } from './wait.ts'

export interface ReplayInput {
  readonly handler: (ctx: Context) => unknown
  readonly journal: Journal
  readonly incoming: Incoming
  readonly scene: Scene
  readonly platform: Platform
  readonly limits: ReplayLimits
  /** Why this instance wants to release the call now, if it does; `executed` counts the work done in this round. */
  mayMove(executed: number): MoveReason | undefined
  /** The client holds the flow's id (R6). Default: if the request came with a state. */
  readonly anchored?: boolean
  readonly trace?: RunTrace
  /** In development: an effect begins that was called while a confirmation before it had no outcome. Both by their labels. */
  onOutrun?(effect: string, confirmation: string): void
  /** Nobody looks at the operations of this run: they, and the schemas of its questions, are not kept until its end. */
  readonly unwatched?: boolean
  /** Nothing new may run. */
  readonly frozen?: boolean
  /** Telemetry of this run. */
  readonly observed?: Pick<Observed, 'work' | 'replayed'>
  /** Makes an entry durable before the handler sees its result. */
  persist?(entry: Entry): Promise<void>
  /** Makes the end of an open operation durable: a sleep, a question with a time limit. */
  persistDeadline?(key: string, due: number): Promise<void>
  /** What sleeps may do in this run. */
  sleeping(): Sleeping
  /** Calls `arrival` for what arrives while the handler runs; it returns false once the run is over. */
  onArrival?(arrival: (arrived: Arrival) => boolean): void
  /** Shows questions to the client while the handler runs. Resolves when that is durable. */
  publish?(questions: ReadonlyMap<string, OpenQuestion>, journal: Pick<Journal, 'reasks'>): Promise<void>
  /** Closes an offer that was published. Resolves when that is durable. */
  withdraw?(key: string): Promise<void>
  /** A mistake of the author that the call does not end with: a failed `ctx.defer`, a listener of `ctx.signal` that throws. */
  onAsideError?(error: unknown): void
}

/** An event from outside for the hook of this key, or the answer to a question that was published. */
export type Arrival =
  | { readonly hook: string; readonly value: unknown }
  | { readonly question: string; readonly digest: string; readonly answer: unknown }

export async function replay(input: ReplayInput): Promise<RunReport> {
  const signal = createRunSignal(input.scene.line, (error) => input.onAsideError?.(error))
  const deferred: Deferred[] = []
  const run = createRun(input, signal)
  keepSolicited(run)
  input.onArrival?.((arrived) =>
    'hook' in arrived
      ? eventArrived(run, arrived.hook, arrived.value)
      : answerArrived(run, arrived.question, arrived),
  )
  start(run, input.handler, createContext(run, input.scene, deferred))
  const ending = await run.turn.ending
  signal.abort()
  if (run.waits?.size || run.alarm) stopTimers(run)
  if (deferred.length > 0) await runDeferred(run, deferred, input.onAsideError)
  return {
    ending: bounded(ending, run),
    journal: run.record.toJournal(),
    operations: run.operations ?? [],
    replayed: run.tally.replayed,
    executed: run.tally.executed,
  }
}

function createRun(input: ReplayInput, signal: RunSignal): RunState {
  const past = input.journal.entries.length + (input.incoming.resumed ? 1 : 0)
  const tally = { replayed: 0, executed: 0, drawn: 0, progress: Number.NEGATIVE_INFINITY, past }
  const mayMove = (): MoveReason | undefined => input.mayMove(tally.executed)
  const run: RunState = {
    turn: createTurn({
      startedAt: input.journal.startedAt,
      idle: input.platform.idle,
      anchored: input.anchored ?? input.incoming.anchored,
      frozen: input.frozen,
      mayMove,
      publish: (questions) => run.publish?.(questions),
      rest: () => (run.waits?.size ? rest(run, mayMove) : undefined),
    }),
    record: createRecord(input.journal),
    platform: input.platform,
    limits: input.limits,
    incoming: input.incoming,
    roundAt: input.platform.now(),
    seed: input.journal.seed,
    trace: input.trace,
    onOutrun: input.onOutrun,
    onAsideError: (error) => input.onAsideError?.(error),
    persist: input.persist,
    observed: input.observed,
    persistDeadline: input.persistDeadline,
    sleeping: () => input.sleeping(),
    frozen: input.frozen ?? false,
    names: new Map(),
    operations: input.unwatched ? undefined : [],
    floating: new Set(),
    unread: new Set(),
    received: new Map(),
    publish:
      input.publish && !input.frozen
        ? (questions) => continueDuring(run, input.publish?.(questions, run.record.toJournal()))
        : undefined,
    withdraw:
      input.withdraw && !input.frozen ? (key) => continueDuring(run, input.withdraw?.(key)) : undefined,
    listens: input.onArrival !== undefined,
    tally,
    signal: signal.get,
  }
  return run
}

function start(run: RunState, handler: ReplayInput['handler'], ctx: Context): void {
  const { turn } = run
  const leave = (): void => {
    if (!turn.ended()) run.left = 'unreported'
  }
  const threw = (error: unknown): void => {
    leave()
    turn.end({ kind: 'threw', error })
  }
  const returned = (value: unknown): void => {
    leave()
    const error = notAwaited(run)
    if (error) turn.refuse(error)
    else turn.returned(value)
  }
  const call = async (): Promise<unknown> => handler(ctx)
  call().then(returned, threw)
}

function bounded(ending: Ending, run: RunState): Ending {
  const { maxQuestions } = run.limits
  if (ending.kind !== 'asking') return ending
  if (ending.questions.size <= maxQuestions)
    return run.waits?.size ? { ...ending, wakeAt: earliest(run) } : ending
  const detail = `${ending.questions.size} questions are open at once; at most ${maxQuestions} may be (limits.maxQuestions).`
  return { kind: 'refused', error: new RondoError('LIMIT_QUESTIONS', detail) }
}
