/**
 * The requests about a task, and what revisions do differently about tasks: one `TaskStrategy` per dialect.
 *
 * | strategy        | who makes a call a task                    | its questions                               |
 * | --------------- | ------------------------------------------ | ------------------------------------------- |
 * | `DECLARED_TASKS` | the server, where the client declares tasks | come with `tasks/get`                      |
 * | `PUSHED_TASKS`  | the client asks for one                    | are pushed while `tasks/result` is awaited  |
 * | `NO_TASKS`      | nobody                                     |                                             |
 *
 * A draft brings its own.
 */

import { RondoError } from '../../errors.ts'
import { displayText } from '../../form/clean-text.ts'
import { isRecord } from '../../lib/json.ts'
import type { TaskCall } from '../../protocol/call.ts'
import type { QuestionKind } from '../../protocol/common/request.ts'
import type { TaskState } from '../../protocol/reply.ts'
import { decodeTaskPage } from '../../protocol/rev-2025-11-25/client.ts'
import type { ClientCapabilities, InputResponses } from '../../protocol/wire.ts'
import { PeerError } from '../peer.ts'
import type { FlowLeg } from '../pending.ts'
import type { Driving, Flows, Peer, PushedRounds, SeenTask, SendOptions, TaskStrategy } from '../port.ts'
import { answerableKinds, capabilitiesFor, withTasks } from '../question.ts'
import { createListBudget } from '../reader.ts'
import { vetRound } from '../round.ts'

/** A task of the server, known by its id alone. */
export interface TaskHandle {
  /** Its current state, with its open questions (not at 2025-11-25), its result or its error. */
  get(options?: TaskRequestOptions): Promise<SeenTask>
  /** Answers questions by key, all or some. The first answer to a key counts; unknown keys have no effect. */
  answer(
    answers: InputResponses,
    options?: TaskRequestOptions & {
      /** The `requestState` that came with the questions, in revisions that have one. */
      readonly requestState?: string
    },
  ): Promise<void>
  /** Asks the server to end it. A task that has ended stays as it is. */
  cancel(options?: TaskRequestOptions): Promise<void>
}

export interface TaskRequestOptions {
  /** Cancels the request. Default: none. */
  readonly signal?: AbortSignal
  /** The time for one request. Default: the client's. */
  readonly timeoutMs?: number
  /**
   * The kinds of questions that the server may show in this request. The questions are then checked like those of a round. Default:
   * forms, URLs and whatever has a handler, and they are not checked.
   */
  readonly accepts?: readonly QuestionKind[]
}

/** The capabilities that a request about a task declares. */
export function declaredFor(
  accepts: readonly QuestionKind[] | undefined,
  asked: ClientCapabilities,
): ClientCapabilities {
  return accepts === undefined ? asked : capabilitiesFor(new Set(accepts))
}

/** Of 2026-07-28. */
export const DECLARED_TASKS: TaskStrategy = {
  notifies: true,
  answersAreFinal: true,
  fill: async (_, task) => task,
  async answer(peer, taskId, inputResponses, { requestState: _, ...options }) {
    const error = await errorOf(peer, { action: 'update', taskId, inputResponses }, options)
    if (error) throw error
  },
  async cancel(peer, taskId, options) {
    const error = await errorOf(peer, { action: 'cancel', taskId }, options)
    if (error) throw error
  },
}

/** Of servers that begin with a handshake and offer no tasks. */
export const NO_TASKS: TaskStrategy = {
  ...DECLARED_TASKS,
  notifies: false,
  answersAreFinal: false,
  fill: async (peer, task, options) => (hasContent(task) ? fetchContent(peer, task, options) : task),
  async cancel(peer, taskId, options) {
    const error = await errorOf(peer, { action: 'cancel', taskId }, options)
    if (error === undefined) return
    // These servers refuse to cancel a task that has ended.
    const now = await peer.send({ kind: 'task', action: 'get', taskId }, options)
    if (now.kind !== 'task' || !hasEnded(now.task)) throw error
  },
}

/** Of 2025-11-25. */
export const PUSHED_TASKS: TaskStrategy = {
  ...NO_TASKS,
  async request(flows, tool, { taskTtlMs, signal }) {
    const { tools } = flows
    // A tool's declaration binds, so it must be known: existing servers answer a call that should have been a task
    // with a result that looks like the tool's.
    if (!tools.learned) await flows.refreshTools({ signal })
    const support = tools.taskSupport(tool)
    const wanted = support === 'required' || (support === 'optional' && taskTtlMs !== undefined)
    return wanted ? taskField(taskTtlMs) : undefined
  },
  async answer({ dialect }) {
    const how = 'follow it with client.finish or client.resume, whose handlers answer'
    throw new RondoError(
      'PEER_REVISION',
      `In ${dialect.version} a task asks while its result is awaited: ${how}`,
    )
  },
  follow: ({ peer, answers }, taskId, leg, { take }) =>
    answerableKinds(answers).size > 0 && peer.channel.follow
      ? peer.channel.follow({ leg, task: taskId, onQuestion: take })
      : () => {},
  awaitPushed,
}

/** `asked` are the kinds of questions that the caller can answer: a server shows no others (decision 0013). */
export function taskHandle(peer: Peer, taskId: string, asked: ClientCapabilities): TaskHandle {
  const declared = <O extends TaskRequestOptions>({ accepts, ...options }: O) => ({
    ...options,
    capabilities: withTasks(declaredFor(accepts, asked)),
  })
  return {
    async get(options = {}) {
      const task = await getTask(peer, taskId, declared(options))
      const { accepts } = options
      if (accepts === undefined || task.inputRequests === undefined) return task
      const { inputRequests: questions, requestState: state } = task
      return { ...task, inputRequests: vetRound({ questions, state }, peer.limits, new Set(accepts)) }
    },
    answer: (answers, options = {}) => peer.dialect.tasks.answer(peer, taskId, answers, declared(options)),
    cancel: (options = {}) => peer.dialect.tasks.cancel(peer, taskId, declared(options)),
  }
}

/** The caller's own tasks, page by page. Throws where the server or the revision has no list. */
export async function listTasks(peer: Peer, options: TaskRequestOptions): Promise<readonly TaskState[]> {
  const { ask, discovery } = peer.channel
  const offered = isRecord(discovery?.capabilities.tasks) ? discovery.capabilities.tasks.list : undefined
  if (!ask || !isRecord(offered)) {
    throw new RondoError('PEER_REVISION', `This server does not list tasks in ${peer.dialect.version}`)
  }
  let found: readonly TaskState[] = []
  const seen = new Set<string>()
  const fits = createListBudget(peer, 'tasks')
  const deadlineAt = peer.clock.now() + peer.limits.deadlineMs
  let cursor: string | undefined
  do {
    if (peer.clock.now() >= deadlineAt) throw new RondoError('LIMIT_CLIENT_DEADLINE')
    const result = await ask('tasks/list', cursor === undefined ? {} : { cursor }, options)
    const page = decodeTaskPage(result)
    if (!page) throw new RondoError('PEER_BAD_RESPONSE', 'The response to tasks/list is not valid')
    fits(page.tasks)
    found = found.concat(page.tasks.map(toDisplay))
    cursor = page.nextCursor
    if (cursor !== undefined && (seen.has(cursor) || seen.size + 1 >= peer.limits.maxPages))
      throw new RondoError(
        'LIMIT_CLIENT_PAGES',
        `The list of tasks does not end after ${seen.size + 1} pages`,
      )
    if (cursor !== undefined) seen.add(cursor)
  } while (cursor !== undefined)
  return found
}

const FAREWELL_MS = 2_000

export async function getTask(peer: Peer, taskId: string, options: SendOptions): Promise<SeenTask> {
  const received = await peer.send({ kind: 'task', action: 'get', taskId }, options)
  if (received.kind === 'error') throw new PeerError(received.error)
  if (received.kind !== 'task')
    throw new RondoError('PEER_BAD_RESPONSE', 'The result of tasks/get is not a task')
  return peer.dialect.tasks.fill(peer, toDisplay(received.task), options)
}

/** Cancels a task that nobody waits for. Tries once, for a short time, and never throws. */
export async function dropTask(peer: Peer, taskId: string): Promise<void> {
  await peer.dialect.tasks
    .cancel(peer, taskId, { capabilities: withTasks(), timeoutMs: FAREWELL_MS })
    .catch((error) => peer.onWarning(`The task ${taskId} could not be cancelled: ${String(error)}`))
}

/** Cleans the status message, which people read. */
export function toDisplay(task: TaskState): TaskState {
  const { statusMessage } = task
  return statusMessage === undefined ? task : { ...task, statusMessage: displayText(statusMessage) }
}

const TRANSIENT = new Set(['PEER_UNREACHABLE', 'PEER_BUSY', 'LIMIT_CLIENT_TIMEOUT'])

/** Whether the task survives this error of a request about it. */
export function isTransient(error: unknown): boolean {
  return error instanceof RondoError && TRANSIENT.has(error.code)
}

export async function errorOf(
  peer: Peer,
  call: Pick<TaskCall, 'action' | 'taskId' | 'inputResponses'>,
  options: SendOptions,
): Promise<PeerError | undefined> {
  const received = await peer.send({ kind: 'task', ...call }, options)
  return received.kind === 'error' ? new PeerError(received.error) : undefined
}

export function taskField(ttlMs: number | undefined): FlowLeg['task'] {
  return ttlMs === undefined ? {} : { ttlMs }
}

export function hasContent({ status }: TaskState): boolean {
  return status === 'completed' || status === 'failed'
}

function hasEnded({ status }: TaskState): boolean {
  return status !== 'working' && status !== 'input_required'
}

/** Sends `tasks/result`, which responds at once unless the task is working or pushes questions. */
export async function fetchContent(peer: Peer, task: TaskState, options: SendOptions): Promise<SeenTask> {
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
      throw new RondoError('PEER_BAD_RESPONSE', 'The result of tasks/result is a task')
  }
}

/** Waits for the result while handlers answer. Where that takes too long, the task counts as working and is polled. */
async function awaitPushed(
  { peer, answers }: Flows,
  task: TaskState,
  { suspends }: Driving,
  sending: SendOptions,
  { take }: PushedRounds,
): Promise<SeenTask> {
  if (answerableKinds(answers).size === 0) {
    const why = `in ${peer.dialect.version} its questions must be answered at once: pass a handler`
    throw new RondoError(suspends ? 'INPUT_PENDING' : 'INPUT_NO_HANDLER', `The task asks, and ${why}`)
  }
  try {
    const after = await fetchContent(peer, task, { ...sending, onQuestion: take })
    if (after.status !== 'failed') return after
    // The wait may have failed, not the task.
    const now = await getTask(peer, task.taskId, sending)
    if (now.status !== 'input_required') return now
    const reason = after.error?.message ?? 'no reason was given'
    throw new RondoError('INPUT_PENDING', `The task asks, and its questions did not arrive: ${reason}`)
  } catch (error) {
    if (!isTransient(error) || sending.signal?.aborted) throw error
    return { ...task, status: 'working' }
  }
}
