/**
 * The task methods of older clients. In the draft, `tasks/result` returns the open questions; at 2025-11-25 they are
 * pushed while it waits, marked with their task.
 */

import type { FlowHost, TaskHost } from '../carry/host.ts'
import type { AskingLine } from '../carry/push.ts'
import { type AskNow, awaitTask, handleTask, listTasks, respondToTask } from '../carry/task/call.ts'
import { RondoError } from '../errors.ts'
import type { Principal, TaskCall, TaskListCall } from '../protocol/call.ts'
import type { SessionDialect } from '../protocol/codec.ts'
import type { Observed } from '../protocol/observer.ts'
import type { OlderReply } from '../protocol/reply.ts'
import { toErrorReply } from '../serve/failure.ts'
import type { SessionDraft } from './older.ts'

interface TaskCallOptions {
  readonly dialect: SessionDialect
  /** Tasks per page of a list. */
  readonly pageSize: number
  /** The reason why nobody can be asked, unless the reason is missing capabilities. */
  readonly unaskable?: string
  /** Seals the questions, so that any instance can accept the answers of a client that echoes states. */
  readonly hand?: ReturnType<SessionDraft['handTask']>
  /** Telemetry of the request. Its questions carry its trace context, and the turn that they wake is linked to it. */
  readonly observed?: Observed
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
      case 'update':
        return await respondToTask(host, tasks, call, principal, options.observed?.span)
      case 'result':
        return await resultOf(host, tasks, call, principal, line, options)
      case 'cancel':
        return await cancelTask(host, call, principal)
      default:
        return await handleTask(host, call, principal)
    }
  } catch (error) {
    return toErrorReply(error, host)
  }
}

/** While it waits, the client gets heartbeats, if it asked for progress, and an error if this server stops. */
async function resultOf(
  host: FlowHost,
  tasks: TaskHost,
  call: TaskCall,
  principal: Principal | undefined,
  line: AskingLine,
  options: TaskCallOptions,
): Promise<OlderReply> {
  const { unaskable, observed } = options
  let stopResting = () => {}
  const stopped = new Promise<OlderReply>((resolve) => {
    stopResting = line.rest({
      task: call.taskId,
      refuse: (error) => resolve({ kind: 'error', error }),
    })
  })
  try {
    const ask = options.dialect.rounds ? undefined : askerOf(call, principal, line, options)
    const terms = { ask, unaskable, span: observed?.span }
    return await Promise.race([awaitTask(host, tasks, call, principal, line, terms), stopped])
  } finally {
    stopResting()
  }
}

/** After this time the task still has its question, and the client may call `tasks/result` again. */
const ANSWER_TIMEOUT_MS = 24 * 60 * 60_000

function askerOf(
  call: TaskCall,
  principal: Principal | undefined,
  line: AskingLine,
  { hand, observed }: TaskCallOptions,
): AskNow {
  const { taskId } = call
  return async (questions, signal) => {
    const asked = await line.ask(questions, {
      timeoutMs: ANSWER_TIMEOUT_MS,
      task: taskId,
      trace: observed?.trace,
      handed: line.portable ? await hand?.(call, principal, questions) : undefined,
      signal,
    })
    if (asked.kind === 'answers') return asked
    if (asked.kind === 'gone' || asked.kind === 'left')
      return { kind: 'failed', error: new RondoError('PEER_REQUEST', 'The call was cancelled') }
    return asked.unable === undefined
      ? { kind: 'failed', error: asked.error }
      : { kind: 'unable', key: asked.unable }
  }
}

/** In these dialects the result of a cancellation is the task, and a task that has ended cannot be cancelled. */
async function cancelTask(
  host: FlowHost,
  call: TaskCall,
  principal: Principal | undefined,
): Promise<OlderReply> {
  const get: TaskCall = { ...call, action: 'get' }
  const before = await handleTask(host, get, principal)
  if (before.kind === 'task' && before.task.status !== 'working' && before.task.status !== 'input_required') {
    return {
      kind: 'error',
      error: new RondoError('PEER_TASK', `The task cannot be cancelled: its status is ${before.task.status}`),
    }
  }
  await handleTask(host, call, principal)
  return handleTask(host, get, principal)
}
