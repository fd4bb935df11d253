/**
 * A callback for the official server as a target. In a request the official server checks the arguments and the result; in
 * a task they are checked here.
 */

import { type InputRequiredResult, ProtocolError, type ServerContext } from '@modelcontextprotocol/server'
import { misuse, RondoError, ToolError } from '../errors.ts'
import { isRecord } from '../lib/json.ts'
import type { InputRequests } from '../protocol/wire.ts'
import type { Context } from '../tool/context.ts'
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
import type { CallbackOptions, Definition, SdkContext } from './definition.ts'
import type { Intercepted } from './intercept.ts'
import type { TaskTool } from './task-tools.ts'

export interface SdkTarget extends Target {
  /** The `ProtocolError` that the handler threw, which is meant for the client. */
  readonly thrown: ProtocolError | undefined
}

/** The last parameter is what the official server passed before the context: arguments, or a URI and its variables. */
export function requestTarget(
  definition: Definition,
  { request: { params } }: Intercepted,
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
