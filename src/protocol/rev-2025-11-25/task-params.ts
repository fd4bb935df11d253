/**
 * Tasks where the client is the one who asks for them: `task: { ttl }` beside the arguments of `tools/call`, and the
 * methods with which it follows one.
 */

import { RondoError } from '../../errors.ts'
import { isRecord } from '../../lib/is-record.ts'
import type { Envelope, FlowCall, TaskCall } from '../call.ts'
import type { TaskListCall } from '../session-call.ts'

type Params = Readonly<Record<string, unknown>>

/** Before this version there were no tasks. Draft labels sort after dates. */
const SINCE = '2025-11-25'

/** True if a client of this version could ask for a task. */
export function hasTasks(version: string): boolean {
  return version >= SINCE
}

export function withTaskWish(call: FlowCall, { task }: Params): FlowCall {
  if (task === undefined || call.method !== 'tools/call' || !hasTasks(call.protocolVersion)) return call
  if (!isRecord(task)) throw new RondoError('PEER_PARAMS', 'params.task must be an object')
  const { ttl } = task
  if (
    ttl !== undefined &&
    ttl !== null &&
    !(typeof ttl === 'number' && Number.isSafeInteger(ttl) && ttl > 0)
  ) {
    throw new RondoError('PEER_PARAMS', 'params.task.ttl must be a positive number of milliseconds')
  }
  return { ...call, task: typeof ttl === 'number' ? { ttlMs: ttl } : {} }
}

const ACTIONS: Readonly<Record<string, TaskCall['action']>> = {
  'tasks/get': 'get',
  'tasks/result': 'result',
  'tasks/cancel': 'cancel',
}

export function readTask(
  envelope: Envelope,
  method: string,
  params: Params,
): TaskCall | TaskListCall | undefined {
  if (!hasTasks(envelope.protocolVersion)) return undefined
  if (method === 'tasks/list') return readTaskList(envelope, params)
  const action = Object.hasOwn(ACTIONS, method) ? ACTIONS[method] : undefined
  if (action === undefined) return undefined
  return { kind: 'task', action, taskId: readTaskId(params.taskId), ...envelope }
}

function readTaskList(envelope: Envelope, { cursor }: Params): TaskListCall {
  if (cursor !== undefined && typeof cursor !== 'string') {
    throw new RondoError('PEER_PARAMS', 'params.cursor must be a string')
  }
  return { kind: 'tasks', cursor, ...envelope }
}

export function readTaskId(value: unknown): string {
  if (typeof value !== 'string') throw new RondoError('PEER_PARAMS', 'The task id must be a string')
  return value
}
