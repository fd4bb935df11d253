/**
 * Runs a handler against a journal until it ends or has to wait. Does no I/O: clock, digests, idle moments and the line to
 * the client are parameters.
 *
 * R8 A suspended handler is dropped: `ctx.signal` fires, `ctx.defer` functions run, its `catch` and `finally` do not.
 */

import { RondoError } from '../errors.ts'
import { createRecord } from '../journal/journal.ts'
import { keepSolicited } from './ask.ts'
import { createContext, runDeferred } from './context.ts'
import { eventArrived } from './hook.ts'
import type { ReplayInput } from './input.ts'
import {
  answerArrived,
  type Ending,
  type MoveReason,
  notAwaited,
  publishQuestions,
  type RunReport,
  type RunState,
} from './run-state.ts'
import { createRunSignal, type RunSignal } from './signal.ts'
import { createTurn } from './turn.ts'
import { earliest, rest, stopTimers } from './wait.ts'

export async function replay(input: ReplayInput): Promise<RunReport> {
  const signal = createRunSignal(input.line, (error) => input.onAsideError?.(error))
  const run = createRun(input, signal)
  keepSolicited(run)
  input.onArrival?.((arrived) =>
    'hook' in arrived
      ? eventArrived(run, arrived.hook, arrived.value)
      : answerArrived(run, arrived.question, arrived),
  )
  start(run)
  const ending = await run.turn.ending
  signal.abort()
  if (run.waits?.size || run.alarm) stopTimers(run)
  if (run.deferred.length > 0) await runDeferred(run)
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
    ...input,
    turn: createTurn({
      startedAt: input.journal.startedAt,
      idle: input.platform.idle,
      anchored: input.anchored ?? input.incoming.anchored,
      frozen: input.frozen,
      mayMove,
      publish: (questions) => publishQuestions(run, questions),
      rest: () => (run.waits?.size ? rest(run, mayMove) : undefined),
    }),
    record: createRecord(input.journal),
    roundAt: input.platform.now(),
    names: new Map(),
    operations: input.unwatched ? undefined : [],
    floating: new Set(),
    unread: new Set(),
    received: new Map(),
    deferred: [],
    tally,
    signal: signal.get,
  }
  return run
}

function start(run: RunState): void {
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
  const call = async (): Promise<unknown> => run.handler(createContext(run))
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
