/**
 * A reply becomes a JSON-RPC response of these revisions, a question a JSON-RPC request.
 *
 * Results have no `resultType` and no cache hints. A missing resource is -32002; codes that came later are not sent.
 * Structured content is an object or absent. Questions say their mode only where modes exist, and a URL has an id.
 */

import { RondoError } from '../../errors.ts'
import { isRecord } from '../../lib/is-record.ts'
import type { RequestId } from '../call.ts'
import type { OlderReply } from '../older-reply.ts'
import type { WireError } from '../received.ts'
import type { InputRequest } from '../wire.ts'
import { relatedTask, toOlderTask } from './task-result.ts'

type Result = Readonly<Record<string, unknown>>

/** The whole response. A reply that cannot be written as JSON becomes an internal error. */
export function encodeReply(id: RequestId, reply: OlderReply): string {
  if (reply.kind === 'error') return encodeError(id, reply.error)
  if (reply.kind === 'task_failed') return errorText(id, reply.error)
  try {
    return `{"jsonrpc":"2.0","id":${JSON.stringify(id)},"result":${resultText(reply)}}`
  } catch (error) {
    return encodeError(id, new RondoError('SERVER_INTERNAL', 'The result is not JSON', { cause: error }))
  }
}

function resultText(reply: Exclude<OlderReply, { kind: 'error' | 'task_failed' }>): string {
  if (reply.kind === 'input_required') throw new TypeError('input_required does not exist in this revision')
  return completeText(reply)
}

/** A result that is the last word. */
export function completeText(
  reply: Exclude<OlderReply, { kind: 'error' | 'task_failed' | 'input_required' }>,
): string {
  switch (reply.kind) {
    case 'serialized':
      return reply.json
    case 'complete':
      return JSON.stringify(olderResult(reply.result))
    case 'task_created':
      return JSON.stringify({ task: toOlderTask(reply.task) })
    case 'task':
      return JSON.stringify(toOlderTask(reply.task))
    case 'tasks':
      return JSON.stringify({ tasks: reply.tasks.map(toOlderTask), nextCursor: reply.nextCursor })
  }
}

/** A result without what came later. */
function olderResult(result: Result): Result {
  const { resultType, ttlMs, cacheScope, structuredContent, ...rest } = result
  return isRecord(structuredContent) ? { ...rest, structuredContent } : rest
}

export function encodeError(id: RequestId | null, error: RondoError): string {
  const code = error.code === 'PEER_RESOURCE' ? -32002 : error.rpc
  return errorText(id, { code, message: error.sentence, data: error.data })
}

export function errorText(id: RequestId | null, { code, message, data }: WireError): string {
  const known = code <= -32020 && code >= -32099 ? -32602 : code
  return `{"jsonrpc":"2.0","id":${JSON.stringify(id)},"error":${JSON.stringify({ code: known, message, data })}}`
}

/** A question as a request to the client. `elicitationId` names a page to visit, `task` the task that asks. */
export function encodeRequest(
  id: string,
  request: InputRequest,
  protocolVersion: string,
  elicitationId: string,
  task?: string,
): string {
  const { method } = request
  const own = paramsOf(request, protocolVersion, elicitationId)
  const params = task === undefined ? own : { ...own, _meta: { ...metaOf(own), ...relatedTask(task) } }
  return JSON.stringify({ jsonrpc: '2.0', id, method, params })
}

function metaOf(params: Result | undefined): Result {
  return isRecord(params?._meta) ? params._meta : {}
}

function paramsOf(request: InputRequest, protocolVersion: string, elicitationId: string): Result | undefined {
  if (request.method !== 'elicitation/create') return request.params
  const { mode, ...rest } = request.params
  if (mode === 'url') return { mode, ...rest, elicitationId }
  return protocolVersion < '2025-11-25' ? rest : { mode: 'form', ...rest }
}
