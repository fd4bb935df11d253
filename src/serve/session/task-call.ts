/**
 * What clients of earlier eras do with their tasks. In the draft questions are the answer of `tasks/result`; at 2025-11-25
 * they are pushed while it waits, and say of which task they are.
 */

import type { FlowHost, TaskHost } from '../../carry/host.ts'
import { type AskingLine, type SteadyLine, steadyLine } from '../../carry/push.ts'
import { type AskNow, answerTask, awaitTask, listTasks, respondToTask } from '../../carry/task/call.ts'
import { RondoError } from '../../errors.ts'
import type { Principal, TaskCall, TaskListCall } from '../../protocol/call.ts'
import type { SessionDialect } from '../../protocol/codec.ts'
import type { OlderReply } from '../../protocol/reply.ts'
import { toErrorReply } from '../service.ts'
import type { SessionDraft } from './older.ts'

export interface TaskCallOptions {
  readonly dialect: SessionDialect
  /** Tasks on a page of a list. */
  readonly pageSize: number
  /** Why nobody can be asked, where the client's capabilities are not the reason. */
  readonly unaskable?: string
  /** Lets any instance take the answers of clients that echo states. */
  readonly hand?: ReturnType<SessionDraft['handTask']>
}

export async function answerTaskCall(
  host: FlowHost,
  call: TaskCall | TaskListCall,
  principal: Principal | undefined,
  line: AskingLine,
  options: TaskCallOptions,
): Promise<OlderReply> {
  const { tasks } = host
  if (!tasks) return { kind: 'error', error: new RondoError('PEER_METHOD') }
  try {
    if (call.kind === 'tasks') return await listTasks(host, tasks, call, principal, options.pageSize)
    switch (call.action) {
      case 'respond':
        return await respondToTask(host, tasks, call, principal)
      case 'result':
        return await resultOf(host, tasks, call, principal, line, options)
      case 'cancel':
        return await cancelTask(host, tasks, call, principal)
      default:
        return await answerTask(host, tasks, call, principal)
    }
  } catch (error) {
    return toErrorReply(error, host.log)
  }
}

/** While the client waits it hears that the task is alive, if it asked for progress, and when this server ends. */
async function resultOf(
  host: FlowHost,
  tasks: TaskHost,
  call: TaskCall,
  principal: Principal | undefined,
  line: AskingLine,
  options: TaskCallOptions,
): Promise<OlderReply> {
  const { unaskable } = options
  const steady = steadyLine(line, call.progressToken)
  let goOn = () => {}
  const ended = new Promise<OlderReply>((resolve) => {
    goOn = line.rest({
      alive: () => steady.sign('The task is at work'),
      refuse: (error) => resolve({ kind: 'error', error }),
    })
  })
  try {
    const ask = options.dialect.rounds ? undefined : askerOf(call, principal, line, steady, options)
    return await Promise.race([awaitTask(host, tasks, call, principal, line, { ask, unaskable }), ended])
  } finally {
    goOn()
  }
}

/** The task keeps its question when nobody answers here; the client may come back for it. */
const ANSWER_TIMEOUT_MS = 24 * 60 * 60_000

function askerOf(
  call: TaskCall,
  principal: Principal | undefined,
  line: AskingLine,
  steady: SteadyLine,
  { hand }: TaskCallOptions,
): AskNow {
  const { taskId } = call
  return async (questions, signal) => {
    const asked = await line.ask(questions, {
      timeoutMs: ANSWER_TIMEOUT_MS,
      alive: () => steady.sign('Waiting for an answer'),
      task: taskId,
      handed: line.portable ? await hand?.(call, principal, questions) : undefined,
      signal,
    })
    if (asked.kind === 'answers') return asked.answers
    return asked.kind === 'refused' ? asked.error : new RondoError('PEER_REQUEST', 'The call was cancelled')
  }
}

/** These dialects answer a cancellation with the task, and refuse it where there is nothing left to cancel. */
async function cancelTask(
  host: FlowHost,
  tasks: TaskHost,
  call: TaskCall,
  principal: Principal | undefined,
): Promise<OlderReply> {
  const get: TaskCall = { ...call, action: 'get' }
  const before = await answerTask(host, tasks, get, principal)
  if (before.kind === 'task' && before.task.status !== 'working' && before.task.status !== 'input_required') {
    return {
      kind: 'error',
      error: new RondoError('PEER_TASK', `The task cannot be cancelled: it is ${before.task.status}`),
    }
  }
  const reply = await answerTask(host, tasks, call, principal)
  return reply.kind === 'error' ? reply : answerTask(host, tasks, get, principal)
}
