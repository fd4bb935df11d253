/**
 * A response to our client in the draft. It differs from 2026-07-28 in tasks: the client asks for one, its state has no
 * content, and `tasks/result` brings the questions or the result (D1 to D5).
 */

import { isRecord } from '../../lib/is-record.ts'
import type { Call, FlowCall } from '../call.ts'
import { type Decoded, decodeResponse as decodeLater } from '../rev-2026-07-28/decode-response.ts'
import { decodeTask } from '../rev-2026-07-28/decode-task.ts'
import type { TaskState } from '../task.ts'

export function decodeResponse(call: Call, message: unknown): Decoded {
  if (call.kind === 'task') return decodeAboutTask(call, message)
  const result = isRecord(message) ? message.result : undefined
  if (call.kind !== 'flow' || call.task === undefined || !isRecord(result) || result.task === undefined) {
    return decodeLater(call, message)
  }
  const task = decodeHead(result.task)
  return task ? { kind: 'task', task } : { kind: 'invalid', problem: 'it lacks what a task has' }
}

function decodeAboutTask(call: Extract<Call, { kind: 'task' }>, message: unknown): Decoded {
  if (call.action === 'result') {
    // What the call would have answered, or the questions of the task.
    const asCall: FlowCall = { ...call, kind: 'flow', method: 'tools/call', target: '', args: {} }
    return decodeLater(asCall, message)
  }
  const decoded = decodeLater({ ...call, action: 'update' }, message)
  if (call.action !== 'get' || decoded.kind !== 'complete') return decoded
  const task = decodeHead(decoded.result)
  if (task?.taskId === call.taskId) return { kind: 'task', task }
  return { kind: 'invalid', problem: 'it is not the task that was asked for' }
}

function decodeHead(value: unknown): TaskState | undefined {
  if (!isRecord(value)) return undefined
  return decodeTask({ ...value, ttlMs: value.ttl, pollIntervalMs: value.pollInterval }, 'head')
}
