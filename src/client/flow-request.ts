/** The three requests that may take several rounds, as a caller writes them and as they are stored. */

import type { FlowCall, FlowMethod } from '../protocol/call.ts'
import type { CallToolResult, GetPromptResult, ReadResourceResult } from '../protocol/result.ts'

export interface ToolRequest {
  readonly method: 'tools/call'
  readonly name: string
  readonly arguments?: Readonly<Record<string, unknown>>
}

export interface PromptRequest {
  readonly method: 'prompts/get'
  readonly name: string
  readonly arguments?: Readonly<Record<string, string>>
}

export interface ResourceRequest {
  readonly method: 'resources/read'
  readonly uri: string
}

export type FlowRequest = ToolRequest | PromptRequest | ResourceRequest

interface FlowResults {
  'tools/call': CallToolResult
  'prompts/get': GetPromptResult
  'resources/read': ReadResourceResult
}

/** What a request gives when it is done. */
export type FlowResult<R extends FlowRequest = FlowRequest> = FlowResults[R['method']]

/** The part of the request that stays the same on every leg (C3). */
export function flowCallOf(request: FlowRequest): {
  kind: 'flow'
  method: FlowMethod
  target: string
  args: FlowCall['args']
} {
  return request.method === 'resources/read'
    ? { kind: 'flow', method: request.method, target: request.uri, args: {} }
    : { kind: 'flow', method: request.method, target: request.name, args: request.arguments ?? {} }
}
