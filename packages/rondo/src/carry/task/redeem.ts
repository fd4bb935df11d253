/**
 * The turn of an alarm: undoes a call that expired, was cancelled or failed (`../undo.ts`). The handler runs twice: first against
 * the recorded journal, in which nothing new may run, to collect its undo functions; then these run, each recorded and retried.
 *
 * An effect that a changed program no longer reaches cannot be undone: the alarm fails and stays listed for operators.
 */

import { RondoError } from '../../errors.ts'
import type { Entry, Journal } from '../../journal/journal.ts'
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
import { toReplayInput } from '../round.ts'
import {
  changeGuard,
  type Guard,
  guardOf,
  leftToUndo,
  readGuard,
  reportUndo,
  undoingIn,
  WAKE,
} from '../undo.ts'
import { approvalsOf } from './approve.ts'
import { foldRecords, openPiece, sealPiece, type TaskPlan, type TaskRecord, toFlowCall } from './journal.ts'

/** Nobody waits any more: about a day of attempts. */
const RETRY: RetryPolicy = { times: 30, delayMs: 1_000, factor: 2, maxDelayMs: 3_600_000 }

type UndoPlan = NonNullable<TaskPlan['undo']>

interface Alarm {
  readonly host: FlowHost
  readonly tasks: TaskHost
  readonly turn: TaskTurn
  readonly plan: TaskPlan & { readonly undo: UndoPlan }
  readonly guard: Guard
}

/** Runs a turn of the alarm. `find` returns the tool, or nothing while this instance does not have it. */
export async function redeem(
  host: FlowHost,
  tasks: TaskHost,
  turn: TaskTurn,
  plan: TaskPlan & { readonly undo: UndoPlan },
  target: Target,
): Promise<TaskTurnOutcome> {
  const guard = guardOf(host, plan.seed, plan.undo.lineage)
  const alarm = { host, tasks, turn, plan, guard }
  const record = await readGuard(host, guard)
  if (record?.phase === 'ended' || record?.phase === 'undone') return complete(alarm, [])
  if (record?.phase !== 'undoing') {
    const until = await expiryOf(alarm, record?.task)
    if (turn.claimedAt < until) return park(alarm, until)
    if (!record) return complete(alarm, [])
  }
  const now = await changeGuard(host, guard, tasks.maxTtlMs, (current) =>
    current?.phase === 'open' ? { ...current, phase: 'undoing' } : undefined,
  )
  return now?.phase === 'undoing' ? undo(alarm, target, now.journal) : complete(alarm, [])
}

/** When the call expires: a task as long as it lives, a call in rounds at its own time. */
async function expiryOf(
  { tasks, plan, turn }: Alarm,
  task: { readonly id: string; readonly owner: TaskTurn['task']['owner'] } | undefined,
): Promise<number> {
  if (!task) return plan.undo.expires
  const view = await tasks.engine.get(task.id, task.owner)
  return view && isOpen(view.status) ? view.expiresAt : turn.claimedAt
}

function park({ host, tasks, turn }: Alarm, until: number): TaskTurnOutcome {
  const isNew = !turn.slots().some(({ key }) => key === WAKE)
  const inputs = new Map(isNew ? [[WAKE, sealPiece(host, turn.task, `input ${WAKE}`, true)]] : [])
  return { kind: 'park', inputs, wakeAt: until, liveUntil: until + tasks.ttlMs }
}

function complete({ host, turn }: Alarm, undone: readonly string[]): TaskTurnOutcome {
  return { kind: 'complete', result: sealPiece(host, turn.task, 'result', { undone }) }
}

async function undo(alarm: Alarm, target: Target, recorded: Journal): Promise<TaskTurnOutcome> {
  const { host, tasks, turn, plan, guard } = alarm
  const records = turn.journal.map((one) => openPiece<TaskRecord>(host, tasks, turn.task, 'record', one))
  const own = foldRecords(records)
  const journal = withOwn(recorded, own)
  const round = toRound(alarm, target, journal)
  const prepared = await target.prepare(plan.call.args)
  if (prepared.kind === 'refused') return leave(alarm, round, [], leftToUndo(journal))
  const input = toInput(alarm, round, prepared.run, journal)
  const found = await replay({ ...input, frozen: true })
  const left = leftToUndo(journal)
  const report = await replay({ ...input, undoes: found.undoable.filter(({ key }) => left.includes(key)) })
  const { ending } = report
  if (turn.signal.aborted) return { kind: 'release' }
  if (ending.kind === 'sleeping')
    return {
      kind: 'park',
      inputs: new Map(),
      wakeAt: ending.wakeAt,
      liveUntil: ending.wakeAt + tasks.ttlMs,
    }
  if (ending.kind === 'refused') throw ending.error
  if (ending.kind !== 'returned') return { kind: 'release' }
  const failed = leftToUndo(report.journal)
  const undone = left.filter((key) => !failed.includes(key))
  if (failed.length > 0) return leave(alarm, round, undone, failed)
  reportUndo(round, { undone, failed })
  await changeGuard(host, guard, tasks.maxTtlMs, (now) => now && { ...now, phase: 'undone' })
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
    incoming: { ...input.incoming, answers: undefined, resumed: true },
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
