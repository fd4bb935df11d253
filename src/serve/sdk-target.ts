/**
 * A callback for the official server as a target: its arguments are checked already, its result is theirs to check.
 */

import { type InputRequiredResult, ProtocolError, type ServerContext } from '@modelcontextprotocol/server'
import { RondoError, ToolError } from '../errors.ts'
import { isRecord } from '../lib/is-record.ts'
import type { FlowMethod } from '../protocol/call.ts'
import type { InputRequests } from '../protocol/wire.ts'
import type { Context } from '../tool/context.ts'
import { type InputRequired, inputRequired } from '../tool/input-required.ts'
import { type Finished, NO_TASK, type Target } from '../tool/target.ts'
import { errorResult } from '../tool/tool-result.ts'

/** Our context, with theirs at `sdk`. */
export interface SdkContext extends Context {
  /** The official context. Its `requestState()` and `inputResponses` are those of the manual form: opened and bound. */
  readonly sdk: ServerContext
}

export interface SdkTarget extends Target {
  /** What the handler threw that has a code of the protocol; it was meant for the wire. */
  readonly thrown: ProtocolError | undefined
}

/** `run` calls the author's handler. */
export function toTarget(
  method: FlowMethod,
  name: string,
  version: string | undefined,
  run: (ctx: Context) => unknown,
): SdkTarget {
  let thrown: ProtocolError | undefined
  const runKnown = async (ctx: Context): Promise<unknown> => {
    try {
      return toOurs(await run(ctx))
    } catch (error) {
      if (!(error instanceof ProtocolError)) throw error
      thrown = error
      throw new ToolError(error.message, { cause: error })
    }
  }
  return {
    method,
    name,
    version,
    task: NO_TASK,
    prepare: () => ({ kind: 'ready', run: runKnown }),
    finish: (value) => assertResult(name, value),
    fail: (message) =>
      method === 'tools/call'
        ? { result: errorResult(message) }
        : { error: new RondoError('SERVER_HANDLER', message) },
    get thrown() {
      return thrown
    },
  }
}

/** Puts their context into ours. What it says of the rounds is what has passed our checks, never the token itself. */
export function withSdk(ctx: Context, sdk: ServerContext): SdkContext {
  const { inputResponses, requestState } = ctx
  const mcpReq = { ...sdk.mcpReq, inputResponses, requestState: (() => requestState) as never }
  return Object.assign(ctx, { sdk: { ...sdk, mcpReq } })
}

/** A handler may end a round by hand in their words, too. */
function toOurs(value: unknown): unknown {
  if (!isRecord(value) || value.resultType !== 'input_required') return value
  const { inputRequests = {}, requestState } = value as InputRequiredResult
  const asks = Object.keys(inputRequests).length > 0
  return inputRequired({
    inputRequests: asks ? (inputRequests as InputRequests) : undefined,
    requestState,
  }) satisfies InputRequired
}

function assertResult(name: string, value: unknown): Finished {
  if (isRecord(value)) return value
  throw new TypeError(
    `The handler of "${name}" gave no result object: return what the official server takes.`,
  )
}
