/**
 * A callback for the official server as a target. In a request the official server checks the arguments and the result; in
 * a task they are checked here.
 */

import {
  type InputRequiredResult,
  type McpServer,
  ProtocolError,
  type RegisteredTool,
  type ServerContext,
  type StandardSchemaV1,
} from '@modelcontextprotocol/server'
import { misuse, RondoError, ToolError } from '../errors.ts'
import { isRecord } from '../lib/json.ts'
import { TASKS_EXTENSION } from '../protocol/reply.ts'
import type { InputRequests } from '../protocol/wire.ts'
import type { Context } from '../tool/context.ts'
import { assertTaskTimes } from '../tool/registry.ts'
import type { Result } from '../tool/schema/judge.ts'
import { validateStandard } from '../tool/schema/standard.ts'
import {
  errorResult,
  type Finished,
  inputRequired,
  scopesOf,
  type Target,
  type TaskTerms,
} from '../tool/target.ts'
import type { CallbackOptions, Definition, SdkContext } from './mount.ts'
import type { Passage } from './passage.ts'

export interface SdkTarget extends Target {
  /** The `ProtocolError` that the handler threw, which is meant for the client. */
  readonly thrown: ProtocolError | undefined
}

/** The last parameter is what the official server passed before the context: arguments, or a URI and its variables. */
export function requestTarget(
  definition: Definition,
  { request: { params } }: Passage,
  sdk: ServerContext,
  [first = {}, matched]: readonly unknown[],
): SdkTarget {
  const name = params.name ?? params.uri ?? ''
  const variables = matched ?? {}
  let thrown: ProtocolError | undefined
  const required = scopesOf(definition.options.scopes, undefined)
  const run = (ctx: Context): Promise<unknown> =>
    callHandler(definition, first, withSdk(ctx, sdk), variables, (error) => {
      thrown = error
    })
  return {
    ...toTarget(definition, name),
    // The official server does not say which template the URI matched.
    label: matched && definition.method === 'resources/read' ? `${name.split(':')[0]}:{…}` : undefined,
    // For the id of a task. The official server has checked the arguments.
    scopes: required && (() => required(first as never)),
    prepare: () => ({ kind: 'ready', run }),
    finish: (value) => assertResult(name, value),
    get thrown() {
      return thrown
    },
  }
}

/** A tool in a task. The request is gone, and the official context with it. */
export function taskTarget(tool: TaskTool | undefined, name: string): Target | undefined {
  if (!tool) return undefined
  const { definition, registered } = tool
  return {
    ...toTarget(definition, name),
    async prepare(args) {
      const checked = await check(registered.inputSchema, args)
      if (!checked.ok) return { kind: 'refused', problem: describe(checked) }
      return { kind: 'ready', run: (ctx) => callHandler(definition, checked.value, withoutSdk(ctx)) }
    },
    async finish(value) {
      const result = assertResult(name, value)
      const checked = result.isError
        ? undefined
        : await check(registered.outputSchema, result.structuredContent)
      if (checked?.ok === false) throw misuse(`The result of "${name}": ${describe(checked)}`)
      return result
    },
  }
}

function toTarget(
  { method, options }: Definition,
  name: string,
): Pick<Target, 'method' | 'name' | 'version' | 'task' | 'once' | 'accept' | 'fail'> {
  return {
    method,
    name,
    version: options.version,
    task: method === 'tools/call' ? toTerms(options) : { mode: 'never' },
    once: options.once,
    accept: options.accept,
    fail: (message) =>
      method === 'tools/call'
        ? { result: errorResult(message) }
        : { error: new RondoError('SERVER_HANDLER', message) },
  }
}

function toTerms({ task: mode = 'never', taskTtlMs, taskPollMs }: CallbackOptions): TaskTerms {
  return { mode, ttlMs: taskTtlMs, pollMs: taskPollMs }
}

/** Runs the author's handler. The message of a `ProtocolError` is meant for the client. */
async function callHandler(
  { handler }: Definition,
  first: unknown,
  ctx: SdkContext,
  variables?: unknown,
  onProtocolError?: (error: ProtocolError) => void,
): Promise<unknown> {
  try {
    return toOurs(await handler(first as never, ctx, variables as never))
  } catch (error) {
    if (!(error instanceof ProtocolError)) throw error
    onProtocolError?.(error)
    throw new ToolError(error.message, { cause: error })
  }
}

/** Adds the official context to ours. Its state and responses are those that passed our checks, never the token itself. */
function withSdk(ctx: Context, sdk: ServerContext): SdkContext {
  const mcpReq = {
    ...sdk.mcpReq,
    // A getter, because what the handler has read determines the keys of its effects.
    get inputResponses() {
      return ctx.inputResponses as never
    },
    requestState: (() => ctx.requestState) as never,
  }
  return Object.assign(ctx, { sdk: { ...sdk, mcpReq } })
}

function withoutSdk(ctx: Context): SdkContext {
  const get = (): never => {
    throw misuse('ctx.sdk is not available in a task, which outlives the request that began it.')
  }
  return Object.defineProperty(ctx, 'sdk', { get }) as SdkContext
}

/** A handler may also return the `inputRequired` of the official package. */
function toOurs(value: unknown): unknown {
  if (!isRecord(value) || value.resultType !== 'input_required') return value
  const { inputRequests = {}, requestState } = value as InputRequiredResult
  const asks = Object.keys(inputRequests).length > 0
  return inputRequired({ inputRequests: asks ? (inputRequests as InputRequests) : undefined, requestState })
}

/** The official server cannot send what is not JSON, and its client would wait forever. */
function assertResult(name: string, value: unknown): Finished {
  if (!isRecord(value)) {
    throw misuse(`The handler of "${name}" must return a result object, as the official server expects it.`)
  }
  try {
    JSON.stringify(value)
  } catch (cause) {
    throw misuse(
      `The result of "${name}" cannot be written as JSON: a cycle, a BigInt or a getter that throws.`,
      {
        cause,
      },
    )
  }
  return value
}

async function check(schema: TaskTool['registered']['inputSchema'], value: unknown): Promise<Result> {
  return schema ? validateStandard(schema as never, value) : { ok: true, value: value ?? {} }
}

function describe({ problems }: Extract<Result, { ok: false }>): string {
  return problems.map(({ path, message }) => (path === '' ? message : `${path}: ${message}`)).join('; ')
}

// Tasks on an official server: the methods with which clients follow them, and the tools that a worker finds by name.
//
// A task runs outside of any request. A worker therefore finds the tool by its registration, and the tool must not belong to
// a request, or its closure could be another caller's. So only a tool that has the option `task` may become a task, and it
// is refused when a second server registers a different callback under its name.

export type TaskAction = 'get' | 'update' | 'cancel'
export type AnswerTask = (
  action: TaskAction,
  taskId: unknown,
  ctx: ServerContext,
  server: McpServer['server'],
) => Promise<unknown>

/** Runs a function, and logs what it throws under the message. */
type Logged = <R>(message: string, run: () => R) => R

/** A tool as a worker finds it: what runs, and the schemas with which the official server would check it. */
export interface TaskTool {
  readonly definition: Definition
  readonly registered: Pick<RegisteredTool, 'inputSchema' | 'outputSchema'>
}

export interface TaskTools {
  /** Remembers a callback, so that it is recognised when it is registered. */
  remember(callback: object, definition: Definition): void
  /** Adds tasks to a server, and follows which tools are registered on it from now on. */
  add<S extends McpServer>(server: S, answer: AnswerTask, logged: Logged): S
  find(name: string): TaskTool | undefined
  /** True once a tool that may become a task is registered: before that, a worker could run nothing. */
  readonly isKnown: boolean
  /** True if a call of this tool, on this server, may become a task. */
  mayLeave(server: McpServer['server'], name: string, definition: Definition): boolean
}

const ACTIONS: readonly TaskAction[] = ['get', 'update', 'cancel']

/** Accepts any parameters; `toTaskCall` checks them. */
const ANY_PARAMS: StandardSchemaV1<unknown, { taskId?: unknown }> = {
  '~standard': { version: 1, vendor: 'rondo', validate: (value) => ({ value: value as object }) },
}

type Register = (name: string, config: unknown, callback: object) => RegisteredTool

export function assertTerms({ once, task, taskTtlMs, taskPollMs }: CallbackOptions, hasStore: boolean): void {
  assertTaskTimes({ ttl: ['taskTtlMs', taskTtlMs], poll: ['taskPollMs', taskPollMs] })
  if (hasStore || (once !== true && (task === undefined || task === 'never'))) return
  throw misuse(`The option "${once ? 'once' : 'task'}" needs a store: createRondo({ …, store })`)
}

export function createTaskTools(): TaskTools {
  const definitions = new WeakMap<object, Definition>()
  const tools = new Map<string, TaskTool>()
  const servers = new WeakSet<object>()

  const note = (name: string, definition: Definition, registered: RegisteredTool): void => {
    const before = tools.get(name)
    if (before && before.definition !== definition) {
      throw misuse(
        `The tool "${name}" may become a task, but was created twice. Call rondo.tool once, outside of the function that builds ` +
          'servers, because a task outlives the request for which a server is built; or omit the option "task".',
      )
    }
    tools.set(name, { definition, registered })
  }

  return {
    remember: (callback, definition) => void definitions.set(callback, definition),
    add(server, answer, logged) {
      const { server: inner } = server
      if (servers.has(inner)) return server
      servers.add(inner)
      inner.registerCapabilities({ extensions: { [TASKS_EXTENSION]: {} } })
      for (const action of ACTIONS) {
        inner.setRequestHandler(
          `tasks/${action}`,
          { params: ANY_PARAMS },
          ({ taskId }, ctx) => answer(action, taskId, ctx, inner) as never,
        )
      }
      const register = server.registerTool.bind(server) as Register
      const registering: Register = (name, config, callback) => {
        const registered = register(name, config, callback)
        const definition = definitions.get(callback)
        if (definition && (definition.options.task ?? 'never') !== 'never') {
          logged('A tool cannot be registered', () => note(name, definition, registered))
        }
        return registered
      }
      server.registerTool = registering as typeof server.registerTool
      return server
    },
    find: (name) => tools.get(name),
    get isKnown() {
      return tools.size > 0
    },
    mayLeave: (server, name, definition) => servers.has(server) && tools.get(name)?.definition === definition,
  }
}
