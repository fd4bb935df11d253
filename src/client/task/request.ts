/** The three requests about a task. What is unknown to the server, foreign or expired is its error. */

import { RondoError } from '../../errors.ts'
import { displayText } from '../../form/clean-text.ts'
import { TASKS_EXTENSION, type TaskState } from '../../protocol/task.ts'
import type { InputResponses } from '../../protocol/wire.ts'
import { type Peer, PeerError, type SendOptions } from '../peer.ts'

/** One task of the server, known by its id alone. */
export interface TaskHandle {
  /** How it stands: its open questions (not at 2025-11-25), its result or its error are inside. */
  get(options?: TaskRequestOptions): Promise<TaskState>
  /** Answers questions by key, all or some. The first answer to a key counts; unknown keys have no effect. */
  answer(
    answers: InputResponses,
    options?: TaskRequestOptions & {
      /** In `DRAFT-2026-v1`: the `requestState` that came with the questions. */
      readonly requestState?: string
    },
  ): Promise<void>
  /** Asks the server to end it. One that has ended stays as it is. */
  cancel(options?: TaskRequestOptions): Promise<void>
}

export interface TaskRequestOptions {
  readonly signal?: AbortSignal
  readonly timeoutMs?: number
}

const FOLLOWS: SendOptions = { capabilities: { extensions: { [TASKS_EXTENSION]: {} } } }

export function taskHandle(peer: Peer, taskId: string): TaskHandle {
  return {
    get: (options) => getTask(peer, taskId, { ...FOLLOWS, ...options }),
    answer: (answers, options) => updateTask(peer, taskId, answers, { ...FOLLOWS, ...options }),
    cancel: (options) => cancelTask(peer, taskId, { ...FOLLOWS, ...options }),
  }
}

export async function getTask(peer: Peer, taskId: string, options: SendOptions): Promise<TaskState> {
  const received = await peer.send({ kind: 'task', action: 'get', taskId }, options)
  if (received.kind === 'error') throw new PeerError(received.error)
  if (received.kind !== 'task') throw new RondoError('PEER_ANSWER', 'The answer to tasks/get is not a task')
  const task = toShown(received.task)
  const { status } = task
  const ended = status === 'completed' || status === 'failed'
  const asks = status === 'input_required' && peer.dialect.tasks === 'asked'
  return peer.dialect.tasks !== 'declared' && (ended || asks) ? withContent(peer, task, options) : task
}

/** Where the state of a task has no content, `tasks/result` has it, at once unless the task works or pushes questions. */
export async function withContent(peer: Peer, task: TaskState, options: SendOptions): Promise<TaskState> {
  const { taskId } = task
  const received = await peer.send({ kind: 'task', action: 'result', taskId }, options)
  switch (received.kind) {
    case 'error':
      return { ...task, status: 'failed', error: received.error }
    case 'input_required':
      return {
        ...task,
        status: 'input_required',
        inputRequests: received.questions,
        ...(received.state !== undefined && { requestState: received.state }),
      }
    case 'complete':
      return { ...task, status: 'completed', result: received.result }
    default:
      throw new RondoError('PEER_ANSWER', 'The answer to tasks/result is a task')
  }
}

/** A task that asks nothing is not answered: it has its answers, or it has ended, and the next look will tell. */
const ASKS_NOTHING = -32602

export async function updateTask(
  peer: Peer,
  taskId: string,
  inputResponses: InputResponses,
  { requestState, ...options }: SendOptions & { readonly requestState?: string },
): Promise<void> {
  if (peer.dialect.tasks === 'pushed') {
    const how = 'follow it with client.finish or client.resume, whose handlers answer'
    throw new RondoError(
      'PEER_ERA',
      `At ${peer.dialect.version} a task asks while its result is waited for: ${how}`,
    )
  }
  const asked = peer.dialect.tasks === 'asked'
  const action = asked ? 'respond' : 'update'
  const state = asked && requestState !== undefined && { requestState }
  const received = await peer.send({ kind: 'task', action, taskId, inputResponses, ...state }, options)
  if (received.kind !== 'error' || (asked && received.error.code === ASKS_NOTHING)) return
  throw new PeerError(received.error)
}

async function cancelTask(peer: Peer, taskId: string, options: SendOptions): Promise<void> {
  const received = await peer.send({ kind: 'task', action: 'cancel', taskId }, options)
  if (received.kind !== 'error') return
  // Where the client asks for tasks, the server refuses to cancel one that has ended.
  const look =
    peer.dialect.tasks === 'declared'
      ? undefined
      : await peer.send({ kind: 'task', action: 'get', taskId }, options)
  if (look?.kind !== 'task' || !hasEnded(look.task)) throw new PeerError(received.error)
}

function hasEnded({ status }: TaskState): boolean {
  return status !== 'working' && status !== 'input_required'
}

/** The message is for people to read. */
export function toShown(task: TaskState): TaskState {
  const { statusMessage } = task
  return statusMessage === undefined ? task : { ...task, statusMessage: displayText(statusMessage) }
}

const FAREWELL_MS = 2_000

/** Tells the server, once and not for long, that nobody wants this task any more. */
export async function dropTask(peer: Peer, taskId: string): Promise<void> {
  await cancelTask(peer, taskId, { ...FOLLOWS, timeoutMs: FAREWELL_MS }).catch((error) =>
    peer.onWarning(`The task ${taskId} could not be cancelled: ${String(error)}`),
  )
}
