/**
 * Requests about tasks: get, answer, cancel, list, watch, and wait for the end. They read and write only the store. To a
 * client, a task that is unknown, expired or another caller's is the same.
 */

import { RondoError } from '../../errors.ts'
import { readForm } from '../../form/form.ts'
import { judgeContent } from '../../form/judge.ts'
import { isRecord } from '../../lib/json.ts'
import type { FlowCall, Line, Principal, TaskCall, TaskListCall } from '../../protocol/call.ts'
import { appOf, drawsForms, withoutApp } from '../../protocol/common/apps.ts'
import { missingCapability, nameCapabilities, supports } from '../../protocol/common/request.ts'
import { type OlderReply, type Reply, relatedTask, type TaskState } from '../../protocol/reply.ts'
import type { ClientCapabilities, InputRequest, InputRequests, InputResponses } from '../../protocol/wire.ts'
import { openEnvelope, sealEnvelope } from '../../seal/envelope.ts'
import type { TaskOwner, TaskPage, TaskView } from '../../store/task-engine.ts'
import type { ForwardedTasks, TaskCaller } from '../../tool/forward.ts'
import type { FlowHost, TaskHost } from '../host.ts'
import { markAnswer, openPiece, ownerOf, type Piece, type PieceOf, sealPiece } from './journal.ts'
import { type StoredMessage, statusMessageOf, waitingFor } from './status.ts'

const ACKNOWLEDGED: Reply = { kind: 'complete', result: {} }
const UNKNOWN: Reply = { kind: 'error', error: new RondoError('PEER_TASK') }

export async function handleTask(
  host: FlowHost,
  call: TaskCall,
  principal: Principal | undefined,
  span?: string,
): Promise<Reply> {
  const { tasks, forwarded } = host
  if (forwarded?.owns(call.taskId)) return handleForwarded(forwarded, call, principal)
  if (!tasks) return UNKNOWN
  await host.keys.ready()
  const owner = ownerOf(host, principal)
  const { taskId } = call
  switch (call.action) {
    case 'get': {
      const view = await tasks.engine.get(taskId, owner)
      if (!view) return UNKNOWN
      return { kind: 'task', task: visibleTo(call.capabilities, toTaskState(host, tasks, owner, view)) }
    }
    case 'update': {
      const sealed = sealAnswers(host, { id: taskId, owner }, call.inputResponses ?? {}, span)
      const delivery = await tasks.engine.deliver(taskId, owner, sealed)
      return delivery === 'unknown' ? UNKNOWN : ACKNOWLEDGED
    }
    case 'result':
      return { kind: 'error', error: new RondoError('PEER_METHOD') }
    case 'cancel':
      return (await tasks.engine.cancel(taskId, owner)) === 'unknown' ? UNKNOWN : ACKNOWLEDGED
  }
}

/** Passes a request about a task of another server on. */
async function handleForwarded(
  forwarded: ForwardedTasks,
  { action, taskId, capabilities, inputResponses = {} }: TaskCall,
  principal: Principal | undefined,
): Promise<Reply> {
  const caller = callerOf(principal, capabilities)
  if (action === 'get') {
    const task = await forwarded.get(taskId, caller)
    return task ? { kind: 'task', task: visibleTo(capabilities, task) } : UNKNOWN
  }
  // Only revisions with sessions have it, and their clients are never given such an id.
  if (action === 'result') return UNKNOWN
  const isKnown =
    action === 'update'
      ? await forwarded.answer(taskId, inputResponses as InputResponses, caller)
      : await forwarded.cancel(taskId, caller)
  return isKnown ? ACKNOWLEDGED : UNKNOWN
}

function callerOf(principal: Principal | undefined, capabilities: ClientCapabilities): TaskCaller {
  return { principal, can: (kind) => supports(capabilities, kind) }
}

/** Reports the caller's own tasks as they change. Unknown ids and those of other callers are never reported. */
export function watchTasks(
  host: FlowHost,
): (
  ids: readonly string[],
  principal: Principal | undefined,
  capabilities: ClientCapabilities,
  listener: (task: TaskState) => void,
) => Promise<() => void> {
  return async (ids, principal, capabilities, listener) => {
    await host.keys.ready()
    const { tasks, forwarded } = host
    const others = ids.filter((id) => forwarded?.owns(id))
    const own = ids.filter((id) => !others.includes(id))
    const owner = ownerOf(host, principal)
    const report = (state: TaskState | undefined): void => {
      if (state) listener(visibleTo(capabilities, state))
    }
    const stopOwn =
      tasks &&
      own.length > 0 &&
      (await tasks.engine.watch(own, owner, (_id, view) =>
        report(view && readableState(host, tasks, owner, view)),
      ))
    const stopOthers =
      others.length > 0 && forwarded?.watch(others, callerOf(principal, capabilities), report)
    return () => {
      if (stopOwn) stopOwn()
      if (stopOthers) stopOthers()
    }
  }
}

/**
 * Passes on, of the ids that a call names as related, those of tasks that the caller has, as `tasks/get` would find them;
 * none unless the server is told to.
 */
export async function withRelatedTasks(
  host: FlowHost,
  call: FlowCall,
  principal: Principal | undefined,
): Promise<FlowCall> {
  const { tasks, keys } = host
  if (!tasks?.related) return { ...call, relatedTaskIds: undefined }
  await keys.ready()
  const owner = ownerOf(host, principal)
  const found = await Promise.all((call.relatedTaskIds ?? []).map((id) => tasks.engine.get(id, owner)))
  return { ...call, relatedTaskIds: found.flatMap((view) => (view ? [view.id] : [])) }
}

/** Reports one task to its owner as it changes, after `last`. Does not count as a request about it (R6). */
export async function observeTask(
  host: FlowHost,
  tasks: TaskHost,
  last: TaskState,
  principal: Principal | undefined,
  capabilities: ClientCapabilities,
  listener: (task: TaskState | undefined) => void,
): Promise<() => void> {
  await host.keys.ready()
  const owner = ownerOf(host, principal)
  let known = fingerprint(last)
  return tasks.engine.observe([last.taskId], owner, (_id, view) => {
    const state = view && readableState(host, tasks, owner, view)
    const task = state && visibleTo(capabilities, state)
    const now = task && fingerprint(task)
    if (now === known) return
    known = now ?? ''
    listener(task)
  })
}

function fingerprint({ status, statusMessage, lastUpdatedAt }: TaskState): string {
  return JSON.stringify([status, statusMessage, lastUpdatedAt])
}

/** The error of a task whose workers died too often, which has none of its own. */
const DIED = { code: -32603, message: 'The task could not be finished' }

/** A task in the store as its owner sees it. */
export function toTaskState(host: FlowHost, tasks: TaskHost, owner: TaskOwner, view: TaskView): TaskState {
  const { id, status } = view
  const open = <T>(piece: Piece, sealed: string | undefined): T | undefined =>
    sealed === undefined ? undefined : openPiece<T>(host, tasks, { id, owner }, piece, sealed)
  const error = status === 'failed' ? (open<TaskState['error']>('error', view.error) ?? DIED) : undefined
  const kept = quietly(() => open<StoredMessage>('message', view.message))
  return {
    taskId: id,
    status,
    statusMessage: statusMessageOf(kept, view, [...view.inputs.keys()], error),
    createdAt: view.createdAt,
    lastUpdatedAt: view.updatedAt,
    ttlMs: view.expiresAt - view.createdAt,
    pollIntervalMs: pollInterval(view, host.platform.now()),
    inputRequests: status === 'input_required' ? openInputs(host, tasks, owner, view) : undefined,
    result: open('result', view.result),
    error,
  }
}

/** The share of `pollMs` after which a client polls a new task for the first time. */
const FIRST_POLL = 1 / 12

/**
 * The time until the next poll, as long as the task has been waiting already: a short task is seen to end soon after it does.
 * The intervals double until they reach `pollMs`, which costs a long task three more polls. They begin again when the client
 * has answered, but not with every status message of a handler.
 */
function pollInterval({ status, pollMs, message, createdAt, updatedAt }: TaskView, now: number): number {
  if (status !== 'working') return pollMs
  const age = now - (message === undefined ? updatedAt : createdAt)
  return Math.ceil(Math.min(pollMs, Math.max(pollMs * FIRST_POLL, age)))
}

/** Like `toTaskState`, but returns nothing for a task that cannot be read: one such task must not hide the others. */
function readableState(
  host: FlowHost,
  tasks: TaskHost,
  owner: TaskOwner,
  view: TaskView,
): TaskState | undefined {
  return quietly(() => toTaskState(host, tasks, owner, view))
}

/**
 * The part of a task that a request may see: input requests only of the kinds and modes that the request itself declares
 * (B10), and apps that draw forms only if it declares them, whoever began the task. The message names what is left out, so that the client knows what to declare.
 */
export function visibleTo(capabilities: ClientCapabilities, given: TaskState): TaskState {
  const task = drawsForms(capabilities) ? given : withoutApps(given)
  const entries = Object.entries(task.inputRequests ?? {})
  const shown = entries.filter(([, request]) => missingCapability(capabilities, request) === undefined)
  if (shown.length === entries.length) return task
  const own =
    task.statusMessage === waitingFor(Object.keys(task.inputRequests ?? {})) ? undefined : task.statusMessage
  const statusMessage = [own, undeclared(capabilities, task).sentence]
  return {
    ...task,
    inputRequests: Object.fromEntries(shown),
    statusMessage: statusMessage.filter((part) => part !== undefined).join(' '),
  }
}

function withoutApps(task: TaskState): TaskState {
  const entries = Object.entries(task.inputRequests ?? {})
  if (!entries.some(([, request]) => appOf(request) !== undefined)) return task
  return {
    ...task,
    inputRequests: Object.fromEntries(entries.map(([key, request]) => [key, withoutApp(request)])),
  }
}

/** Why a request does not see everything that a task asks. */
function undeclared(
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

/** Returns undefined for what does not open, which `openPiece` has logged. */
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

const MAX_CURSOR = 2_048

/**
 * Lists the caller's own tasks page by page, newest first, without those that `tasks/get` would refuse. A cursor is sealed for its caller: one that was altered, or that
 * belongs to another caller, is refused.
 */
export async function listTasks(
  host: FlowHost,
  tasks: TaskHost,
  { cursor, allows = () => true }: TaskListCall,
  principal: Principal | undefined,
  limit: number,
): Promise<OlderReply> {
  await host.keys.ready()
  const owner = ownerOf(host, principal)
  const after = cursor === undefined ? undefined : openCursor(host, owner, cursor)
  const views = await tasks.engine.list(owner, { after, limit })
  const last = views.at(-1)
  return {
    kind: 'tasks',
    tasks: views
      .filter(({ id }) => allows(id))
      .flatMap((view) => readableState(host, tasks, owner, view) ?? []),
    nextCursor: last && views.length >= limit ? sealCursor(host, owner, last) : undefined,
  }
}

function placeOf({ tenant, principal }: TaskOwner): string {
  return JSON.stringify(['task list', principal, tenant])
}

function sealCursor(
  { keys }: FlowHost,
  owner: TaskOwner,
  { id, createdAt }: NonNullable<TaskPage['after']>,
): string {
  return sealEnvelope(keys.ring, placeOf(owner), JSON.stringify({ id, createdAt })).token
}

function openCursor({ keys }: FlowHost, owner: TaskOwner, cursor: string): TaskPage['after'] {
  const opened = openEnvelope(keys.ring, placeOf(owner), cursor, MAX_CURSOR)
  const place: unknown = opened.kind === 'refused' ? undefined : JSON.parse(opened.plaintext.toString('utf8'))
  if (!isRecord(place)) throw new RondoError('PEER_PARAMS', 'The cursor does not belong to this list')
  return { id: String(place.id), createdAt: Number(place.createdAt) }
}

type Answers = Readonly<Record<string, unknown>>

/** Asks the client on the line, until `signal` fires. */
export type AskNow = (
  questions: InputRequests,
  signal: AbortSignal,
) => Promise<
  | { readonly kind: 'answers'; readonly answers: Answers }
  /** The client does not implement the method of the question with this key. */
  | { readonly kind: 'unable'; readonly key: string }
  /** No answers will come. */
  | { readonly kind: 'failed'; readonly error: RondoError }
>

export interface AwaitOptions {
  readonly ask?: AskNow
  /** Why nobody can be asked, if not for the client's capabilities. */
  readonly unaskable?: string
  /** Names the request that waits, to which the turn is linked that its answers wake. */
  readonly span?: string
}

const UNKNOWN_OLDER: OlderReply = { kind: 'error', error: new RondoError('PEER_TASK') }

/**
 * Waits until the task has ended or asks: `tasks/result` of 2025-11-25 and of the draft (D3 to D7). With `ask`, as in
 * 2025-11-25, the questions are pushed while the client waits; otherwise they are the result.
 */
export async function awaitTask(
  host: FlowHost,
  tasks: TaskHost,
  { taskId, capabilities }: TaskCall,
  principal: Principal | undefined,
  line: Line,
  { ask, unaskable, span }: AwaitOptions = {},
): Promise<OlderReply> {
  await host.keys.ready()
  const owner = ownerOf(host, principal)
  const shown = new Set<string>()
  for (;;) {
    const view = await settledView(tasks, taskId, owner, line)
    if (!view) return UNKNOWN_OLDER
    const whole = toTaskState(host, tasks, owner, view)
    const state = visibleTo(capabilities, whole)
    const fresh = Object.entries(state.inputRequests ?? {}).filter(([key]) => !shown.has(key))
    if (fresh.length === 0 && state !== whole)
      return { kind: 'error', error: undeclared(capabilities, whole, unaskable) }
    if (state.status !== 'input_required' || !ask || fresh.length === 0) return toReply(state)
    for (const [key] of fresh) shown.add(key)
    const questions = Object.fromEntries(fresh)
    const keys = Object.keys(questions)
    const asked = await askWhileOpen(tasks, taskId, owner, keys, (signal) => ask(questions, signal))
    if (asked === undefined) {
      // One of them was closed: the others were withdrawn with it, and are asked again.
      for (const key of keys) shown.delete(key)
      continue
    }
    if (asked.kind === 'failed') return { kind: 'error', error: asked.error }
    const answers = asked.kind === 'unable' ? unableAnswers(questions, asked.key) : asked.answers
    // Questions that were asked beside one that the client cannot show are asked again.
    for (const key of keys) if (!Object.hasOwn(answers, key)) shown.delete(key)
    await deliverAnswers(host, tasks, taskId, principal, answers, span)
  }
}

/**
 * Stands in for answers: the method that the client does not implement, for each question of that method.
 * No client can send it, because the answers of clients are objects.
 */
function unableAnswers(questions: InputRequests, key: string): Answers {
  const method = questions[key]?.method
  const same = Object.entries(questions).filter(([, request]) => request.method === method)
  return Object.fromEntries(same.map(([name]) => [name, method]))
}

/** Delivers answers to a task; those to closed questions change nothing. `span` names the request that brought them. */
export async function deliverAnswers(
  host: FlowHost,
  tasks: TaskHost,
  taskId: string,
  principal: Principal | undefined,
  answers: Answers,
  span?: string,
): Promise<void> {
  const owner = ownerOf(host, principal)
  await tasks.engine.deliver(taskId, owner, sealAnswers(host, { id: taskId, owner }, answers, span))
}

/** Asks until the task no longer asks all of it, because it was answered elsewhere, cancelled or expired; returns undefined then. */
async function askWhileOpen<T>(
  { engine }: TaskHost,
  id: string,
  owner: TaskOwner,
  keys: readonly string[],
  ask: (signal: AbortSignal) => Promise<T>,
): Promise<T | undefined> {
  const over = new AbortController()
  const stop = await engine.watch([id], owner, (_id, view) => {
    if (view?.status !== 'input_required' || !keys.every((key) => view.inputs.has(key))) over.abort()
  })
  try {
    if (over.signal.aborted) return undefined
    const asked = await ask(over.signal)
    return over.signal.aborted ? undefined : asked
  } finally {
    stop()
  }
}

/** Returns the task once it is no longer working, or undefined if the client disconnects first. */
async function settledView(
  { engine }: TaskHost,
  id: string,
  owner: TaskOwner,
  line: Line,
): Promise<TaskView | undefined> {
  let settle: (view: TaskView | undefined) => void = () => {}
  const settled = new Promise<TaskView | undefined>((resolve) => {
    settle = resolve
  })
  const leave = line.onClose(() => settle(undefined))
  try {
    const stop = await engine.watch([id], owner, (_id, view) => {
      if (view?.status !== 'working') settle(view)
    })
    return await settled.finally(stop)
  } finally {
    leave()
  }
}

function toReply({ status, taskId, inputRequests, result, error }: TaskState): OlderReply {
  const _meta = relatedTask(taskId)
  switch (status) {
    case 'completed': {
      const own = result?._meta
      return {
        kind: 'complete',
        result: { ...result, _meta: { ...(typeof own === 'object' ? own : {}), ..._meta } },
      }
    }
    case 'failed':
      return { kind: 'task_failed', error: error ?? { code: -32603, message: 'The task failed' } }
    case 'cancelled':
      return { kind: 'error', error: new RondoError('PEER_TASK', 'The task was cancelled') }
    default:
      return { kind: 'input_required', inputRequests, _meta }
  }
}

/** Delivers answers that fit their questions. Others are acknowledged and change nothing (D6). */
export async function respondToTask(
  host: FlowHost,
  tasks: TaskHost,
  { taskId, inputResponses = {} }: TaskCall,
  principal: Principal | undefined,
  span?: string,
): Promise<OlderReply> {
  await host.keys.ready()
  const owner = ownerOf(host, principal)
  const view = await tasks.engine.get(taskId, owner)
  if (!view) return UNKNOWN_OLDER
  const { status, inputRequests = {} } = toTaskState(host, tasks, owner, view)
  if (status !== 'input_required') {
    return {
      kind: 'error',
      error: new RondoError('PEER_TASK', `The task has no open questions: it is ${status}`),
    }
  }
  const useful = Object.entries(inputResponses).filter(([key, answer]) => {
    const request = Object.hasOwn(inputRequests, key) ? inputRequests[key] : undefined
    return request !== undefined && answerFits(request, answer)
  })
  await deliverAnswers(host, tasks, taskId, principal, Object.fromEntries(useful), span)
  return { kind: 'complete', result: { _meta: relatedTask(taskId) } }
}

/** Whether a response is of any use, as far as the request itself says; an author's own schema may ask for more. */
function answerFits(request: InputRequest, answer: unknown): boolean {
  if (!isRecord(answer)) return false
  if (request.method === 'roots/list') return Array.isArray(answer.roots)
  if (request.method === 'sampling/createMessage') return typeof answer.role === 'string'
  const { action, content } = answer
  if (action === 'decline' || action === 'cancel') return true
  if (action !== 'accept') return false
  const { params } = request
  return params.mode === 'url' || judgeContent(readForm(params.requestedSchema).fields, content).ok
}

function sealAnswers(host: FlowHost, of: PieceOf, answers: Answers, span?: string): Map<string, string> {
  return new Map(
    Object.entries(answers).map(([key, answer]) => [
      key,
      sealPiece(host, of, `answer ${key}`, markAnswer(answer, span)),
    ]),
  )
}
