/**
 * The task carrier: between turns the journal is in the store, and while a question waits nothing is held: no process,
 * no timer, no memory. A worker runs the same handler as a round would, from the top, against what was recorded.
 *
 * R6 An effect waits until the owner has shown that it knows the task's id: whoever lost the reply that named it calls again,
 * and the effect would run in two tasks. Steps and questions need not wait. R7 An entry is durable, and
 * ours, before the handler sees its result.
 */

import { RondoError } from '../errors.ts'
import { DRAFT_VERSION } from '../protocol/draft-2026-v1/version.ts'
import type { Reply } from '../protocol/reply.ts'
import { VERSIONS } from '../protocol/rev-2025-11-25/version.ts'
import type { OpenQuestion, RunReport } from '../replay/outcome.ts'
import { replay } from '../replay/replay.ts'
import { verify } from '../replay/verify.ts'
import type { Outcome, RunTurn, TaskHead } from '../store/task-engine.ts'
import { type InputRequired, isInputRequired } from '../tool/input-required.ts'
import type { Target } from '../tool/target.ts'
import {
  concludeArguments,
  concludeRefused,
  concludeReturned,
  concludeThrew,
  concludeUnaskable,
} from './conclude.ts'
import type { FlowHost, TaskHost } from './flow-host.ts'
import { manualDigests, manualRequests } from './manual.ts'
import { createMissingTools } from './missing-tool.ts'
import { logFault, logRound } from './round.ts'
import { openPiece, ownerOf, sealPiece } from './task-host.ts'
import { toTurnInput, toWork, type Work } from './task-input.ts'
import { park, type TaskRecord } from './task-journal.ts'
import type { TaskPlan } from './task-plan.ts'

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

function leaveToOthers(host: FlowHost, { call }: TaskPlan): Outcome {
  host.log({ event: 'warning', message: `A task waits for an instance that has the tool "${call.target}"` })
  return { kind: 'release', delayMs: ELSEWHERE_MS }
}

function unknownTool({ call }: TaskPlan): RondoError {
  return new RondoError('PEER_PARAMS', `Unknown tool: ${call.target}`)
}

async function runTurn(work: Work): Promise<Outcome> {
  const { host, round, turn } = work
  const prepared = await round.target.prepare(round.call.args)
  if (prepared.kind === 'refused') return ended(work, concludeArguments(round, prepared.problem))
  const input = toTurnInput(work, prepared.run)
  const first = await replay(input)
  const report = host.dev ? await verify(input, first) : first
  if (turn.signal.aborted) return { kind: 'release' }
  return settle(work, report)
}

/** What cannot be kept ends the task: another turn would not do better. A store that failed might. */
async function settle(work: Work, report: RunReport): Promise<Outcome> {
  try {
    return await toOutcome(work, report)
  } catch (error) {
    if (work.turn.signal.aborted) throw error
    if (!(error instanceof RondoError)) logFault(work.round, error)
    const known = error instanceof RondoError ? error : new RondoError('SERVER_INTERNAL')
    if (known.code.startsWith('STORE_')) throw error
    return refused(work, report, known)
  }
}

async function toOutcome(work: Work, report: RunReport): Promise<Outcome> {
  const { round } = work
  const { ending } = report
  switch (ending.kind) {
    case 'returned':
      if (isInputRequired(ending.value)) return parkManually(work, report, ending.value)
      return ended(work, await concludeReturned(round, report, ending.value))
    case 'threw':
      return ended(work, concludeThrew(round, report, ending.error))
    case 'refused':
      return refused(work, report, ending.error)
    case 'moved':
      logRound(round, report, { outcome: 'moved', moved: ending.reason })
      if (work.told) await rest(work)
      return { kind: ending.reason === 'effect' ? 'hold' : 'release' }
    case 'background':
      logRound(round, report, { outcome: 'moved', moved: 'drain' })
      return { kind: 'release' }
    case 'asking':
      logRound(round, report, {
        outcome: 'input_required',
        asks: Array.from(ending.questions, ([key, { kind }]) => ({ key, kind })),
      })
      return parked(work, report, [...ending.questions])
  }
}

/** Notes that this turn came to its end, so that the next one does not tell the owner the same again. */
function rest({ host, turn }: Work): Promise<void> {
  return turn.record(sealPiece(host, turn.task, 'record', { rested: true } satisfies TaskRecord))
}

/** How long to wait where it cannot be told now whether an effect has run. */
const UNCERTAIN_MS = 5_000

/** A lease that was lost is no failure of the task: somebody else has it. Nor is a store that cannot tell now. */
function refused(work: Work, report: RunReport, error: RondoError): Outcome {
  if (error.code === 'STORE_LEASE_LOST') return { kind: 'release' }
  if (error.code === 'STORE_UNAVAILABLE' || error.code === 'STORE_BUSY')
    return { kind: 'release', delayMs: UNCERTAIN_MS }
  return ended(work, concludeRefused(work.round, report, error))
}

const AGAIN_MS = 250

async function parkManually(work: Work, report: RunReport, needs: InputRequired): Promise<Outcome> {
  const { host, round, turn } = work
  const digests = manualDigests(host, needs, round.call.capabilities)
  if (digests instanceof RondoError) return refused(work, report, digests)
  if (work.folded.parks >= host.limits.maxEntries)
    return refused(work, report, new RondoError('LIMIT_ROUNDS'))
  const { requestState } = needs
  const questions = Object.entries(manualRequests(host, report.journal, needs) ?? {}).map(
    ([key, request]) => [key, { request, digest: digests[key] ?? '' }] as const,
  )
  const asks = questions.map(([key]) => ({ key, kind: 'manual' as const }))
  logRound(round, report, { outcome: 'input_required', asks })
  const withState = { ...report, journal: { ...report.journal, manual: requestState } }
  if (questions.length > 0) return parked(work, withState, questions)
  // State alone: nobody is to be asked, so the next turn is due by itself, at the pace of a client (C9).
  const { record } = park([], withState.journal, work.folded.entries, turn.answers)
  await turn.record(sealPiece(host, turn.task, 'record', record))
  return { kind: 'release', delayMs: AGAIN_MS }
}

async function parked(
  { host, turn, folded }: Work,
  { journal }: RunReport,
  questions: readonly (readonly [string, Pick<OpenQuestion, 'request' | 'digest'>])[],
): Promise<Outcome> {
  const { task } = turn
  const { inputs, record } = park(questions, journal, folded.entries, turn.answers)
  await turn.record(sealPiece(host, task, 'record', record))
  return {
    kind: 'park',
    inputs: new Map(
      Array.from(inputs, ([key, request]) => [key, sealPiece(host, task, `input ${key}`, request)]),
    ),
  }
}

/** What the call would have answered is what the task ends with. A tool's own failure is a result (E8). */
function ended(work: Work, reply: Reply): Outcome {
  const { host, turn, round } = work
  const { task } = turn
  if (reply.kind === 'error') {
    const { error } = reply
    // Clients of earlier eras read why they could not be asked in a result, whatever carries the call.
    const readsWhy = error.code === 'PEER_CAPABILITY' && isEarlier(round.call.protocolVersion)
    return readsWhy ? ended(work, concludeUnaskable(round.target, error)) : failed(host, task, error)
  }
  if (reply.kind !== 'complete') throw new Error(`A task cannot end as ${reply.kind}`)
  return { kind: 'complete', result: sealPiece(host, task, 'result', reply.result) }
}

function isEarlier(version: string): boolean {
  return version === DRAFT_VERSION || VERSIONS.includes(version)
}

function failed(host: FlowHost, task: TaskHead, error: RondoError): Outcome {
  const { rpc: code, sentence: message, data } = error
  return { kind: 'fail', error: sealPiece(host, task, 'error', { code, message, data }) }
}
