/**
 * Keeps the effects that can be undone, and undoes them when their call ends without success.
 *
 * Before such an effect begins, its journal is written to a record in the store, and a task of the server's own, the alarm, is
 * created. The record has a phase, and a compare-and-set on it decides who wins:
 *
 *   open → ended               the call ended well
 *   open → undoing → undone    the call ended without success, expired, or was cancelled
 *
 * A call in rounds has ended well once its record says so. A task has not before its end is stored: the alarm follows the task
 * (`store/alarms.ts`), and if the task did not complete, a record that says `ended` is undone all the same. If the call ended well,
 * the alarm undoes only what `ctx.undo()` could not undo.
 *
 * guard 1: The alarm exists, and follows the task, before the record; the record exists before the effect.
 * guard 2: An effect begins only while the record is open; a call whose record is not open any more cannot end well.
 * guard 3: The alarm runs when the call expires, when its task ends, or when it is woken. It finds the undo functions by running the
 *          handler against the recorded journal, in which nothing new may run.
 * guard 4: The outcome of an effect is recorded even if the alarm has begun to undo. Until then the alarm waits for it, though not
 *          for a process that may be dead.
 */

import { detailOf, RondoError } from '../errors.ts'
import type { Entry, Journal, WorkEntry } from '../journal/journal.ts'
import { narrowJournal } from '../journal/journal.ts'
import { isRecord } from '../lib/json.ts'
import type { Reply } from '../protocol/reply.ts'
import type { ReplayInput, UndoReport } from '../replay/input.ts'
import { replay } from '../replay/replay.ts'
import type { Ending, RunReport } from '../replay/run-state.ts'
import { toHex, undoName } from '../replay/run-state.ts'

import { openEnvelope, sealEnvelope } from '../seal/envelope.ts'
import type { RecordStore } from '../store/store.ts'
import { createTaskId, isOpen, type TaskOwner } from '../store/task-engine.ts'
import { isTaskCreated } from '../tool/forward.ts'
import { isInputRequired } from '../tool/target.ts'
import { type Beginning, pauseManually, placeOf, type Round, subjectOf } from './carrier.ts'
import type { FlowHost, TaskHost } from './host.ts'
import { sealPiece, type TaskPlan } from './task/journal.ts'

/** The record of a call that can be undone. */
export interface GuardRecord {
  readonly phase: 'open' | 'ended' | 'undoing' | 'undone'
  readonly journal: Journal
  /** The task that the call became. */
  readonly task?: GuardedTask
  /** When the alarm began to undo, ms since the epoch. It has not yet if an operator has retried the task since. */
  readonly since?: number
}

interface GuardedTask {
  readonly id: string
  readonly owner: TaskOwner
}

/** A call that can be undone: the place of its record, and its alarm. */
export interface Guard {
  readonly id: string
  readonly alarm: string
  readonly owner: TaskOwner
}

/** The slot of an alarm that wakes it. */
export const WAKE = 'wake'

export function guardOf({ platform, audience }: FlowHost, seed: string, lineage: string): Guard {
  const secret = platform.derive(seed, `undo guard:${lineage}`)
  const name = toHex(secret)
  return {
    id: `undo:${name}`,
    alarm: createTaskId('', platform.derive(seed, `undo alarm:${lineage}`)),
    owner: { tenant: audience, principal: `undo ${name.slice(0, 32)}` },
  }
}

/** The guard of a call that has begun an effect that can be undone. */
function guardIn(host: FlowHost, { begun, lineage, seed }: Journal): Guard | undefined {
  return begun?.length && lineage !== undefined ? guardOf(host, seed, lineage) : undefined
}

/** The alarm of a call that can be undone. */
export function alarmOf(host: FlowHost, journal: Journal): string | undefined {
  return guardIn(host, journal)?.alarm
}

/** Returns the alarm unless it has ended: one that ended cannot hold a permit for the call. */
export async function openAlarm(host: FlowHost, journal: Journal): Promise<string | undefined> {
  const guard = guardIn(host, journal)
  if (!guard || !host.tasks) return undefined
  const { alarm, owner } = guard
  const view = await host.tasks.engine.get(alarm, owner)
  return view && isOpen(view.status) ? alarm : undefined
}

const MAX_BYTES = 16 * 1024 * 1024

function recordsOf({ store }: FlowHost): RecordStore {
  if (store?.records) return store.records
  throw new RondoError('SERVER_INTERNAL', 'This store keeps no records')
}

function seal(host: FlowHost, id: string, value: unknown): string {
  return sealEnvelope(host.keys.ring, JSON.stringify(['record', id, host.audience]), JSON.stringify(value))
    .token
}

function unseal(host: FlowHost, id: string, sealed: string): unknown {
  const place = JSON.stringify(['record', id, host.audience])
  const opened = openEnvelope(host.keys.ring, place, sealed, MAX_BYTES)
  if (opened.kind === 'open') return JSON.parse(opened.plaintext.toString('utf8'))
  throw new RondoError('SERVER_INTERNAL', `The record ${id} does not open: ${opened.reason}`)
}

export async function readGuard(host: FlowHost, { id }: Guard): Promise<GuardRecord | undefined> {
  const stored = await recordsOf(host).get(id)
  return stored && toGuardRecord(unseal(host, id, stored.sealed))
}

function toGuardRecord(value: unknown): GuardRecord {
  const journal = isRecord(value) ? narrowJournal(value.journal) : undefined
  if (!journal)
    throw new RondoError('SERVER_INTERNAL', 'The record of a call that can be undone is malformed')
  return { ...(value as GuardRecord), journal }
}

export async function removeGuard(host: FlowHost, { id }: Guard): Promise<void> {
  await recordsOf(host).remove(id)
}

const MAX_CONFLICTS = 10

/** Changes the record, however many others do so at the same time. `edit` may return undefined to leave it as it is. */
export async function changeGuard(
  host: FlowHost,
  { id }: Guard,
  ttlMs: number,
  edit: (current: GuardRecord | undefined) => GuardRecord | undefined,
): Promise<GuardRecord | undefined> {
  const records = recordsOf(host)
  for (let tries = 0; tries < MAX_CONFLICTS; tries++) {
    const stored = await records.get(id)
    const current = stored && toGuardRecord(unseal(host, id, stored.sealed))
    const next = edit(current)
    if (next === undefined) return current
    const version = stored?.version ?? 0
    const sealed = seal(host, id, next)
    const outcome = await records.put({ id, owner: id, sealed, version, ttlMs, maxBytes: 2 * MAX_BYTES })
    if (outcome === 'stored') return next
    if (outcome === 'limit') throw new RondoError('LIMIT_STATE_BYTES', 'The record of an undo is too large')
  }
  throw new RondoError('STORE_BUSY', 'The record of an undo changes too often')
}

/**
 * One writer's journal with what the record contains besides: a process that died, or that has taken the call over, may have recorded
 * more, and the alarm reaches its effects only with every result before them. An effect that began under another key stays as it is,
 * because that is what has to be undone.
 */
function merge(mine: Journal, current: Journal | undefined): Journal {
  if (!current) return mine
  const before = new Map(current.begun?.map((effect) => [effect.key, effect]))
  const begun = (mine.begun ?? []).map((effect) => before.get(effect.key) ?? effect)
  for (const effect of before.values()) if (!begun.includes(effect)) begun.push(effect)
  const known = new Set(mine.entries.map(({ key }) => key))
  const more = current.entries.filter(({ key }) => !known.has(key))
  return { ...mine, begun, entries: [...mine.entries, ...more] }
}

/** Refuses an effect that may be in place under another key: the program has changed, or an operator continued the call from before it. */
function refuseRerun({ begun = [], rerun }: Journal, { begun: before = [] }: Journal): void {
  const keys = new Map(before.map(({ key, effectKey }) => [key, effectKey]))
  const other = begun.find(({ key, effectKey }) => (keys.get(key) ?? effectKey) !== effectKey)
  if (other === undefined) return
  if (rerun !== undefined) throw given()
  const detail =
    `The effect "${other.key}" may have run in this call after other answers. ` +
    'The tool has changed while the call was open: keep the order of questions and effects, or let open calls end first.'
  throw new RondoError('REPLAY_DIVERGED', detail)
}

const given = (): RondoError =>
  new RondoError('STATE_INVALID', 'This call has expired or was cancelled, and its effects are being undone')

/**
 * The beginning of a round with what an earlier run of it has recorded: that run failed, or its reply was lost. An effect that
 * has ended, and may have been undone since, does not begin again.
 */
export async function withRecorded(host: FlowHost, beginning: Beginning): Promise<Beginning> {
  const { journal, asked } = beginning
  if (journal.lineage === undefined || !host.store?.records) return beginning
  await host.keys.ready()
  const known = await readGuard(host, guardOf(host, journal.seed, journal.lineage))
  // A call that a worker undoes does not continue.
  if (known?.phase !== 'open' && known?.phase !== 'ended') return beginning
  // A question that was reworded since is open again.
  const isOpenAgain = (entry: Entry): boolean =>
    'question' in entry && Object.hasOwn(asked, entry.key) && asked[entry.key] !== entry.question
  const entries = known.journal.entries.filter((entry) => !isOpenAgain(entry))
  return { ...beginning, kept: journal, journal: merge(journal, { ...known.journal, entries }) }
}

/** The part of a round that keeps effects which can be undone. `isLinear`: a state of this call counts once. */
export function undoingIn(round: Round, isLinear: boolean): ReplayInput['undoing'] {
  const { host, call, beginning } = round
  const { tasks } = host
  if (!host.store) return { missing: 'pass one: createServer({ store })' }
  if (!tasks)
    return {
      missing:
        'and a worker that finds the tool: on an official server, give rondo.tool the option "task" and pass the server to rondo.tasks',
    }
  const { records, alarms } = host.store
  if (!records || !alarms)
    return { missing: 'this one keeps no records or no alarms; SQLite and PostgreSQL do' }
  if (call.method !== 'tools/call') return { missing: 'and only a tool can be undone' }
  return {
    isLinear,
    async keep(journal, news) {
      const { lineage = '' } = journal
      await host.keys.ready()
      const guard = guardOf(host, journal.seed, lineage)
      const task = round.row && { id: round.row.id, owner: round.row.owner }
      const ttlMs = ttlOf(host, tasks, beginning.flowExpires)
      const current = await readGuard(host, guard)
      if (!current) await createAlarm(round, tasks, guard, lineage)
      if (task && current?.task?.id !== task.id && !(await alarms.set(task.id, guard.alarm, ttlMs)))
        throw given()
      const kept = await changeGuard(host, guard, ttlMs, (now) => {
        // A round that ended well comes again, because its reply was lost: the effect has the same key as before.
        if (now?.phase === 'ended' && !task) return undefined
        const isAwaited = now?.phase === 'undoing' && news === 'outcome'
        if (now && now.phase !== 'open' && news !== 'undo' && !isAwaited) throw given()
        if (now) refuseRerun(journal, now.journal)
        const merged = merge(journal, now?.journal)
        return { ...now, phase: now?.phase ?? 'open', task: task ?? now?.task, journal: merged }
      })
      if (news === 'outcome' && kept?.phase === 'undoing') throw given()
    },
  }
}

/** A record outlives its call by the time that a worker may need. */
function ttlOf({ platform }: FlowHost, { ttlMs }: TaskHost, expires: number): number {
  return Math.max(0, expires - platform.now()) + ttlMs
}

async function createAlarm(round: Round, tasks: TaskHost, guard: Guard, lineage: string): Promise<void> {
  const { host, call, target, principal, beginning } = round
  const { flow, flowExpires, journal } = beginning
  const { method, args, protocolVersion, capabilities, clientInfo } = call
  const { alarm: id, owner } = guard
  // The alarm asks again whether a task is still there, because a wait extends its life.
  const expires = round.row?.expiresAt ?? flowExpires
  const plan: TaskPlan = {
    flow,
    seed: journal.seed,
    startedAt: journal.startedAt,
    round: beginning.round,
    toolVersion: target.version,
    epoch: journal.epoch,
    principal,
    call: { method, target: call.target, args, protocolVersion, capabilities, clientInfo },
    undo: { lineage, expires },
  }
  const head = sealPiece(host, { id, owner }, 'head', plan)
  const ttlMs = ttlOf(host, tasks, expires)
  await tasks.engine.create({ id, owner, head, ttlMs, pollMs: tasks.pollMs, known: true })
}

/** A call that can be undone becomes a task: from now on the task decides how long it lives. */
export async function guardTask(round: Round, journal: Journal, task: GuardedTask): Promise<void> {
  const { host, beginning } = round
  const guard = guardIn(host, journal)
  if (!guard || !host.tasks) return
  const ttlMs = ttlOf(host, host.tasks, beginning.flowExpires)
  await host.store?.alarms?.set(task.id, guard.alarm, ttlMs)
  await changeGuard(host, guard, ttlMs, (now) => now && { ...now, task })
}

/** Names of the effects that have not been undone, the last that began first. */
export function leftToUndo({ begun = [], entries }: Journal): string[] {
  const undone = new Set(entries.filter((entry) => isUndone(entry as WorkEntry)).map(({ key }) => key))
  return begun
    .map(({ key }) => key)
    .filter((key) => !undone.has(undoName(key)))
    .reverse()
}

/** Whether an effect has begun that has neither an outcome nor an undo: it may be running just now. */
export function mayRun({ begun = [], entries }: Journal): boolean {
  const settled = new Set(entries.map(({ key }) => key))
  return begun.some(({ key }) => !settled.has(key) && !settled.has(undoName(key)))
}

function isUndone(entry: WorkEntry): boolean {
  return entry.kind === 'undo' && !('failure' in entry)
}

/** The report, with what was undone after the handler had failed. */
export interface UndoneReport extends RunReport {
  readonly undo?: UndoReport
  /** A worker undoes the rest. */
  readonly left?: boolean
}

/** Called when a run is over. Undoes its effects if it ended without success. */
export async function undoAfter(round: Round, input: ReplayInput, ran: RunReport): Promise<UndoneReport> {
  const { journal } = ran
  const { host } = round
  const { tasks } = host
  // Whoever has the call now undoes it, or ends it well.
  const isLost = round.line.left === true || (round.row !== undefined && round.line.closed)
  const guard = guardIn(host, journal)
  if (!guard || !tasks || isLost) return ran
  const report = { ...ran, ending: await checkReturned(round, ran) }
  const how = howEnded(report.ending)
  if (how === 'continues' || (await round.line.isTaken?.())) return report
  await host.keys.ready()
  const ttlMs = ttlOf(host, tasks, round.beginning.flowExpires)
  if (how === 'well') return endWell(round, tasks, guard, report)
  const kept = await changeGuard(host, guard, ttlMs, (now) => {
    if (now?.phase === 'ended' || now?.phase === 'undone') return undefined
    return { ...now, phase: 'undoing', journal: merge(journal, now?.journal) }
  })
  // Another run of this round has ended the call well.
  if (kept?.phase === 'ended') return report
  // The alarm waits for an effect that may still be running in another process.
  if (kept?.since !== undefined && mayRun(kept.journal))
    return { ...report, undo: summarize(kept.journal), left: true }
  return undoFailed(round, tasks, guard, input, report, merge(journal, kept?.journal))
}

/** What a handler returns may still be refused: a result that the output schema does not allow, questions that cannot be asked. */
async function checkReturned(round: Round, report: RunReport): Promise<Ending> {
  const { ending } = report
  if (ending.kind !== 'returned' || isTaskCreated(ending.value)) return ending
  const { value } = ending
  if (isInputRequired(value)) {
    const pause = pauseManually(round, report, value)
    return pause instanceof RondoError ? { kind: 'refused', error: pause } : ending
  }
  try {
    await round.target.finish(value)
    return ending
  } catch (error) {
    return { kind: 'threw', error }
  }
}

/** The journal with no other effects than those that `ctx.undo()` has tried to undo: a call that ended well leaves only these to a worker. */
export function withTried(journal: Journal): Journal {
  const tried = new Set(journal.entries.filter(({ kind }) => kind === 'undo').map(({ key }) => key))
  return { ...journal, begun: journal.begun?.filter(({ key }) => tried.has(undoName(key))) }
}

function howEnded(ending: Ending): 'well' | 'failed' | 'continues' {
  switch (ending.kind) {
    case 'threw':
      return 'failed'
    case 'refused':
      // After an error of the store the same request is sent again.
      return ending.error.code.startsWith('STORE_') ? 'continues' : 'failed'
    case 'returned': {
      const { value } = ending
      if (isInputRequired(value)) return 'continues'
      return isRecord(value) && value.isError === true ? 'failed' : 'well'
    }
    default:
      return 'continues'
  }
}

const refuse = (report: RunReport): RunReport => ({ ...report, ending: { kind: 'refused', error: given() } })

/**
 * Closes the record, with all results: a round that comes again ends like this one. The call cannot end well if a worker has begun to
 * undo it.
 */
async function endWell(
  round: Round,
  tasks: TaskHost,
  guard: Guard,
  report: RunReport,
): Promise<UndoneReport> {
  const { host, beginning } = round
  const now = await changeGuard(host, guard, ttlOf(host, tasks, beginning.flowExpires), (current) =>
    current?.phase === 'open'
      ? { ...current, phase: 'ended', journal: merge(report.journal, current.journal) }
      : undefined,
  )
  if (now?.phase === 'undoing' || now?.phase === 'undone') return refuse(report)
  const tried = withTried(report.journal)
  if (leftToUndo(tried).length > 0) {
    await wake(round, tasks, guard)
    return { ...report, left: true }
  }
  // A task may still be cancelled before its end is stored, so its record stays until the alarm has seen that end.
  if (!round.row) await dismiss(host, tasks, guard, tried.begun?.length !== 0)
  return report
}

/**
 * Removes what is left of a call in rounds that ended well. What remains after a crash expires, as does the record of effects that
 * were undone: if the reply is lost, the round comes again, and must not begin them.
 */
async function dismiss(host: FlowHost, { engine }: TaskHost, guard: Guard, tried: boolean): Promise<void> {
  try {
    await engine.cancel(guard.alarm, guard.owner)
    if (!tried) await removeGuard(host, guard)
  } catch (error) {
    host.log({ event: 'warning', message: 'The record of an undo could not be removed; it expires', error })
  }
}

async function undoFailed(
  round: Round,
  tasks: TaskHost,
  guard: Guard,
  input: ReplayInput,
  report: RunReport,
  journal: Journal,
): Promise<UndoneReport> {
  const { host, line, beginning } = round
  const left = leftToUndo(journal)
  const undoes = report.undoable.filter(({ key }) => left.includes(key))
  if (undoes.length < left.length) {
    // The run ended before it reached all of them. A worker reaches the rest, and undoes the last effect first.
    await wake(round, tasks, guard)
    return { ...report, undo: summarize(journal), left: true }
  }
  const second = await replay({
    ...input,
    journal,
    undoes,
    incoming: { ...input.incoming, answers: undefined, asked: {}, events: undefined },
    onArrival: undefined,
    publish: undefined,
    withdraw: undefined,
    trace: undefined,
  })
  const { ending } = second
  if (howEnded(ending) === 'continues') {
    // The call cannot end well any more, and after an error of the store, or without a client, it may not come again.
    const isLeft = ending.kind === 'refused' || (line.closed && line.left !== true)
    if (isLeft) await wake(round, tasks, guard).catch(() => {})
    return { ...second, left: isLeft }
  }
  const undo = summarize(second.journal)
  reportUndo(round, undo)
  if (undo.failed.length > 0) await wake(round, tasks, guard)
  else
    await changeGuard(host, guard, ttlOf(host, tasks, beginning.flowExpires), (now) =>
      now?.phase === 'undoing' ? { ...now, phase: 'undone' } : undefined,
    )
  const executed = report.executed + second.executed
  return { ...report, journal: second.journal, executed, undo, left: undo.failed.length > 0 }
}

function summarize(journal: Journal): UndoReport {
  const failed = leftToUndo(journal)
  const undone = (journal.begun ?? []).map(({ key }) => key).filter((key) => !failed.includes(key))
  return { undone: undone.reverse(), failed }
}

export function reportUndo(round: Round, { undone, failed }: UndoReport): void {
  round.host.log({ event: 'undo', ...placeOf(round), ...subjectOf(round), undone, failed })
}

/** The reply, with what was undone. */
export function withUndo(reply: Reply, undo: UndoReport | undefined): Reply {
  if (!undo) return reply
  const { undone, failed } = undo
  if (reply.kind === 'complete') {
    const { content } = reply.result
    if (!Array.isArray(content)) return reply
    const text = [
      undone.length > 0 && `Undone: ${undone.join(', ')}.`,
      failed.length > 0 && `Not undone yet: ${failed.join(', ')}. The server tries again.`,
    ]
    const block = { type: 'text', text: text.filter((part) => part !== false).join(' ') }
    return { ...reply, result: { ...reply.result, content: [...content, block] } }
  }
  if (reply.kind !== 'error' || reply.error.constructor !== RondoError) return reply
  const { error } = reply
  const data = { ...(isRecord(error.data) ? error.data : {}), undone, notUndone: failed }
  const { cause, headers } = error
  return { kind: 'error', error: new RondoError(error.code, detailOf(error), { cause, data, headers }) }
}

const WAKE_TRIES = 20
const WAKE_MS = 50

/** Has a worker undo the call now. Without it, the alarm does so when the call expires. The end of a task wakes it anyway. */
async function wake(
  { host, row }: Pick<Round, 'host' | 'row'>,
  { engine }: TaskHost,
  guard: Guard,
): Promise<void> {
  if (row) return
  const { alarm: id, owner } = guard
  const answers = new Map([[WAKE, sealPiece(host, { id, owner }, `answer ${WAKE}`, true)]])
  for (let tries = 0; tries < WAKE_TRIES; tries++) {
    // `idle`: its first turn has not parked it yet. That turn may have read the record before the phase changed.
    if ((await engine.deliver(id, owner, answers)) !== 'idle') return
    await new Promise<void>((resolve) => void host.platform.after(WAKE_MS, resolve))
  }
}

/** A call ended while it waited, so its handler cannot undo anything: a worker does. Never rejects. */
export async function undoGone(host: FlowHost, journal: Journal): Promise<void> {
  const { tasks } = host
  const guard = guardIn(host, journal)
  if (!guard || !tasks) return
  try {
    const now = await changeGuard(host, guard, tasks.maxTtlMs, (current) =>
      current?.phase === 'open' ? { ...current, phase: 'undoing' } : undefined,
    )
    if (now?.phase === 'undoing') await wake({ host }, tasks, guard)
  } catch (error) {
    host.log({ event: 'warning', message: 'A call that ended is undone when it expires', error })
  }
}
