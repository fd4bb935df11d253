/**
 * Following a task where the client waits for its end instead of looking now and then: `tasks/result` of 2025-11-25 and of
 * the draft (D3 to D7). In the draft open questions are the answer; at 2025-11-25 they are pushed while the client waits.
 */

import { RondoError } from '../errors.ts'
import type { Line, Principal, TaskCall } from '../protocol/call.ts'
import type { OlderReply } from '../protocol/older-reply.ts'
import { relatedTask } from '../protocol/rev-2025-11-25/task-result.ts'
import type { TaskState } from '../protocol/task.ts'
import type { InputRequests } from '../protocol/wire.ts'
import type { TaskOwner, TaskView } from '../store/task-engine.ts'
import { answerFits } from '../tool/answer-fits.ts'
import type { FlowHost, TaskHost } from './flow-host.ts'
import { ownerOf, type PieceOf, sealPiece } from './task-host.ts'
import { toTaskState, undeclared, visibleTo } from './task-view.ts'

type Answers = Readonly<Record<string, unknown>>

/** Gets the answers to questions from the client on the line, until `signal` fires; gives an error where none will come. */
export type AskNow = (questions: InputRequests, signal: AbortSignal) => Promise<Answers | RondoError>

export interface AwaitOptions {
  readonly ask?: AskNow
  /** Why nobody can be asked, where the client's capabilities are not the reason. */
  readonly unaskable?: string
}

const UNKNOWN: OlderReply = { kind: 'error', error: new RondoError('PEER_TASK') }

/** Waits until the task has ended or asks; with `ask` it goes on after the answers. */
export async function awaitTask(
  host: FlowHost,
  tasks: TaskHost,
  { taskId, capabilities }: TaskCall,
  principal: Principal | undefined,
  line: Line,
  { ask, unaskable }: AwaitOptions = {},
): Promise<OlderReply> {
  await host.keys.ready()
  const owner = ownerOf(host, principal)
  const shown = new Set<string>()
  for (;;) {
    const view = await settledView(tasks, taskId, owner, line)
    if (!view) return UNKNOWN
    const whole = toTaskState(host, tasks, owner, view)
    const state = visibleTo(capabilities, whole)
    const fresh = Object.entries(state.inputRequests ?? {}).filter(([key]) => !shown.has(key))
    if (fresh.length === 0 && state !== whole)
      return { kind: 'error', error: undeclared(capabilities, whole, unaskable) }
    if (state.status !== 'input_required' || !ask || fresh.length === 0) return toReply(state)
    for (const [key] of fresh) shown.add(key)
    const questions = Object.fromEntries(fresh)
    const answers = await askWhileOpen(tasks, taskId, owner, (signal) => ask(questions, signal))
    if (answers === undefined) continue
    if (answers instanceof RondoError) return { kind: 'error', error: answers }
    await deliverAnswers(host, tasks, taskId, principal, answers)
  }
}

/** Hands answers to a task; those to questions that are closed change nothing. */
export async function deliverAnswers(
  host: FlowHost,
  tasks: TaskHost,
  taskId: string,
  principal: Principal | undefined,
  answers: Answers,
): Promise<void> {
  const owner = ownerOf(host, principal)
  await tasks.engine.deliver(taskId, owner, sealAnswers(host, { id: taskId, owner }, answers))
}

/** Asks as long as the task does: somebody else may answer or cancel it meanwhile. Gives undefined then. */
async function askWhileOpen<T>(
  { engine }: TaskHost,
  id: string,
  owner: TaskOwner,
  ask: (signal: AbortSignal) => Promise<T>,
): Promise<T | undefined> {
  const over = new AbortController()
  const stop = await engine.watch([id], owner, (_id, view) => {
    if (view?.status !== 'input_required') over.abort()
  })
  try {
    if (over.signal.aborted) return undefined
    const asked = await ask(over.signal)
    return over.signal.aborted ? undefined : asked
  } finally {
    stop()
  }
}

/** The task once it does not work any more, or as it is when the client goes. */
async function settledView(
  { engine }: TaskHost,
  id: string,
  owner: TaskOwner,
  line: Line,
): Promise<TaskView | undefined> {
  let settle: (view: TaskView | undefined) => void = () => {}
  const settled = new Promise<TaskView | undefined>((resolve) => {
    settle = resolve
  })
  const leave = line.onClose(() => settle(undefined))
  try {
    const stop = await engine.watch([id], owner, (_id, view) => {
      if (view?.status !== 'working') settle(view)
    })
    return await settled.finally(stop)
  } finally {
    leave()
  }
}

function toReply({ status, taskId, inputRequests, result, error }: TaskState): OlderReply {
  const _meta = relatedTask(taskId)
  switch (status) {
    case 'completed': {
      const own = result?._meta
      return {
        kind: 'complete',
        result: { ...result, _meta: { ...(typeof own === 'object' ? own : {}), ..._meta } },
      }
    }
    case 'failed':
      return { kind: 'task_failed', error: error ?? { code: -32603, message: 'The task failed' } }
    case 'cancelled':
      return { kind: 'error', error: new RondoError('PEER_TASK', 'The task was cancelled') }
    default:
      return { kind: 'input_required', inputRequests, _meta }
  }
}

/** Answers that help are delivered, others are acknowledged and change nothing (D6). */
export async function respondToTask(
  host: FlowHost,
  tasks: TaskHost,
  { taskId, inputResponses = {} }: TaskCall,
  principal: Principal | undefined,
): Promise<OlderReply> {
  await host.keys.ready()
  const owner = ownerOf(host, principal)
  const view = await tasks.engine.get(taskId, owner)
  if (!view) return UNKNOWN
  const { status, inputRequests = {} } = toTaskState(host, tasks, owner, view)
  if (status !== 'input_required') {
    return { kind: 'error', error: new RondoError('PEER_TASK', `The task asks nothing: it is ${status}`) }
  }
  const useful = Object.entries(inputResponses).filter(([key, answer]) => {
    const request = Object.hasOwn(inputRequests, key) ? inputRequests[key] : undefined
    return request !== undefined && answerFits(request, answer)
  })
  await deliverAnswers(host, tasks, taskId, principal, Object.fromEntries(useful))
  return { kind: 'complete', result: { _meta: relatedTask(taskId) } }
}

function sealAnswers(host: FlowHost, of: PieceOf, answers: Answers): Map<string, string> {
  return new Map(
    Object.entries(answers).map(([key, answer]) => [key, sealPiece(host, of, `answer ${key}`, answer)]),
  )
}
