/**
 * A task in the store as its owner may see it.
 */

import type { TaskState } from '../protocol/task.ts'
import type { InputRequest, InputRequests } from '../protocol/wire.ts'
import type { TaskOwner, TaskView } from '../store/task-engine.ts'
import type { FlowHost, TaskHost } from './flow-host.ts'
import { openPiece, type Piece } from './task-host.ts'

/** A worker died too often under this task; there is nothing of its own to tell. */
const DIED = { code: -32603, message: 'The task could not be finished' }

export function toTaskState(host: FlowHost, tasks: TaskHost, owner: TaskOwner, view: TaskView): TaskState {
  const { id, status } = view
  const open = <T>(piece: Piece, sealed: string | undefined): T | undefined =>
    sealed === undefined ? undefined : openPiece<T>(host, tasks, { id, owner }, piece, sealed)
  return {
    taskId: id,
    status,
    statusMessage: quietly(() => open('message', view.message)),
    createdAt: view.createdAt,
    lastUpdatedAt: view.updatedAt,
    ttlMs: view.expiresAt - view.createdAt,
    pollIntervalMs: view.pollMs,
    inputRequests: status === 'input_required' ? openInputs(host, tasks, owner, view) : undefined,
    result: open('result', view.result),
    error: status === 'failed' ? (open('error', view.error) ?? DIED) : undefined,
  }
}

/** The task as its owner may see it, or nothing where it cannot be read; what other tasks say does not depend on it. */
export function readableState(
  host: FlowHost,
  tasks: TaskHost,
  owner: TaskOwner,
  view: TaskView,
): TaskState | undefined {
  return quietly(() => toTaskState(host, tasks, owner, view))
}

/** What does not open has been logged. */
function quietly<T>(read: () => T): T | undefined {
  try {
    return read()
  } catch {
    return undefined
  }
}

function openInputs(
  host: FlowHost,
  tasks: TaskHost,
  owner: TaskOwner,
  { id, inputs }: TaskView,
): InputRequests {
  const requests: Record<string, InputRequest> = {}
  for (const [key, sealed] of inputs)
    requests[key] = openPiece(host, tasks, { id, owner }, `input ${key}`, sealed)
  return requests
}
