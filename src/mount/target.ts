/**
 * A callback for the official server as a target. In a request the official server has checked the arguments and will check
 * the result; in a task nobody else does.
 */

import { type InputRequiredResult, ProtocolError, type ServerContext } from '@modelcontextprotocol/server'
import { misuse, RondoError, ToolError } from '../errors.ts'
import { isRecord } from '../lib/json.ts'
import type { InputRequests } from '../protocol/wire.ts'
import type { Context } from '../tool/context.ts'
import type { Result } from '../tool/schema/judge.ts'
import { validateStandard } from '../tool/schema/schema.ts'
import type { Finished, Target, TaskTerms } from '../tool/target.ts'
import { errorResult, inputRequired } from '../tool/target.ts'
import type { CallbackOptions, Definition, SdkContext } from './mount.ts'
import type { Passage } from './passage.ts'
import type { TaskTool } from './tasks.ts'

export interface SdkTarget extends Target {
  /** What the handler threw that has a code of the protocol; it was meant for the wire. */
  readonly thrown: ProtocolError | undefined
}

/** `given` is what their callback got before the context: arguments, or a URI and the variables of its template. */
export function requestTarget(
  definition: Definition,
  { request: { params } }: Passage,
  sdk: ServerContext,
  [first = {}, variables = {}]: readonly unknown[],
): SdkTarget {
  const name = params.name ?? params.uri ?? ''
  let thrown: ProtocolError | undefined
  const run = (ctx: Context): Promise<unknown> =>
    callHandler(definition, first, withSdk(ctx, sdk), variables, (error) => {
      thrown = error
    })
  return {
    ...toTarget(definition, name),
    prepare: () => ({ kind: 'ready', run }),
    finish: (value) => assertResult(name, value),
    get thrown() {
      return thrown
    },
  }
}

/** A tool in a task. The request is gone, and with it their context. */
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
): Pick<Target, 'method' | 'name' | 'version' | 'task' | 'once' | 'fail'> {
  return {
    method,
    name,
    version: options.version,
    task: method === 'tools/call' ? toTerms(options) : { mode: 'never' },
    once: options.once,
    fail: (message) =>
      method === 'tools/call'
        ? { result: errorResult(message) }
        : { error: new RondoError('SERVER_HANDLER', message) },
  }
}

function toTerms({ task: mode = 'never', taskTtlMs, taskPollMs }: CallbackOptions): TaskTerms {
  return { mode, ttlMs: taskTtlMs, pollMs: taskPollMs }
}

/** Runs the author's handler. A `ProtocolError` was written for the client to read. */
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

/** Puts their context into ours. What it says of the rounds is what has passed our checks, never the token itself. */
function withSdk(ctx: Context, sdk: ServerContext): SdkContext {
  const mcpReq = {
    ...sdk.mcpReq,
    // Read when the handler reads it: what it was given counts for the keys of its effects.
    get inputResponses() {
      return ctx.inputResponses as never
    },
    requestState: (() => ctx.requestState) as never,
  }
  return Object.assign(ctx, { sdk: { ...sdk, mcpReq } })
}

function withoutSdk(ctx: Context): SdkContext {
  const get = (): never => {
    throw misuse('There is no ctx.sdk in a task: it outlives the request that began it.')
  }
  return Object.defineProperty(ctx, 'sdk', { get }) as SdkContext
}

/** A handler may end a round by hand in their words, too. */
function toOurs(value: unknown): unknown {
  if (!isRecord(value) || value.resultType !== 'input_required') return value
  const { inputRequests = {}, requestState } = value as InputRequiredResult
  const asks = Object.keys(inputRequests).length > 0
  return inputRequired({ inputRequests: asks ? (inputRequests as InputRequests) : undefined, requestState })
}

/** What is no JSON the official server cannot send, and its client would wait for ever. */
function assertResult(name: string, value: unknown): Finished {
  if (!isRecord(value)) {
    throw misuse(`The handler of "${name}" gave no result object: return what the official server takes.`)
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
