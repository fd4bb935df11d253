/**
 * What a turn of a task starts from: the call that made the task, the journal in the store, and the answers that have come
 * since it was last worked on.
 */

import type { Line } from '../protocol/call.ts'
import type { ReplayInput } from '../replay/replay.ts'
import type { Incoming } from '../replay/run-state.ts'
import type { Turn } from '../store/task-engine.ts'
import type { Context } from '../tool/context.ts'
import type { Target } from '../tool/target.ts'
import type { FlowHost, TaskHost } from './flow-host.ts'
import { type Round, toReplayInput } from './round.ts'
import { effectOnce } from './single-use.ts'
import { openPiece, sealPiece } from './task-host.ts'
import { type Folded, foldRecords, freshAnswers, type TaskRecord } from './task-journal.ts'
import { type TaskPlan, toFlowCall } from './task-plan.ts'

/** Everything about one turn that its parts need. */
export interface Work {
  readonly host: FlowHost
  readonly tasks: TaskHost
  readonly turn: Turn
  readonly plan: TaskPlan
  readonly folded: Folded
  readonly round: Round
  /** Whether this turn told its owner how it goes. */
  told: boolean
}

export function toWork(host: FlowHost, tasks: TaskHost, turn: Turn, plan: TaskPlan, target: Target): Work {
  const { task } = turn
  const records = turn.journal.map((sealed) => openPiece<TaskRecord>(host, tasks, task, 'record', sealed))
  const folded = foldRecords(records, plan.noted)
  return { host, tasks, turn, plan, folded, round: toRound(host, turn, plan, target, folded), told: false }
}

function toRound(
  host: FlowHost,
  turn: Turn,
  plan: TaskPlan,
  target: Target,
  { entries, parked }: Folded,
): Round {
  const { flow, seed, startedAt, round, toolVersion, principal, epoch } = plan
  return {
    host,
    call: toFlowCall(plan, turn.task.id),
    target,
    principal,
    line: toLine(turn.signal),
    beginning: {
      flow,
      round,
      journal: { startedAt, seed, entries, reasks: parked.reasks, moves: 0, manual: parked.manual, epoch },
      asked: {},
      flowExpires: turn.task.expiresAt,
      anchored: true,
      sealedVersion: toolVersion,
    },
    began: host.platform.now(),
  }
}

/** Nobody is on the line; it closes when nothing this turn does counts any more. */
function toLine(signal: AbortSignal): Line {
  return {
    notify: () => {},
    get closed() {
      return signal.aborted
    },
    onClose(listener) {
      signal.addEventListener('abort', listener, { once: true })
      return () => signal.removeEventListener('abort', listener)
    },
  }
}

export function toTurnInput(work: Work, handler: (ctx: Context) => unknown): ReplayInput {
  const { host, turn, round } = work
  const input = toReplayInput(round, handler)
  const incoming = { ...input.incoming, ...incomingOf(work), resumed: work.folded.resting }
  const { store } = host
  // Waiting is left to the store, where it costs nothing.
  const once: ReplayInput['scene']['once'] =
    store && ((key, branch, act) => effectOnce(round, store.once, { key, branch }, act, 0))
  const inputResponses = incoming.answers as never
  return {
    ...input,
    incoming,
    anchored: turn.task.known,
    scene: { ...input.scene, once, inputResponses, background: { possible: false, tell: tellerOf(work) } },
    mayMove: () => (turn.draining.aborted || turn.signal.aborted ? 'drain' : undefined),
    persist: async (entry) =>
      turn.record(sealPiece(host, turn.task, 'record', { entry } satisfies TaskRecord)),
  }
}

/** The answers to what was asked last; before anything was, those that came with the request that made the task. */
function incomingOf({
  host,
  tasks,
  turn,
  plan,
  folded,
}: Work): Pick<Incoming, 'answers' | 'asked' | 'unasked'> {
  if (folded.parks === 0 && plan.brought) return plan.brought
  const opened = new Map(
    Array.from(turn.answers, ([key, sealed]) => [
      key,
      openPiece(host, tasks, turn.task, `answer ${key}`, sealed),
    ]),
  )
  return freshAnswers(folded.parked, opened)
}

/** Messages are one line for people. */
const MAX_MESSAGE = 1000

function shorten(message: string): string {
  return message.length > MAX_MESSAGE ? `${message.slice(0, MAX_MESSAGE)}…` : message
}

function tellerOf(work: Work): (message: string) => void {
  const { host, turn } = work
  return (message) => {
    work.told = true
    const send = async () => turn.status(sealPiece(host, turn.task, 'message', shorten(message)))
    // A message that does not arrive changes nothing: whoever took the task tells the next one.
    send().catch(() => {})
  }
}
