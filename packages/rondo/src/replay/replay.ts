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
import { undoEach } from './undo.ts'
import { earliest, rest, stopTimers } from './wait.ts'

const NOTHING: readonly never[] = []

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
  stopTimers(run)
  if (run.deferred.length > 0) await runDeferred(run)
  return {
    ending: bounded(ending, run),
    journal: run.record.toJournal(),
    operations: run.operations ?? [],
    replayed: run.tally.replayed,
    executed: run.tally.executed,
    undoable: run.undoable ? [...run.undoable.values()] : NOTHING,
    labels: run.labels,
  }
}

/** Every property of `T`, those that are optional too: one that is forgotten is an error of types. */
type Each<T> = { readonly [Key in keyof Required<T>]: T[Key] }

/**
 * Copies the input property by property: with a spread, V8 gives each run a shape of its own, and then a call takes 1.6
 * times the CPU time.
 */
function createRun(input: ReplayInput, signal: RunSignal): RunState {
  const past = input.journal.entries.length + (input.incoming.resumed ? 1 : 0)
  const tally = { replayed: 0, executed: 0, drawn: 0, progress: Number.NEGATIVE_INFINITY, past }
  const mayMove = (): MoveReason | undefined => input.mayMove(tally.executed)
  const run: RunState & Each<ReplayInput> = {
    handler: input.handler,
    journal: input.journal,
    incoming: input.incoming,
    flow: input.flow,
    round: input.round,
    principal: input.principal,
    client: input.client,
    protocolVersion: input.protocolVersion,
    line: input.line,
    progressToken: input.progressToken,
    logLevel: input.logLevel,
    background: input.background,
    hooks: input.hooks,
    approvals: input.approvals,
    once: input.once,
    admit: input.admit,
    undoing: input.undoing,
    labelling: input.labelling,
    undoes: input.undoes,
    inputResponses: input.inputResponses,
    requestState: input.requestState,
    relatedTaskIds: input.relatedTaskIds,
    meta: input.meta,
    platform: input.platform,
    limits: input.limits,
    mayMove: input.mayMove,
    anchored: input.anchored,
    trace: input.trace,
    onOutrun: input.onOutrun,
    unwatched: input.unwatched,
    frozen: input.frozen,
    observed: input.observed,
    persist: input.persist,
    persistDeadline: input.persistDeadline,
    persistAttempt: input.persistAttempt,
    persistBegun: input.persistBegun,
    onRetry: input.onRetry,
    sleeping: input.sleeping,
    onArrival: input.onArrival,
    publish: input.publish,
    withdraw: input.withdraw,
    onAsideError: input.onAsideError,
    turn: createTurn({
      startedAt: input.journal.startedAt,
      idle: input.platform.idle,
      anchored: input.anchored ?? input.incoming.anchored,
      linear: input.undoing && 'isLinear' in input.undoing && input.undoing.isLinear,
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
  const call = async (): Promise<unknown> =>
    run.undoes ? undoEach(run, run.undoes) : run.handler(createContext(run))
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
