/**
 * What our client receives about tasks at 2025-11-25 and in the draft: the call that it wanted as a task is answered with
 * one, its state has no content, and `tasks/result` brings what the call would have answered.
 */

import { isRecord } from '../../lib/is-record.ts'
import type { Call, FlowCall, TaskCall } from '../call.ts'
import type { Decoded } from '../rev-2026-07-28/decode-response.ts'
import { decodeTask } from '../rev-2026-07-28/decode-task.ts'
import type { TaskState } from '../task.ts'

/** `decode` reads the answers that have nothing to do with tasks. */
export function decodeWithTasks(
  call: Call,
  message: unknown,
  decode: (call: Call, message: unknown) => Decoded,
): Decoded {
  if (call.kind === 'task') return decodeAboutTask(call, message, decode)
  const result = isRecord(message) ? message.result : undefined
  if (call.kind !== 'flow' || call.task === undefined || !isRecord(result) || result.task === undefined) {
    return decode(call, message)
  }
  const task = decodeHead(result.task)
  return task ? { kind: 'task', task } : { kind: 'invalid', problem: 'it lacks what a task has' }
}

function decodeAboutTask(
  call: TaskCall,
  message: unknown,
  decode: (call: Call, message: unknown) => Decoded,
): Decoded {
  if (call.action === 'result') {
    const asCall: FlowCall = { ...call, kind: 'flow', method: 'tools/call', target: '', args: {} }
    return decode(asCall, message)
  }
  const decoded = decode({ ...call, action: 'update' }, message)
  if (call.action !== 'get' || decoded.kind !== 'complete') return decoded
  const task = decodeHead(decoded.result)
  if (task?.taskId === call.taskId) return { kind: 'task', task }
  return { kind: 'invalid', problem: 'it is not the task that was asked for' }
}

function decodeHead(value: unknown): TaskState | undefined {
  if (!isRecord(value)) return undefined
  return decodeTask({ ...value, ttlMs: value.ttl, pollIntervalMs: value.pollInterval }, 'head')
}
