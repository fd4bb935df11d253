/**
 * Forwarding: a tool, prompt, resource or template that another server offers. Its row is listed as it came, its schemas are
 * not judged here, its result passes unchanged, and development mode never runs it a second time, because a second run would
 * reach the other server again.
 */

import { misuse, RondoError } from '../errors.ts'
import type { FlowMethod, Listing, Principal } from '../protocol/call.ts'
import type { QuestionKind } from '../protocol/common/request.ts'
import type { TaskState, WireError } from '../protocol/reply.ts'
import type { Completion, InputResponses } from '../protocol/wire.ts'
import type { Context } from './context.ts'
import { errorResult, type InputRequired, type Target } from './target.ts'

/** The tools, prompts and resources of another server, and the function that passes calls on to it. */
export interface Forwarded {
  /** Listed as it is. Without it, the entry can be used and is not listed. */
  readonly row?: Readonly<Record<string, unknown>>
  /** The other server, and the revision that it speaks now, for the log. */
  upstream?(): { readonly name: string; readonly revision?: string }
  /**
   * Of a tool: a call may continue as a task of this server, which `ctx.approve` needs. `run` then runs again in every turn, and has to
   * know what it has sent. Default: false.
   */
  readonly mayBeTask?: boolean
  /** Of a template: whether it serves this URI. */
  matches?(uri: string): boolean
  /**
   * Passes a call on, and returns the other server's result, `inputRequired(…)`, or `taskCreated(…)` if the client of the call can
   * follow tasks. It receives the arguments; of a resource, its `uri`. An `UpstreamError` reaches the caller as the other server
   * sent it.
   */
  run(
    args: Readonly<Record<string, unknown>>,
    ctx: Context,
  ): Promise<Readonly<Record<string, unknown>> | InputRequired | TaskCreated>
  /** Suggests values for an argument of a prompt or template. */
  complete?(
    argument: { readonly name: string; readonly value: string },
    known: Readonly<Record<string, string>>,
    principal: Principal | undefined,
  ): Promise<Completion>
  /**
   * Of a resource or template: calls `changed` whenever the resource changes, for this caller, and never before it returns. Returns
   * a function that ends this, or undefined if the resource cannot be watched. Throws if the caller watches too much.
   */
  watch?(uri: string, principal: Principal | undefined, changed: () => void): (() => void) | undefined
}

/** The caller of a request about a task. */
export interface TaskCaller {
  readonly principal: Principal | undefined
  /** True if this request may see questions of the kind. */
  can(kind: QuestionKind): boolean
}

/**
 * The tasks of other servers, under ids of the gateway's own. An id that is unknown or another caller's is the same to a client.
 * A method that throws a `RondoError` replies with it.
 */
export interface ForwardedTasks {
  /** Whether the id is one of these tasks, as far as its form says. Any other id is a task of this server. */
  owns(taskId: string): boolean
  /** Resolves with the task, or with undefined if the caller has none with this id. */
  get(taskId: string, caller: TaskCaller): Promise<TaskState | undefined>
  /** Passes answers on. Resolves with false if the caller has no such task. */
  answer(taskId: string, responses: InputResponses, caller: TaskCaller): Promise<boolean>
  /** Resolves with false if the caller has no such task. */
  cancel(taskId: string, caller: TaskCaller): Promise<boolean>
  /** Reports the caller's own tasks as they change; returns a function that ends this. */
  watch(taskIds: readonly string[], caller: TaskCaller, changed: (task: TaskState) => void): () => void
}

/** Resolves with the rows that a caller gets for a list. */
export type RowsFor = (
  listing: Listing,
  principal: Principal | undefined,
  declared: readonly Readonly<Record<string, unknown>>[],
) => Promise<readonly Readonly<Record<string, unknown>>[]>

const TASK: unique symbol = Symbol('rondo.task-created')

/** A task of another server that stands for the result of a call. */
export interface TaskCreated {
  readonly [TASK]: true
  readonly task: TaskState
}

/**
 * Creates the value that `run` returns if the other server made the call a task. The id of the task is one of `ForwardedTasks`.
 *
 * @example
 * ```ts
 * return taskCreated({ ...task, taskId: await seal(task.taskId) })
 * ```
 */
export function taskCreated(task: TaskState): TaskCreated {
  return { [TASK]: true, task }
}

export function isTaskCreated(value: unknown): value is TaskCreated {
  return typeof value === 'object' && value !== null && TASK in value
}

/**
 * An error of another server, which reaches the caller with its own code, message and data.
 *
 * @example
 * ```ts
 * throw new UpstreamError({ code: -32602, message: 'Unknown tool: search' })
 * ```
 */
export class UpstreamError extends RondoError {
  readonly peer: WireError

  constructor(peer: WireError, options?: { readonly cause?: unknown }) {
    super('PEER_ERROR', peer.message, { ...options, data: peer.data })
    this.name = 'UpstreamError'
    this.peer = peer
  }

  override get rpc(): number {
    return this.peer.code
  }

  override get http(): number {
    return 200
  }

  override get sentence(): string {
    return this.peer.message
  }
}

const METHOD: Readonly<Record<Listing, FlowMethod>> = {
  tools: 'tools/call',
  prompts: 'prompts/get',
  resources: 'resources/read',
  templates: 'resources/read',
}

/** The target of a forwarded entry. `name` is what a call names: a tool, a prompt, or a URI. */
export function forwardTarget(
  listing: Listing,
  name: string,
  { run, watch, upstream, mayBeTask }: Forwarded,
): Target {
  const method = METHOD[listing]
  const byUri = method === 'resources/read'
  return {
    method,
    name,
    live: true,
    task: { mode: mayBeTask && listing === 'tools' ? 'late' : 'never' },
    ...(upstream && { upstream }),
    ...(watch && byUri && { watch: (principal, changed) => watch(name, principal, changed) }),
    prepare: (args) => ({ kind: 'ready', run: (ctx) => run(byUri ? { uri: name } : args, ctx) }),
    finish: (value) => value as Readonly<Record<string, unknown>>,
    fail: (message) =>
      method === 'tools/call'
        ? { result: errorResult(message) }
        : { error: new RondoError('SERVER_HANDLER', message) },
  }
}

export function assertForwarded(listing: Listing, name: string, forwarded: Forwarded): void {
  if (typeof forwarded?.run !== 'function')
    throw misuse(`Forwarding ${listing} "${name}" needs { run }: a function that passes the call on.`)
}
