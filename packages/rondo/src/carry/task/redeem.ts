/**
 * The turn of an alarm: undoes a call that expired, was cancelled or failed (`../undo.ts`). The handler runs twice: first against
 * the recorded journal, in which nothing new may run, to collect its undo functions; then these run, each recorded and retried.
 *
 * An effect that a changed program no longer reaches cannot be undone: the alarm fails and stays listed for operators.
 */

import { RondoError } from '../../errors.ts'
import type { Entry, Journal } from '../../journal/journal.ts'
import { type StoreClock, storeClock } from '../../lib/clock.ts'
import {
  FOREGROUND,
  type Hooks,
  type ReplayInput,
  type RetryPolicy,
  type Undoing,
} from '../../replay/input.ts'
import { replay } from '../../replay/replay.ts'
import type { TaskTurn, TaskTurnOutcome } from '../../store/task-engine.ts'
import { isOpen } from '../../store/task-engine.ts'
import type { Target } from '../../tool/target.ts'
import type { Round } from '../carrier.ts'
import type { FlowHost, TaskHost } from '../host.ts'
import { type HeldPermit, takePermit, withPermit } from '../permit.ts'
import { toReplayInput } from '../round.ts'
import {
  changeGuard,
  type Guard,
  type GuardRecord,
  guardOf,
  leftToUndo,
  mayRun,
  readGuard,
  removeGuard,
  reportUndo,
  undoingIn,
  WAKE,
  withTried,
} from '../undo.ts'
import { approvalsOf } from './approve.ts'
import { foldRecords, openPiece, sealPiece, type TaskPlan, type TaskRecord, toFlowCall } from './journal.ts'

/** Nobody waits any more: about a day of attempts. */
const RETRY: RetryPolicy = { times: 30, delayMs: 1_000, factor: 2, maxDelayMs: 3_600_000 }

/** The delay before the next turn while it is unknown whether an undo has run. */
const UNCERTAIN_MS = 5_000

type UndoPlan = NonNullable<TaskPlan['undo']>

interface Alarm {
  readonly host: FlowHost
  readonly tasks: TaskHost
  readonly turn: TaskTurn
  readonly plan: TaskPlan & { readonly undo: UndoPlan }
  readonly guard: Guard
  /** Renews the permit. */
  readonly clock: StoreClock
}

/** Runs a turn of the alarm. `find` returns the tool, or nothing while this instance does not have it. */
export async function redeem(
  host: FlowHost,
  tasks: TaskHost,
  turn: TaskTurn,
  plan: TaskPlan & { readonly undo: UndoPlan },
  target: Target,
  clock: StoreClock = storeClock,
): Promise<TaskTurnOutcome> {
  const guard = guardOf(host, plan.seed, plan.undo.lineage)
  const alarm = { host, tasks, turn, plan, guard, clock }
  const record = await readGuard(host, guard)
  const standing = await standingOf(alarm, record)
  if (standing.kind === 'open') {
    const { until } = standing
    // An operator has retried the task: from its next end on, the alarm waits again for effects that are running.
    if (record?.since !== undefined)
      await changeGuard(host, guard, tasks.maxTtlMs, (now) => now && { ...now, since: until })
    return park(alarm, until, record?.task !== undefined)
  }
  if (standing.kind === 'well') {
    const tried = record && withTried(record.journal)
    if (tried && leftToUndo(tried).length > 0) return undo(alarm, target, tried)
    // The round that became the task comes again if its reply was lost, and must not begin what `ctx.undo()` has undone.
    if (!tried?.begun?.length) await removeGuard(host, guard)
    return complete(alarm, [])
  }
  const now = await changeGuard(host, guard, tasks.maxTtlMs, (current) =>
    current?.phase === 'open' ||
    (current?.task && current.phase === 'ended') ||
    (current?.since !== undefined && current.since > turn.claimedAt)
      ? { ...current, phase: 'undoing', since: turn.claimedAt }
      : undefined,
  )
  if (now?.phase !== 'undoing') return complete(alarm, [])
  const waitMs = (now.since ?? Number.NEGATIVE_INFINITY) + 2 * host.leaseMs - turn.claimedAt
  // Undone before it ends, an effect would stay.
  if (waitMs > 0 && mayRun(now.journal)) return { kind: 'release', delayMs: Math.min(waitMs, AWAIT_MS) }
  return undo(alarm, target, now.journal)
}

/** How often the alarm looks whether an effect that was running has ended. */
const AWAIT_MS = 1_000

type Standing =
  /** The call may still end well, until it expires. */
  { readonly kind: 'open'; readonly until: number } | { readonly kind: 'well' } | { readonly kind: 'failed' }

/** How the call stands: a task ended as the store says, a call in rounds as its record says. */
async function standingOf(
  { host, tasks, turn, plan }: Alarm,
  record: GuardRecord | undefined,
): Promise<Standing> {
  const { phase, task } = record ?? {}
  const isUndone = phase === 'undoing' || phase === 'undone'
  if (!task) {
    if (isUndone) return { kind: 'failed' }
    if (phase === 'ended') return { kind: 'well' }
    const { expires: until } = plan.undo
    if (turn.claimedAt < until) return { kind: 'open', until }
    return { kind: record ? 'failed' : 'well' }
  }
  // A task that is open undoes by itself; its end rings.
  const view = await tasks.engine.get(task.id, task.owner)
  if (view && isOpen(view.status)) return { kind: 'open', until: view.expiresAt }
  // Read after the task, which could otherwise end well in between and look like one that failed.
  const ended = (await host.store?.alarms?.ended(task.id)) ?? view?.status
  if (ended !== undefined) return { kind: ended === 'completed' && !isUndone ? 'well' : 'failed' }
  // The record names a task that a call in rounds becomes before the task is created.
  const isEarly = isFirst(turn)
  return isEarly ? { kind: 'open', until: turn.claimedAt + LOOK_AGAIN_MS } : { kind: 'failed' }
}

/** The alarm has not parked yet. */
const isFirst = (turn: TaskTurn): boolean => !turn.slots().some(({ key }) => key === WAKE)

/** The task may end, or not be there yet, while the alarm parks for the first time, so the alarm looks again. */
const LOOK_AGAIN_MS = 2_000

function park({ host, tasks, turn }: Alarm, until: number, hasTask: boolean): TaskTurnOutcome {
  const isNew = isFirst(turn)
  const inputs = new Map(isNew ? [[WAKE, sealPiece(host, turn.task, `input ${WAKE}`, true)]] : [])
  const wakeAt = isNew && hasTask ? Math.min(until, turn.claimedAt + LOOK_AGAIN_MS) : until
  return { kind: 'park', inputs, wakeAt, liveUntil: until + tasks.ttlMs }
}

function complete({ host, turn }: Alarm, undone: readonly string[]): TaskTurnOutcome {
  return { kind: 'complete', result: sealPiece(host, turn.task, 'result', { undone }) }
}

async function undo(alarm: Alarm, target: Target, recorded: Journal): Promise<TaskTurnOutcome> {
  const { host, tasks, turn, clock } = alarm
  const records = turn.journal.map((one) => openPiece<TaskRecord>(host, tasks, turn.task, 'record', one))
  const own = foldRecords(records)
  const round = toRound(alarm, target, withOwn(recorded, own))
  const permits = host.store?.permits
  if (!target.concurrency || !permits) return undoHolding(alarm, round, recorded)
  // The call usually holds its permit still. Otherwise its undo waits for one, like any other call of the key.
  const taken = await takePermit(round, { ...target.concurrency, queues: true }, permits, clock)
  if (taken.kind !== 'held')
    return { kind: 'release', delayMs: taken.kind === 'queued' ? taken.delayMs : taken.retryMs }
  try {
    return await undoHolding(alarm, round, recorded, taken.permit)
  } finally {
    taken.permit.stop()
  }
}

/** `permit`: that of the call, if its tool has `concurrency`. */
async function undoHolding(
  alarm: Alarm,
  round: Round,
  recorded: Journal,
  permit?: HeldPermit,
): Promise<TaskTurnOutcome> {
  const { tasks, turn, plan } = alarm
  const { journal } = round.beginning
  const left = leftToUndo(journal)
  const prepared = await round.target.prepare(plan.call.args)
  if (prepared.kind === 'refused')
    return left.length > 0 ? leave(alarm, round, [], left) : finish(alarm, round, [])
  const own = toInput(alarm, round, prepared.run, journal)
  const input = permit ? withPermit(own, permit) : own
  // Against the journal as it is: a handler gets past an undo that failed only if it sees that failure.
  const found = await replay({ ...input, journal: recorded, frozen: true })
  const report = await replay({ ...input, undoes: found.undoable.filter(({ key }) => left.includes(key)) })
  const { ending } = report
  if (turn.signal.aborted) return { kind: 'release' }
  if (ending.kind === 'sleeping') {
    await permit?.hold(ending.wakeAt - turn.claimedAt)
    return {
      kind: 'park',
      inputs: new Map(),
      wakeAt: ending.wakeAt,
      liveUntil: ending.wakeAt + tasks.ttlMs,
    }
  }
  if (ending.kind === 'refused') {
    // The permit was lost, or the store is away: that is no failure of the alarm.
    if (ending.error.code.startsWith('STORE_')) return { kind: 'release', delayMs: UNCERTAIN_MS }
    throw ending.error
  }
  if (ending.kind !== 'returned') return { kind: 'release' }
  await permit?.release()
  const failed = leftToUndo(report.journal)
  const undone = left.filter((key) => !failed.includes(key))
  if (failed.length > 0) return leave(alarm, round, undone, failed)
  return finish(alarm, round, undone)
}

/** Nothing is left to undo. */
async function finish(alarm: Alarm, round: Round, undone: readonly string[]): Promise<TaskTurnOutcome> {
  const { host, tasks, guard } = alarm
  reportUndo(round, { undone, failed: [] })
  await changeGuard(host, guard, tasks.maxTtlMs, (now) =>
    now?.phase === 'undoing' ? { ...now, phase: 'undone' } : undefined,
  )
  return complete(alarm, undone)
}

/** Ends the alarm as failed: an operator finds it among the tasks, and its record stays as long. */
function leave(
  { host, turn }: Alarm,
  round: Round,
  undone: readonly string[],
  failed: readonly string[],
): TaskTurnOutcome {
  reportUndo(round, { undone, failed })
  const { rpc: code } = new RondoError('SERVER_INTERNAL')
  const message = `Could not be undone: ${failed.join(', ')}`
  return { kind: 'fail', error: sealPiece(host, turn.task, 'error', { code, message, data: { undone } }) }
}

/** The journal of the call, with what earlier turns of the alarm did. An undo that failed, in the call or in an alarm that an operator retries, is tried again. */
function withOwn(recorded: Journal, own: ReturnType<typeof foldRecords>): Journal {
  const isLeft = (entry: Entry): boolean => entry.kind === 'undo' && 'failure' in entry
  const before = recorded.entries.filter((entry) => !isLeft(entry))
  const known = new Set(before.map(({ key }) => key))
  return {
    ...recorded,
    entries: [...before, ...own.entries.filter((entry) => !known.has(entry.key) && !isLeft(entry))],
    attempts: own.attempts,
    deadlines: own.deadlines,
  }
}

function toRound({ host, turn, plan }: Alarm, target: Target, journal: Journal): Round {
  const { signal } = turn
  return {
    host,
    call: toFlowCall(plan, turn.task.id),
    target,
    principal: plan.principal,
    line: {
      notify: () => {},
      get closed() {
        return signal.aborted
      },
      onClose(listener) {
        signal.addEventListener('abort', listener, { once: true })
        return () => signal.removeEventListener('abort', listener)
      },
    },
    task: { task: turn.task.id, turn: turn.number },
    beginning: {
      flow: plan.flow,
      round: plan.round,
      journal,
      asked: {},
      flowExpires: plan.undo.expires,
      anchored: true,
      sealedVersion: plan.toolVersion,
    },
    began: host.platform.now(),
  }
}

/** In the first of the two runs nothing is opened or closed. */
const NO_HOOKS: Hooks = { open: () => new Promise(() => {}), close: async () => {} }

function toInput(alarm: Alarm, round: Round, handler: ReplayInput['handler'], journal: Journal): ReplayInput {
  const { host, tasks, turn, plan } = alarm
  const input = toReplayInput(round, handler)
  const ahead = turn.claimedAt - input.platform.now()
  const note = (record: TaskRecord): Promise<void> =>
    turn.record(sealPiece(host, turn.task, 'record', record))
  return {
    ...input,
    journal,
    incoming: { ...input.incoming, answers: undefined },
    platform: { ...input.platform, now: () => input.platform.now() + ahead },
    undoing: { ...(undoingIn(round, true) as Undoing), retry: RETRY },
    background: FOREGROUND,
    hooks: NO_HOOKS,
    approvals: approvalsOf({ host, plan, target: round.target, task: turn.task.id }),
    sleeping: () => ({
      parks: true,
      inlineMs: 0,
      beyond: 'leave',
      until: turn.claimedAt + tasks.maxTtlMs,
    }),
    mayMove: () => (turn.draining.aborted || turn.signal.aborted ? 'drain' : undefined),
    persist: (entry) => note({ entry }),
    persistAttempt: (key, count, due) => note({ attempt: { key, count, due } }),
  }
}
