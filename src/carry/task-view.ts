/**
 * A task in the store as its owner may see it.
 */

import { RondoError } from '../errors.ts'
import { missingCapability, nameCapabilities } from '../protocol/capability.ts'
import type { TaskState } from '../protocol/task.ts'
import type { ClientCapabilities, InputRequest, InputRequests } from '../protocol/wire.ts'
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

/**
 * The part of a task that a request may see: input requests only of the kinds and modes that it declares itself (B10),
 * whoever began the task. What is left out is named, so that the client knows what to declare.
 */
export function visibleTo(capabilities: ClientCapabilities, task: TaskState): TaskState {
  const entries = Object.entries(task.inputRequests ?? {})
  const shown = entries.filter(([, request]) => missingCapability(capabilities, request) === undefined)
  if (shown.length === entries.length) return task
  const statusMessage = [task.statusMessage, undeclared(capabilities, task).sentence]
  return {
    ...task,
    inputRequests: Object.fromEntries(shown),
    statusMessage: statusMessage.filter((part) => part !== undefined).join(' '),
  }
}

/** Why a request does not see all that a task asks. */
export function undeclared(
  capabilities: ClientCapabilities,
  { inputRequests = {} }: TaskState,
  why?: string,
): RondoError {
  const names = new Set<string>()
  for (const request of Object.values(inputRequests)) {
    const missing = missingCapability(capabilities, request)
    if (missing !== undefined) names.add(nameCapabilities(missing))
  }
  const sentence = `The task waits for input that needs ${[...names].join(', ')}, which this request does not declare.`
  return new RondoError('PEER_TASK', why === undefined ? sentence : `${sentence} ${why}`)
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
