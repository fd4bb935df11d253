/**
 * A call becomes a task: its journal moves from the token into the store, and a worker continues from there. A task never
 * becomes a call again (D9).
 */

import { RondoError } from '../../errors.ts'
import type { Journal } from '../../journal/journal.ts'
import { nameCapabilities } from '../../protocol/common/request.ts'
import type { Reply } from '../../protocol/reply.ts'
import { TASKS_EXTENSION } from '../../protocol/task.ts'
import type { RunReport } from '../../replay/run-state.ts'
import { createTaskId } from '../../store/task-engine.ts'
import type { Target } from '../../tool/target.ts'
import { type Round, solicited } from '../carrier.ts'
import type { TaskHost } from '../host.ts'
import { followsTask, taskHostFor } from '../leave.ts'
import { concludeRefused, logRound } from '../round.ts'
import { spansOf } from '../round-log.ts'
import { needOfTarget, noteScopes } from '../scope.ts'
import { toTaskState } from './call.ts'
import { ownerOf, sealPiece, type TaskPlan, type TaskRecord } from './journal.ts'
import { toHandleReply } from './tools.ts'

/** Begins a task with the first request if the tool says so, or refuses a client that cannot follow it. */
export function beginAtOnce(round: Round, brings: boolean): Reply | Promise<Reply> | undefined {
  const { target, beginning } = round
  const tasks = taskHostFor(round)
  if (tasks && target.task.mode !== 'late') return beginTask(round, tasks, beginning.journal, brings)
  return target.task.mode === 'always' ? concludeRefused(round, undefined, cannotFollow(target)) : undefined
}

function cannotFollow({ name }: Target): RondoError {
  const data = { requiredCapabilities: { extensions: { [TASKS_EXTENSION]: {} } } }
  const detail = `"${name}" runs only as a task, and this client lacks the capability ${nameCapabilities(data.requiredCapabilities)} to follow one. Nothing was done.`
  return new RondoError('PEER_CAPABILITY', detail, { data })
}

/** How long the task lives: as long as the tool says, or shorter if the client asks for that. */
function ttlOf({ call, target }: Round, tasks: TaskHost): number {
  const ttlMs = target.task.ttlMs ?? tasks.ttlMs
  return call.task?.ttlMs === undefined ? ttlMs : Math.min(ttlMs, call.task.ttlMs)
}

/** Answers that came with this request and that no run has used. Unasked ones are kept too: the question decides if they count. */
function broughtBy({ call, beginning }: Round): TaskPlan['brought'] {
  const { anchored, asked } = beginning
  const answers = solicited(beginning, call.inputResponses)
  return answers && { answers: answers as Readonly<Record<string, unknown>>, asked, unasked: !anchored }
}

/** Continues a call as a task after a run. */
export function continueAsTask(round: Round, { journal }: RunReport): Promise<Reply> {
  const tasks = taskHostFor(round)
  if (!tasks) throw new RondoError('SERVER_INTERNAL', 'This call cannot continue as a task')
  // Answers are in the journal by now; the manual form reads them again from the request.
  return beginTask(round, tasks, journal, journal.manual !== undefined)
}

/** `brings`: the request's own responses have not been used yet. */
async function beginTask(
  round: Round,
  tasks: TaskHost,
  { entries, reasks, manual, deadlines }: Journal,
  brings: boolean,
): Promise<Reply> {
  const { host, call, target, principal, beginning } = round
  await host.keys.ready()
  const id = createTaskId(noteScopes(await needOfTarget(target, call.args)))
  const owner = ownerOf(host, principal)
  const { method, args, protocolVersion, capabilities, clientInfo, relatedTaskIds } = call
  const plan: TaskPlan = {
    flow: beginning.flow,
    seed: beginning.journal.seed,
    startedAt: beginning.journal.startedAt,
    round: beginning.round,
    toolVersion: target.version,
    ...spansOf(round),
    epoch: beginning.journal.epoch ?? (await host.store?.once.epoch()),
    principal,
    noted: { reasks, manual, deadlines },
    brought: brings ? broughtBy(round) : undefined,
    call: { method, target: call.target, args, protocolVersion, capabilities, clientInfo, relatedTaskIds },
  }
  const view = await tasks.engine.create({
    id,
    owner,
    head: sealPiece(host, { id, owner }, 'head', plan),
    ttlMs: ttlOf(round, tasks),
    pollMs: target.task.pollMs ?? tasks.pollMs,
    // If this reply is lost, a call with a state is sent again with the same state, so its keys stay the same (R6).
    known: call.requestState !== undefined,
    journal: entries.map((entry) => sealPiece(host, { id, owner }, 'record', { entry } satisfies TaskRecord)),
  })
  logRound(round, undefined, { outcome: 'task', task: id })
  const task = toTaskState(host, tasks, owner, view)
  return followsTask(call) ? { kind: 'task_created', task } : toHandleReply(target, task)
}
