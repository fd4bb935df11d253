/**
 * A task in the store as its owner may see it.
 */

import type { TaskState } from '../protocol/task.ts'
import type { InputRequest, InputRequests } from '../protocol/wire.ts'
import type { TaskView } from '../store/task-engine.ts'
import type { FlowHost, TaskHost } from './flow-host.ts'
import { openPiece } from './task-host.ts'

/** A worker died too often under this task; there is nothing of its own to tell. */
const DIED = { code: -32603, message: 'The task could not be finished' }

export function toTaskState(host: FlowHost, tasks: TaskHost, view: TaskView): TaskState {
  const { id, status } = view
  const open = <T>(piece: 'message' | 'result' | 'error', sealed: string | undefined): T | undefined =>
    sealed === undefined ? undefined : openPiece<T>(host, tasks, id, piece, sealed)
  return {
    taskId: id,
    status,
    statusMessage: open('message', view.message),
    createdAt: view.createdAt,
    lastUpdatedAt: view.updatedAt,
    ttlMs: view.expiresAt - view.createdAt,
    pollIntervalMs: view.pollMs,
    inputRequests: status === 'input_required' ? openInputs(host, tasks, view) : undefined,
    result: open('result', view.result),
    error: status === 'failed' ? (open('error', view.error) ?? DIED) : undefined,
  }
}

function openInputs(host: FlowHost, tasks: TaskHost, { id, inputs }: TaskView): InputRequests {
  const requests: Record<string, InputRequest> = {}
  for (const [key, sealed] of inputs) requests[key] = openPiece(host, tasks, id, 'input', sealed)
  return requests
}
