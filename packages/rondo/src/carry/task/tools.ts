/**
 * Tasks for hosts that cannot follow them (`tasks: { tools: true }`). A call that becomes a task returns a sentence with the
 * id; the tools `task_status` and `task_cancel` do for a model what `tasks/get`, `tasks/update` and `tasks/cancel` do for a
 * client.
 *
 * tools 1: Only the person answers. An open question of the task goes out as an input request of `task_status`, and an answer
 * counts only as the response to that request. The arguments of the tool carry an id and a counter, nothing else.
 * tools 2: An answer is delivered as `tasks/update` delivers it: the first one for a key counts, and the handler checks it.
 * tools 3: Ids that are unknown, expired or another caller's are the same.
 * R6 Whoever calls `task_status` with an id knows it, so effects that waited for that may run. The sentence alone proves
 * nothing: it may be lost, and the host may call the tool again.
 *
 * Hosts stop a model that repeats a call with the same arguments, so every result of `task_status` names a higher `after` for
 * the next call. The counter has no other meaning.
 */

import type { Principal } from '../../protocol/call.ts'
import type { Reply, TaskState } from '../../protocol/reply.ts'
import type { ClientCapabilities, JsonSchema } from '../../protocol/wire.ts'
import type { TaskOwner, TaskView } from '../../store/task-engine.ts'
import type { Context } from '../../tool/context.ts'
import type { ToolResult } from '../../tool/definition.ts'
import type { BuiltInTool, HandedTask } from '../../tool/registry.ts'
import { errorResult, type InputRequired, inputRequired, type Target } from '../../tool/target.ts'
import type { FlowHost, TaskHost } from '../host.ts'
import { scopesOfTask } from '../scope.ts'
import { deliverAnswers, toTaskState, visibleTo } from './call.ts'
import { ownerOf } from './journal.ts'

const STATUS = 'task_status'
const CANCEL = 'task_cancel'

/** The two tools. A server declares them before its author's. */
export function createTaskTools(host: FlowHost, tasks: TaskHost): readonly BuiltInTool[] {
  return [
    {
      name: STATUS,
      definition: {
        title: 'Status of a task',
        description:
          'Returns the state of a task that another tool has started, and its result as soon as there is one. If the task has a ' +
          'question for the user, the user is asked; it cannot be answered in the arguments.',
        input: inputSchema('The id of the task, as the tool that started it returned it.', {
          after: {
            type: 'integer',
            minimum: 0,
            description:
              'A counter that tells repeated calls apart: the number that the last result named for the next call.',
          },
        }),
        scopes: ({ taskId }) => scopesOfTask(String(taskId)),
        annotations: { destructiveHint: false, idempotentHint: true, openWorldHint: false },
      },
      handler: ({ taskId, after }, ctx) => showStatus(host, tasks, { taskId: String(taskId), after }, ctx),
    },
    {
      name: CANCEL,
      definition: {
        title: 'Cancel a task',
        description: 'Cancels a task that another tool has started. What it has done so far is not undone.',
        input: inputSchema('The id of the task to cancel.'),
        scopes: ({ taskId }) => scopesOfTask(String(taskId)),
        annotations: { destructiveHint: true, idempotentHint: true, openWorldHint: false },
      },
      handler: ({ taskId }, ctx) => cancelTask(host, tasks, String(taskId), ctx.principal),
    },
  ]
}

function inputSchema(description: string, others: Readonly<Record<string, JsonSchema>> = {}): JsonSchema {
  return {
    type: 'object',
    properties: { taskId: { type: 'string', description }, ...others },
    required: ['taskId'],
    additionalProperties: false,
  }
}

/** The reply to a call that continues as a task, for a client that reaches it through the tools. */
export function toHandleReply({ name, structured }: Target, task: TaskState): Reply {
  // Some hosts show the model only the structured content.
  const next =
    `Call ${STATUS} with {"taskId":"${task.taskId}"} for its state and its result. If the task has a question, ${STATUS} asks the ` +
    `user. Do not call "${name}" again for the same work.`
  const text = `"${name}" continues in the background as the task ${task.taskId}. ${next}`
  const { taskId, status, statusMessage } = task
  const handle: HandedTask = { task: { taskId, status, statusMessage, next } }
  return {
    kind: 'complete',
    result: { content: [{ type: 'text', text }], ...(structured && { structuredContent: handle }) },
  }
}

/** Rounds of one call that may be spent on questions: clients stop after about ten. */
const MAX_ROUNDS = 6

interface StatusCall {
  readonly taskId: string
  readonly after: unknown
}

/** Answers count only in a request with the state that this tool returned with the questions (tools 1). */
async function showStatus(
  host: FlowHost,
  tasks: TaskHost,
  { taskId, after }: StatusCall,
  ctx: Context,
): Promise<ToolResult | InputRequired> {
  await host.keys.ready()
  const owner = ownerOf(host, ctx.principal)
  const { inputResponses } = ctx
  if (ctx.requestState !== undefined && inputResponses) {
    await deliverAnswers(host, tasks, taskId, ctx.principal, inputResponses)
  }
  const view = await settledWithin(host, tasks, taskId, owner, ctx.signal)
  if (!view) return unknownTask(taskId)
  const task = visibleTo(ctx.client.capabilities, toTaskState(host, tasks, owner, view))
  const { inputRequests = {} } = task
  const asks = Object.keys(inputRequests).slice(0, host.limits.maxQuestions)
  if (asks.length === 0 || ctx.round > MAX_ROUNDS) {
    return describe(task, ctx.client.capabilities, callAgain(taskId, after), view.pollMs)
  }
  const shown = Object.fromEntries(
    asks.flatMap((key) => (inputRequests[key] ? [[key, inputRequests[key]]] : [])),
  )
  return inputRequired({ inputRequests: shown, requestState: STATUS })
}

function unknownTask(taskId: string): ToolResult {
  const text = `No task has the id ${JSON.stringify(taskId.slice(0, 64))}: it is wrong, or the task has expired. Use the id exactly as the tool that started the task returned it.`
  return errorResult(text) as ToolResult
}

/** A call that no host takes for a repetition of the last one. */
function callAgain(taskId: string, after: unknown): string {
  const count = typeof after === 'number' && Number.isSafeInteger(after + 1) ? after + 1 : 1
  return `Call ${STATUS} again with ${JSON.stringify({ taskId, after: count })}`
}

/**
 * Describes a task for the model; a completed one by the result of its tool. `pollMs`: every call costs a turn of the model, so
 * it polls no sooner because the task is new.
 */
function describe(
  task: TaskState,
  capabilities: ClientCapabilities,
  again: string,
  pollMs: number,
): ToolResult {
  const { taskId, status, statusMessage, result, error } = task
  switch (status) {
    case 'completed':
      return result as ToolResult
    case 'failed':
      return errorResult(`The task ${taskId} failed: ${error?.message ?? 'no reason is known'}`) as ToolResult
    case 'cancelled':
      return stateOf(task, `The task ${taskId} was cancelled.`, 'It has no result.')
    case 'input_required':
      return stateOf(
        task,
        `The task ${taskId} waits for an answer. ${statusMessage ?? ''}`.trim(),
        nextAnswer(task, capabilities, again),
      )
    case 'working': {
      const message = statusMessage === undefined ? '' : `: ${statusMessage}`
      const seconds = Math.max(1, Math.ceil(pollMs / 1000))
      return stateOf(task, `The task ${taskId} is working${message}.`, `${again} in ${seconds} s.`)
    }
  }
}

function nextAnswer(
  { inputRequests = {} }: TaskState,
  { elicitation }: ClientCapabilities,
  again: string,
): string {
  if (Object.keys(inputRequests).length > 0) return `${again} to ask the user.`
  return elicitation === undefined
    ? `This client cannot ask its user, so the task cannot continue here. ${CANCEL} cancels it.`
    : `This client cannot ask that, so the task cannot continue here. ${CANCEL} cancels it.`
}

function stateOf({ taskId, status, statusMessage }: TaskState, text: string, next: string): ToolResult {
  const handle: HandedTask = { task: { taskId, status, statusMessage, next } }
  return { content: [{ type: 'text', text: `${text} ${next}` }], structuredContent: handle }
}

async function cancelTask(
  host: FlowHost,
  tasks: TaskHost,
  taskId: string,
  principal: Principal | undefined,
): Promise<ToolResult> {
  await host.keys.ready()
  const cancelled = await tasks.engine.cancel(taskId, ownerOf(host, principal))
  if (cancelled === 'unknown') return unknownTask(taskId)
  const text =
    cancelled === 'cancelled'
      ? `The task ${taskId} was cancelled. Effects that can be undone are undone; everything else it has done stays done.`
      : `The task ${taskId} had already ended, so there was nothing to cancel. Call ${STATUS} for its result.`
  return { content: [{ type: 'text', text }] }
}

/** Returns the task as soon as it is not working, or as it is after a while. Undefined if the caller has no such task. */
async function settledWithin(
  { platform, draining, onDrain }: FlowHost,
  { engine, tools }: TaskHost,
  id: string,
  owner: TaskOwner,
  signal: AbortSignal,
): Promise<TaskView | undefined> {
  const first = await engine.get(id, owner)
  if (first?.status !== 'working' || draining || !tools?.waitMs || signal.aborted) return first
  let latest: TaskView | undefined = first
  let done = (): void => {}
  const over = new Promise<void>((resolve) => {
    done = resolve
  })
  const stopTimer = platform.after(tools.waitMs, done)
  const stopListening = onDrain(done)
  signal.addEventListener('abort', done, { once: true })
  try {
    const stop = await engine.watch([id], owner, (_id, view) => {
      latest = view
      if (view?.status !== 'working') done()
    })
    await over.finally(stop)
  } finally {
    stopTimer()
    stopListening()
    signal.removeEventListener('abort', done)
  }
  return latest
}
