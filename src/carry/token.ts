/**
 * The token carrier: between rounds the journal is in the client's hands, sealed, as `requestState`. Nothing is kept
 * here; any instance with the keys takes the next round.
 */

import { RondoError } from '../errors.ts'
import type { FlowCall, Line, Principal } from '../protocol/call.ts'
import type { Reply } from '../protocol/reply.ts'
import type { InputRequest } from '../protocol/wire.ts'
import type { MoveReason, OpenQuestion, RunReport } from '../replay/outcome.ts'
import { replay } from '../replay/replay.ts'
import { verify } from '../replay/verify.ts'
import { type InputRequired, isInputRequired } from '../tool/input-required.ts'
import type { Target } from '../tool/target.ts'
import { beginTask, cannotFollow } from './begin-task.ts'
import { concludeArguments, concludeRefused, concludeReturned, concludeThrew } from './conclude.ts'
import type { FlowHost } from './flow-host.ts'
import { manualDigests, manualRequests } from './manual.ts'
import { openRound } from './open-round.ts'
import { type Round, toReplayInput } from './round.ts'
import { answerOnce } from './single-use.ts'
import { unspill } from './spill.ts'
import { leave, suspend, tryToLeave } from './suspend.ts'
import { taskHostFor } from './task-host.ts'

/** Runs one round of a call. Rejects only with a `RondoError`. */
export async function runRound(
  host: FlowHost,
  target: Target,
  call: FlowCall,
  principal: Principal | undefined,
  line: Line,
): Promise<Reply> {
  const loading = host.keys.ready()
  if (loading) await loading
  const began = host.platform.now()
  const opening = openRound(host, call, principal)
  const opened = opening instanceof Promise ? await opening : opening
  return await runOpened({ host, call, target, principal, line, beginning: opened, began })
}

/** Runs a round whose state has passed every check, whatever keeps it in the end. */
export async function runOpened(opened: Round): Promise<Reply> {
  const { host, call, target } = opened
  const round = opened.beginning.journal.spilled === undefined ? opened : await fetchJournal(opened)
  if (!target.once || !host.store) return await runFrom(round)
  return await answerOnce(host, host.store.once, call, round.beginning, () => runFrom(round))
}

async function fetchJournal(round: Round): Promise<Round> {
  const { host, beginning } = round
  const journal = await unspill(host, host.store?.blobs, beginning.journal)
  return { ...round, beginning: { ...beginning, journal } }
}

async function runFrom(round: Round): Promise<Reply> {
  const { host, call, target, beginning } = round
  const preparing = target.prepare(call.args)
  const prepared = preparing instanceof Promise ? await preparing : preparing
  if (prepared.kind === 'refused') return concludeArguments(round, prepared.problem)
  const tasks = taskHostFor(round)
  if (target.task.mode === 'always' && !tasks) return concludeRefused(round, undefined, cannotFollow(target))
  if (tasks && target.task.mode !== 'late') return beginTask(round, tasks, beginning.journal, true)
  const input = toReplayInput(round, prepared.run)
  const first = await replay(input)
  const reply = settle(round, host.dev ? await verify(input, first) : first)
  return reply instanceof Promise ? await reply : reply
}

function settle(round: Round, report: RunReport): Reply | Promise<Reply> {
  const { ending } = report
  switch (ending.kind) {
    case 'returned':
      if (isInputRequired(ending.value)) return suspendManually(round, report, ending.value)
      return concludeReturned(round, report, ending.value)
    case 'threw':
      return concludeThrew(round, report, ending.error)
    case 'refused':
      return concludeRefused(round, report, ending.error)
    case 'background':
      return leave(round, report)
    case 'moved':
      return move(round, report, ending.reason)
    case 'asking':
      return suspendAsking(round, report, ending.questions)
  }
}

/** A call that takes long goes on as a task, where it can be one; any other move is the client's next round. */
function move(round: Round, report: RunReport, reason: MoveReason): Reply | Promise<Reply> {
  const journal = { ...report.journal, moves: report.journal.moves + 1 }
  const suspended = () => suspend(round, report, { journal, asked: {} }, { outcome: 'moved', moved: reason })
  if (reason !== 'time' || !taskHostFor(round)) return suspended()
  return tryToLeave(round, report).then((reply) => reply ?? suspended())
}

function suspendAsking(
  round: Round,
  report: RunReport,
  questions: ReadonlyMap<string, OpenQuestion>,
): Reply | Promise<Reply> {
  const asked: Record<string, string> = {}
  const inputRequests: Record<string, InputRequest> = {}
  const asks: { key: string; kind: OpenQuestion['kind'] }[] = []
  for (const [key, { digest, request, kind }] of questions) {
    asked[key] = digest
    inputRequests[key] = request
    asks.push({ key, kind })
  }
  const { journal } = report
  return suspend(round, report, { journal, asked, inputRequests }, { outcome: 'input_required', asks })
}

function suspendManually(round: Round, report: RunReport, needs: InputRequired): Reply | Promise<Reply> {
  const asked = manualDigests(round.host, needs, round.call.capabilities)
  if (asked instanceof RondoError) return concludeRefused(round, report, asked)
  const asks = Object.keys(asked).map((key) => ({ key, kind: 'manual' as const }))
  const journal = { ...report.journal, manual: needs.requestState }
  const inputRequests = manualRequests(round.host, journal, needs)
  return suspend(round, report, { journal, asked, inputRequests }, { outcome: 'input_required', asks })
}
