/**
 * The task carrier: between turns the journal is in the store, and while a question waits nothing is held: no process,
 * no timer, no memory. A worker runs the same handler as a round would, from the top, against what was recorded.
 *
 * R6 An effect waits until the owner has shown that it knows the task's id: whoever lost the reply that named it calls again,
 * and the effect would run in two tasks. Steps and questions need not wait. R7 An entry is durable, and
 * ours, before the handler sees its result.
 */

import { RondoError } from '../../errors.ts'
import type { Line } from '../../protocol/call.ts'
import type { Reply } from '../../protocol/reply.ts'
import type { ReplayInput } from '../../replay/replay.ts'
import type { Incoming, RunReport } from '../../replay/run-state.ts'
import type { RunTurn, TaskHead, TaskTurn, TaskTurnOutcome } from '../../store/task-engine.ts'
import type { Target } from '../../tool/target.ts'
import type { FlowHost, TaskHost } from '../host.ts'
import {
  concludeRefused,
  concludeUnaskable,
  logFault,
  logRound,
  type Pause,
  type Round,
  type RoundEnd,
  runOnce,
} from '../round.ts'
import { effectOnce } from '../single-use.ts'
import {
  type Folded,
  foldRecords,
  freshAnswers,
  openPiece,
  ownerOf,
  park,
  sealPiece,
  type TaskPlan,
  type TaskRecord,
  toFlowCall,
} from './journal.ts'

export type FindTarget = (plan: TaskPlan) => Target | undefined

/** What the engine calls for each turn. */
export function createRunTurn(host: FlowHost, tasks: TaskHost, find: FindTarget): RunTurn {
  const mayComeBack = createMissingTools(host.platform.now)
  return async (turn) => {
    await host.keys.ready()
    const { task } = turn
    const plan = openPiece<TaskPlan>(host, tasks, task, 'head', task.head)
    assertOwner(host, task, plan)
    const target = find(plan)
    if (!target)
      return mayComeBack(task.id) ? leaveToOthers(host, plan) : failed(host, task, unknownTool(plan))
    return runTurn(toWork(host, tasks, turn, plan, target))
  }
}

/** Throws where the row names another owner than the one that began the task. */
function assertOwner(host: FlowHost, { id, owner }: TaskHead, { principal }: TaskPlan): void {
  const began = ownerOf(host, principal)
  if (owner.principal === began.principal && owner.tenant === began.tenant) return
  const message = `The task ${id} is not the task of the owner that its row names`
  host.log({ event: 'warning', message })
  throw new RondoError('SERVER_INTERNAL', message)
}

/** Long enough that somebody else gets it first. */
const ELSEWHERE_MS = 10_000

function leaveToOthers(host: FlowHost, { call }: TaskPlan): TaskTurnOutcome {
  host.log({ event: 'warning', message: `A task waits for an instance that has the tool "${call.target}"` })
  return { kind: 'release', delayMs: ELSEWHERE_MS }
}

function unknownTool({ call }: TaskPlan): RondoError {
  return new RondoError('PEER_PARAMS', `Unknown tool: ${call.target}`)
}

async function runTurn(work: Work): Promise<TaskTurnOutcome> {
  const { round, turn } = work
  const end = await runOnce(round, {
    adapt: (input) => adapt(work, input),
    isAbandoned: () => turn.signal.aborted,
  })
  return settle(work, end)
}

/** What cannot be kept ends the task: another turn would not do better. A store that failed might. */
async function settle(work: Work, end: RoundEnd): Promise<TaskTurnOutcome> {
  try {
    return await toOutcome(work, end)
  } catch (error) {
    if (work.turn.signal.aborted) throw error
    if (!(error instanceof RondoError)) logFault(work.round, error)
    const known = error instanceof RondoError ? error : new RondoError('SERVER_INTERNAL')
    if (known.code.startsWith('STORE_')) throw error
    return refused(work, 'report' in end ? end.report : undefined, known)
  }
}

async function toOutcome(work: Work, end: RoundEnd): Promise<TaskTurnOutcome> {
  switch (end.kind) {
    case 'abandoned':
      return { kind: 'release' }
    case 'replied':
      return ended(work, end.reply)
    case 'refused':
      return refused(work, end.report, end.error)
    case 'background':
      logRound(work.round, end.report, { outcome: 'moved', moved: 'drain' })
      return { kind: 'release' }
    case 'paused':
      return keep(work, end)
  }
}

/** Keeps the journal in the store and the questions with it. */
async function keep(work: Work, pause: Pause): Promise<TaskTurnOutcome> {
  const { host, round, turn, folded } = work
  const { report, facts, asked, inputRequests, journal } = pause
  const isManual = report.ending.kind === 'returned'
  if (isManual && folded.parks >= host.limits.maxEntries) {
    return refused(work, report, new RondoError('LIMIT_ROUNDS'))
  }
  logRound(round, report, facts)
  if (facts.moved !== undefined) {
    if (work.told) await rest(work)
    return { kind: facts.moved === 'effect' ? 'hold' : 'release' }
  }
  const questions = Object.entries(inputRequests ?? {}).map(
    ([key, request]) => [key, { request, digest: asked[key] ?? '' }] as const,
  )
  const { inputs, record } = park(questions, journal, folded.entries, turn.answers)
  await turn.record(sealPiece(host, turn.task, 'record', record))
  // State alone: nobody is to be asked, so the next turn is due by itself, at the pace of a client (C9).
  if (questions.length === 0) return { kind: 'release', delayMs: AGAIN_MS }
  const sealed = Array.from(
    inputs,
    ([key, request]) => [key, sealPiece(host, turn.task, `input ${key}`, request)] as const,
  )
  return { kind: 'park', inputs: new Map(sealed) }
}

/** Notes that this turn came to its end, so that the next one does not tell the owner the same again. */
function rest({ host, turn }: Work): Promise<void> {
  return turn.record(sealPiece(host, turn.task, 'record', { rested: true } satisfies TaskRecord))
}

/** How long to wait where it cannot be told now whether an effect has run. */
const UNCERTAIN_MS = 5_000

/** A lease that was lost is no failure of the task: somebody else has it. Nor is a store that cannot tell now. */
function refused(work: Work, report: RunReport | undefined, error: RondoError): TaskTurnOutcome {
  if (error.code === 'STORE_LEASE_LOST') return { kind: 'release' }
  if (error.code === 'STORE_UNAVAILABLE' || error.code === 'STORE_BUSY')
    return { kind: 'release', delayMs: UNCERTAIN_MS }
  return ended(work, concludeRefused(work.round, report, error))
}

const AGAIN_MS = 250

/** What the call would have answered is what the task ends with. A tool's own failure is a result (E8). */
function ended(work: Work, reply: Reply): TaskTurnOutcome {
  const { host, turn, round } = work
  const { task } = turn
  if (reply.kind === 'error') {
    const { error } = reply
    // Clients of earlier eras read why they could not be asked in a result, whatever carries the call.
    const readsWhy = error.code === 'PEER_CAPABILITY' && host.codecs.opensSession(round.call.protocolVersion)
    return readsWhy ? ended(work, concludeUnaskable(round.target, error)) : failed(host, task, error)
  }
  if (reply.kind !== 'complete') throw new Error(`A task cannot end as ${reply.kind}`)
  return { kind: 'complete', result: sealPiece(host, task, 'result', reply.result) }
}

function failed(host: FlowHost, task: TaskHead, error: RondoError): TaskTurnOutcome {
  const { rpc: code, sentence: message, data } = error
  return { kind: 'fail', error: sealPiece(host, task, 'error', { code, message, data }) }
}

/*
 * What a turn of a task starts from: the call that made the task, the journal in the store, and the answers that have come
 * since it was last worked on.
 */

/** Everything about one turn that its parts need. */
export interface Work {
  readonly host: FlowHost
  readonly tasks: TaskHost
  readonly turn: TaskTurn
  readonly plan: TaskPlan
  readonly folded: Folded
  readonly round: Round
  /** Whether this turn told its owner how it goes. */
  told: boolean
}

function toWork(host: FlowHost, tasks: TaskHost, turn: TaskTurn, plan: TaskPlan, target: Target): Work {
  const { task } = turn
  const records = turn.journal.map((sealed) => openPiece<TaskRecord>(host, tasks, task, 'record', sealed))
  const folded = foldRecords(records, plan.noted)
  return { host, tasks, turn, plan, folded, round: toRound(host, turn, plan, target, folded), told: false }
}

function toRound(
  host: FlowHost,
  turn: TaskTurn,
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

function adapt(work: Work, input: ReplayInput): ReplayInput {
  const { host, turn, round } = work
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

/*
 * A task whose tool this instance does not have. While releases change, another instance may have it, so the task is left
 * to others for a while before it ends.
 */

const PATIENCE_MS = 15 * 60_000
/** Forgetting one only makes us wait longer. */
const MAX_REMEMBERED = 1000

/** Tells whether a task is still worth waiting for. */
function createMissingTools(now: () => number): (taskId: string) => boolean {
  const firstSeen = new Map<string, number>()
  return (taskId) => {
    const since = firstSeen.get(taskId) ?? now()
    firstSeen.delete(taskId)
    if (now() - since >= PATIENCE_MS) return false
    firstSeen.set(taskId, since)
    const [oldest] = firstSeen.keys()
    if (firstSeen.size > MAX_REMEMBERED && oldest !== undefined) firstSeen.delete(oldest)
    return true
  }
}
