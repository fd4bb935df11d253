/**
 * The task carrier: between turns the journal is in the store, and while a question is open nothing is held: no process,
 * no timer, no memory. A worker runs the handler from the top against what was recorded, as a round does.
 *
 * R6 An effect waits until the owner has shown that it knows the task's id: a client that lost the reply with the id calls
 * again, and the effect would run in two tasks. Steps and questions do not wait.
 * R7 An entry is durable, and the lease still held, before the handler sees its result.
 */

import { misuse, RondoError } from '../../errors.ts'
import type { Journal } from '../../journal/journal.ts'
import type { Line } from '../../protocol/call.ts'
import { withoutMethods } from '../../protocol/common/request.ts'
import type { Reply } from '../../protocol/reply.ts'
import type { InputRequest, InputResponses } from '../../protocol/wire.ts'
import { hookOfEvent } from '../../replay/hook.ts'
import type { Incoming, Labelling, ReplayInput } from '../../replay/input.ts'
import type { RunReport } from '../../replay/run-state.ts'
import type { RunTurn, TaskHead, TaskTurn, TaskTurnOutcome } from '../../store/task-engine.ts'
import type { Target } from '../../tool/target.ts'
import { type CallFacts, PENDING, runAround } from '../around.ts'
import { type Carrier, type Pause, type Round, skipIn } from '../carrier.ts'
import type { FlowHost, TaskHost } from '../host.ts'
import { logFault, noteEnd, unaskableReply } from '../report.ts'
import { concludeRefused, logRound, runOnce } from '../round.ts'
import { effectOnce } from '../single-use.ts'
import { undoingIn } from '../undo.ts'
import { approvalsOf, type TaskApprovals } from './approve.ts'
import { eventsOf, hooksOf } from './hook.ts'
import {
  endOfLife,
  type Folded,
  foldRecords,
  freshAnswers,
  MissingKey,
  openPiece,
  ownerOf,
  park,
  sealPiece,
  type TaskPlan,
  type TaskRecord,
  toFlowCall,
  unmarkAnswer,
} from './journal.ts'
import { labelsOf } from './label.ts'
import { redeem } from './redeem.ts'
import { createShown, createStatusReporter, type Shown, type StatusReporter } from './status.ts'

export type FindTarget = (plan: TaskPlan) => Target | undefined

/** A turn whose journal is not opened yet. */
interface Opening {
  readonly host: FlowHost
  readonly tasks: TaskHost
  readonly turn: TaskTurn
  readonly plan: TaskPlan
  readonly target: Target
}

/** One turn of a task: a round whose journal is in the store. */
interface TaskRun extends Round, Opening {
  readonly folded: Folded
  readonly shown: Shown
  readonly status: StatusReporter
  readonly approvals: TaskApprovals
  readonly labels: Labelling
}

const taskCarrier: Carrier<Opening, TaskTurnOutcome, TaskRun> = {
  open,
  keep: (run, pause) =>
    settle(run, pause.report, () => {
      run.status.rests(waitsFor(pause, run.approvals))
      return keep(run, pause)
    }),
  end: (run, reply, report) => settle(run, report, () => ended(run, reply)),
  queue(run, delayMs) {
    run.status.rests('Waiting for other calls to end')
    return { kind: 'release', delayMs }
  },
  adapt,
  abandon: ({ turn }, refused) =>
    turn.signal.aborted ? { kind: 'release' } : refused && releaseFor(refused),
}

/** Creates the function that the engine calls for each turn. */
export function createRunTurn(host: FlowHost, tasks: TaskHost, find: FindTarget): RunTurn {
  const mayComeBack = createMissingTools(host.platform.now)
  const run: RunTurn = async (turn) => {
    const { task } = turn
    const plan = openPiece<TaskPlan>(host, tasks, task, 'head', task.head)
    if (!plan.undo) assertOwner(host, turn, plan)
    const target = find(plan)
    if (!target) {
      if (mayComeBack(turn)) return leaveToOthers(host, turn, plan)
      const error = unknownTool(plan)
      noteEnd(task, { outcome: 'refused', code: error.code })
      return failed(host, task, error)
    }
    const { undo } = plan
    if (undo) return redeem(host, tasks, turn, { ...plan, undo }, target)
    const runTurn = async (): Promise<TaskTurnOutcome> => {
      const round = await taskCarrier.open({ host, tasks, turn, plan, target })
      try {
        return await runOnce(taskCarrier, round)
      } finally {
        round.status.close()
      }
    }
    return host.steps.length === 0 ? runTurn() : aroundTurn(host, tasks, turn, plan, runTurn)
  }
  return async (turn) => {
    await host.keys.ready()
    try {
      return await run(turn)
    } catch (error) {
      // An instance without the key releases the task instead of failing it; `openPiece` has logged why.
      if (error instanceof MissingKey) return { kind: 'release', delayMs: ELSEWHERE_MS }
      throw error
    }
  }
}

/** Runs a turn inside the steps of extensions. A reply of theirs ends the task. */
function aroundTurn(
  host: FlowHost,
  tasks: TaskHost,
  { task, number: turn }: TaskTurn,
  { call, flow, principal }: TaskPlan,
  run: () => Promise<TaskTurnOutcome>,
): Promise<TaskTurnOutcome> {
  const { method, target, args, clientInfo: client, protocolVersion } = call
  const facts: CallFacts = {
    kind: 'turn',
    method,
    target,
    args,
    continues: true,
    principal,
    client,
    protocolVersion,
    flow,
    task: task.id,
    turn,
  }
  return runAround(host.steps, facts, run, {
    toReply(outcome) {
      if (outcome.kind === 'complete')
        return { kind: 'complete', result: openPiece(host, tasks, task, 'result', outcome.result) }
      if (outcome.kind !== 'fail') return PENDING
      return { kind: 'task_failed', error: openPiece(host, tasks, task, 'error', outcome.error) }
    },
    fromReply(reply) {
      noteEnd(task, { outcome: reply.kind === 'error' ? 'refused' : 'complete' })
      if (reply.kind === 'error') return failed(host, task, reply.error)
      if (reply.kind === 'complete')
        return { kind: 'complete', result: sealPiece(host, task, 'result', reply.result) }
      throw misuse(
        `A step around the turn of a task can end it with a result or an error, not with ${reply.kind}`,
      )
    },
  })
}

/** Throws if the row names an owner other than the one who began the task. */
function assertOwner(host: FlowHost, { task, number: turn }: TaskTurn, plan: TaskPlan): void {
  const { id, owner } = task
  const { principal, flow, round } = plan
  const began = ownerOf(host, principal)
  if (owner.principal === began.principal && owner.tenant === began.tenant) return
  const message = `The task ${id} does not belong to the owner that its row names`
  host.log({ event: 'warning', message, flow, round, task: id, turn })
  throw new RondoError('SERVER_INTERNAL', message)
}

/** Long enough that another instance claims the task first. */
const ELSEWHERE_MS = 10_000

function leaveToOthers(
  host: FlowHost,
  { task, number }: TaskTurn,
  { call, flow, round }: TaskPlan,
): TaskTurnOutcome {
  const message = `A task waits for an instance that has the tool "${call.target}"`
  host.log({ event: 'warning', message, flow, round, task: task.id, turn: number })
  return { kind: 'release', delayMs: ELSEWHERE_MS }
}

function unknownTool({ call }: TaskPlan): RondoError {
  return new RondoError('PEER_PARAMS', `Unknown tool: ${call.target}`)
}

/** A result or journal that cannot be kept ends the task, because another turn would fail in the same way. If the store failed, the turn is retried. */
async function settle(
  run: TaskRun,
  report: RunReport | undefined,
  toOutcome: () => TaskTurnOutcome | Promise<TaskTurnOutcome>,
): Promise<TaskTurnOutcome> {
  try {
    if (report?.labels) await run.labels.keep(report.labels)
    return await toOutcome()
  } catch (error) {
    if (run.turn.signal.aborted) throw error
    if (!(error instanceof RondoError)) logFault(run, error)
    const known = error instanceof RondoError ? error : new RondoError('SERVER_INTERNAL')
    if (known.code.startsWith('STORE_')) throw error
    return refused(run, report, known)
  }
}

/** Names the event or time that the task waits for, if its status does not. */
function waitsFor(
  { inputRequests, events = [], wakeAt, journal }: Pause,
  approvals: TaskApprovals,
): string | undefined {
  if (Object.keys(inputRequests ?? {}).length > 0) return undefined
  const hooks = events.map(hookOfEvent)
  const asked = hooks.flatMap((hook) => approvals.waitsAt(hook) ?? [])
  const others = hooks
    .filter((hook) => approvals.waitsAt(hook) === undefined)
    .map((hook) => JSON.stringify(hook))
  if (others.length > 0) asked.push(`Waiting for the event of the hook ${others.join(', ')}`)
  if (asked.length > 0) return asked.join('. ')
  if (wakeAt === undefined) return undefined
  const { attempts = {}, deadlines = {} } = journal
  const retried = Object.keys(attempts).find((key) => deadlines[key] === wakeAt)
  const what = retried === undefined ? 'Sleeping until' : `Retrying ${JSON.stringify(retried)} at`
  return `${what} ${new Date(wakeAt).toISOString()}`
}

/** Keeps the journal in the store, and the open questions with it. */
async function keep(run: TaskRun, pause: Pause): Promise<TaskTurnOutcome> {
  const { host, turn, folded } = run
  const { report, facts, asked, inputRequests, events, journal, wakeAt } = pause
  const isManual = report.ending.kind === 'returned'
  if (isManual && folded.parks >= host.limits.maxEntries) {
    return refused(run, report, new RondoError('LIMIT_ROUNDS'))
  }
  logRound(run, report, facts)
  if (facts.moved !== undefined) {
    if (run.status.reported) await rest(run)
    return { kind: facts.moved === 'effect' ? 'hold' : 'release' }
  }
  const questions = Object.entries(inputRequests ?? {}).map(
    ([key, request]) => [key, { request, digest: asked[key] ?? '' }] as const,
  )
  const { inputs, record, until, close } = park(questions, journal, run.shown.folded(), turn.slots())
  const kept = run.shown.keepOffers(record)
  await turn.record(sealPiece(host, turn.task, 'record', host.observer ? timed(kept, host) : kept))
  // State alone: nobody is asked, so the next turn is due by itself, at the pace of a client (C9).
  if (questions.length === 0 && !events && wakeAt === undefined) return { kind: 'release', delayMs: AGAIN_MS }
  const sealed = Array.from(
    inputs,
    ([key, request]) => [key, sealPiece(host, turn.task, `input ${key}`, request)] as const,
  )
  return { kind: 'park', inputs: new Map(sealed), until, close, wakeAt, liveUntil: liveUntil(run, journal) }
}

/** A task outlives everything that it waits for by its own lifetime, so that its result can be read. */
function liveUntil(run: TaskRun, { deadlines = {} }: Journal): number | undefined {
  const { plan, target, tasks, turn } = run
  const ttlMs = plan.ttlMs ?? target.task.ttlMs ?? tasks.ttlMs
  const last = Math.max(...Object.values(deadlines))
  return Number.isFinite(last) ? Math.min(last + ttlMs, endOfLife(tasks, turn.task)) : undefined
}

/** Records that this turn came to its end, so that the next one does not report the same status again. */
function rest({ host, turn }: TaskRun): Promise<void> {
  return turn.record(sealPiece(host, turn.task, 'record', { rested: true } satisfies TaskRecord))
}

/** The delay before the next turn while it is unknown whether an effect has run. */
const UNCERTAIN_MS = 5_000

/** A lost lease does not fail the task: another worker has it. Neither does a store that is unavailable or busy. */
function releaseFor({ code }: RondoError): TaskTurnOutcome | undefined {
  if (code === 'STORE_LEASE_LOST') return { kind: 'release' }
  const isUncertain = code === 'STORE_UNAVAILABLE' || code === 'STORE_BUSY'
  return isUncertain ? { kind: 'release', delayMs: UNCERTAIN_MS } : undefined
}

function refused(run: TaskRun, report: RunReport | undefined, error: RondoError): TaskTurnOutcome {
  return releaseFor(error) ?? ended(run, concludeRefused(run, report, error))
}

const AGAIN_MS = 250

/** Ends the task with the reply of the call. A tool's own failure is a result (E8). */
function ended(run: TaskRun, reply: Reply): TaskTurnOutcome {
  const { host, call, target } = run
  const { task } = run.turn
  if (reply.kind === 'error') {
    const { error } = reply
    // Clients of earlier eras get the reason why they cannot be asked as a result, whatever carries the call.
    const readsWhy = error.code === 'PEER_CAPABILITY' && host.codecs.opensSession(call.protocolVersion)
    return readsWhy ? ended(run, unaskableReply(target, error)) : failed(host, task, error)
  }
  if (reply.kind !== 'complete') throw new Error(`A task cannot end as ${reply.kind}`)
  return { kind: 'complete', result: sealPiece(host, task, 'result', run.approvals.mark(reply.result)) }
}

function failed(host: FlowHost, task: TaskHead, error: RondoError): TaskTurnOutcome {
  const { rpc: code, sentence: message, data } = error
  return { kind: 'fail', error: sealPiece(host, task, 'error', { code, message, data }) }
}

/** Opens the journal in the store, with the call that made the task. */
function open({ host, tasks, turn, plan, target }: Opening): TaskRun {
  const { task } = turn
  const { flow, seed, startedAt, round, toolVersion, principal, epoch, spans, rerun } = plan
  const records = turn.journal.map((sealed) => openPiece<TaskRecord>(host, tasks, task, 'record', sealed))
  const folded = foldRecords(records, plan.noted)
  const { entries, parked, deadlines, attempts, begun, lineage } = folded
  return {
    host,
    tasks,
    turn,
    plan,
    folded,
    shown: createShown(host, tasks, turn, folded),
    status: createStatusReporter(host, turn),
    approvals: approvalsOf({ host, plan, target, task: task.id }),
    labels: labelsOf(host, tasks, turn),
    call: toFlowCall(plan, task.id),
    target,
    principal,
    line: toLine(turn.signal),
    task: { task: task.id, turn: turn.number },
    row: task,
    beginning: {
      flow,
      round,
      journal: {
        startedAt,
        seed,
        entries,
        reasks: parked.reasks,
        deadlines,
        attempts,
        begun,
        lineage,
        kept: parked.kept,
        moves: 0,
        manual: parked.manual,
        epoch,
        spans,
        rerun,
      },
      asked: {},
      flowExpires: endOfLife(tasks, task),
      anchored: true,
      sealedVersion: toolVersion,
      askedAt: parked.at,
    },
    ...(host.observer && { wokenBy: wokenBy(host, tasks, turn, folded) }),
    began: host.platform.now(),
  }
}

/** Adds the time at which the questions were asked. */
function timed(record: TaskRecord, { platform }: FlowHost): TaskRecord {
  return 'parked' in record ? { parked: { ...record.parked, at: platform.now() } } : record
}

/** The span of the request that brought the answers of this turn. */
function wokenBy(host: FlowHost, tasks: TaskHost, turn: TaskTurn, { parked }: Folded): string | undefined {
  for (const key of Object.keys(parked.asked)) {
    const sealed = turn.answers.get(key)
    if (sealed === undefined) continue
    const { span } = unmarkAnswer(openPiece(host, tasks, turn.task, `answer ${key}`, sealed))
    if (span !== undefined) return span
  }
  return undefined
}

/** A line without a client. It closes when the turn no longer counts. */
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

function adapt(run: TaskRun, input: ReplayInput): ReplayInput {
  const { host, tasks, turn } = run
  const incoming = {
    ...input.incoming,
    ...incomingOf(run, input.incoming, openAnswers(run)),
    events: eventsOf(host, tasks, turn.task, turn.slots()),
    resumed: run.folded.resting,
  }
  // The store's clock decides, whatever the time is here: a task that it made due is due.
  const ahead = turn.claimedAt - input.platform.now()
  const { store } = host
  // Does not wait for a slot: the task is released instead, which costs nothing.
  const once: ReplayInput['once'] =
    store && ((key, branch, act) => effectOnce(run, store.once, { key, branch }, act, 0))
  const inputResponses = (): InputResponses | undefined => incoming.answers as InputResponses | undefined
  return {
    ...input,
    incoming,
    platform: { ...input.platform, now: () => input.platform.now() + ahead },
    sleeping: () => ({
      parks: true,
      inlineMs: 0,
      beyond: 'leave',
      until: endOfLife(tasks, turn.task),
      skip: skipIn(run),
    }),
    persistDeadline: async (key, due) =>
      turn.record(sealPiece(host, turn.task, 'record', { deadline: { key, due } } satisfies TaskRecord)),
    persistAttempt: async (key, count, due) =>
      turn.record(
        sealPiece(host, turn.task, 'record', { attempt: { key, count, due } } satisfies TaskRecord),
      ),
    persistBegun: async (begun, lineage) =>
      turn.record(sealPiece(host, turn.task, 'record', { begun, lineage } satisfies TaskRecord)),
    undoing: undoingIn(run, true),
    anchored: turn.task.known,
    once,
    inputResponses,
    hooks: hooksOf(run),
    approvals: run.approvals,
    labelling: input.labelling ?? run.labels,
    background: { ...run.status, possible: false },
    mayMove: () => (turn.draining.aborted || turn.signal.aborted ? 'drain' : undefined),
    onArrival: run.shown.onArrival,
    publish: run.shown.publish,
    withdraw: run.shown.withdraw,
    persist: async (entry) => {
      run.status.ends(entry.key)
      await turn.record(sealPiece(host, turn.task, 'record', { entry } satisfies TaskRecord))
    },
  }
}

/** Opens the client's answers, by wire key. An answer that is text is a method that it turned out not to implement. */
function openAnswers({ host, tasks, turn }: TaskRun): ReadonlyMap<string, unknown> {
  const opened = Array.from(
    turn.answers,
    ([key, sealed]) =>
      [key, unmarkAnswer(openPiece(host, tasks, turn.task, `answer ${key}`, sealed)).answer] as const,
  )
  return new Map(opened)
}

/** The answers to what was asked last; before the first question, those that came with the request that began the task. */
function incomingOf(
  { plan, folded, turn }: TaskRun,
  { capabilities }: Incoming,
  opened: ReadonlyMap<string, unknown>,
): Pick<Incoming, 'answers' | 'asked' | 'unasked' | 'arrivedAt' | 'capabilities'> {
  const unable = [...opened.values()].filter((answer) => typeof answer === 'string')
  const able = withoutMethods(capabilities, unable as InputRequest['method'][])
  const isFirst = folded.parks === 0 && Object.keys(folded.parked.asked).length === 0
  if (isFirst && plan.brought) return { ...plan.brought, arrivedAt: turn.task.createdAt, capabilities: able }
  const given = new Map([...opened].filter(([, answer]) => typeof answer !== 'string'))
  // The store takes no late answer: what is there came in time.
  const arrivedAt = Number.NEGATIVE_INFINITY
  return { ...freshAnswers(folded.parked, given), arrivedAt, capabilities: able }
}

const PATIENCE_MS = 15 * 60_000
/** Forgetting a task only makes it wait longer. */
const MAX_REMEMBERED = 1000

/**
 * Tells whether to wait for an instance that has the tool of a task. During a rollout another instance may have it, so the
 * task is left to others for a while before it fails. A journal that has grown shows that one of them has the tool.
 */
function createMissingTools(now: () => number): (turn: TaskTurn) => boolean {
  const firstSeen = new Map<string, { readonly since: number; readonly entries: number }>()
  return ({ task, journal }) => {
    const known = firstSeen.get(task.id)
    const entries = journal.length
    const since = known?.entries === entries ? known.since : now()
    firstSeen.delete(task.id)
    if (now() - since >= PATIENCE_MS) return false
    firstSeen.set(task.id, { since, entries })
    const [oldest] = firstSeen.keys()
    if (firstSeen.size > MAX_REMEMBERED && oldest !== undefined) firstSeen.delete(oldest)
    return true
  }
}
