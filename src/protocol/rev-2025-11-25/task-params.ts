/**
 * Tasks where the client is the one who asks for them: `task: { ttl }` beside the arguments of `tools/call`, and the
 * methods with which it follows one.
 */

import { RondoError } from '../../errors.ts'
import { isRecord } from '../../lib/is-record.ts'
import type { Envelope, FlowCall, TaskCall } from '../call.ts'

type Params = Readonly<Record<string, unknown>>

/** Before this version there were no tasks. */
const SINCE = '2025-11-25'

export function withTaskWish(call: FlowCall, { task }: Params): FlowCall {
  if (task === undefined || call.method !== 'tools/call' || call.protocolVersion < SINCE) return call
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

export function readTask(envelope: Envelope, method: string, params: Params): TaskCall | undefined {
  const action = Object.hasOwn(ACTIONS, method) ? ACTIONS[method] : undefined
  if (action === undefined || envelope.protocolVersion < SINCE) return undefined
  return { kind: 'task', action, taskId: readTaskId(params.taskId), ...envelope }
}

export function readTaskId(value: unknown): string {
  if (typeof value !== 'string') throw new RondoError('PEER_PARAMS', 'The task id must be a string')
  return value
}
