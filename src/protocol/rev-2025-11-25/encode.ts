/**
 * A reply becomes a JSON-RPC response of these revisions, a question a JSON-RPC request.
 *
 * Results have no `resultType` and no cache hints. A missing resource is -32002; codes that came later are not sent.
 * Structured content is an object or absent. Questions say their mode only where modes exist, and a URL has an id.
 */

import { RondoError } from '../../errors.ts'
import { isRecord } from '../../lib/is-record.ts'
import type { RequestId } from '../call.ts'
import type { Reply } from '../reply.ts'
import type { InputRequest } from '../wire.ts'
import { toOlderTask } from './task-result.ts'

type Result = Readonly<Record<string, unknown>>

/** The whole response. A reply that cannot be written as JSON becomes an internal error. */
export function encodeReply(id: RequestId, reply: Reply): string {
  if (reply.kind === 'error') return encodeError(id, reply.error)
  try {
    return `{"jsonrpc":"2.0","id":${JSON.stringify(id)},"result":${resultText(reply)}}`
  } catch (error) {
    return encodeError(id, new RondoError('SERVER_INTERNAL', 'The result is not JSON', { cause: error }))
  }
}

function resultText(reply: Exclude<Reply, { kind: 'error' }>): string {
  if (reply.kind === 'serialized') return reply.json
  if (reply.kind === 'complete') return JSON.stringify(olderResult(reply.result))
  if (reply.kind === 'task_created') return JSON.stringify({ task: toOlderTask(reply.task) })
  if (reply.kind === 'task') return JSON.stringify(toOlderTask(reply.task))
  throw new TypeError(`${reply.kind} does not exist in this revision`)
}

/** A result without what came later. */
export function olderResult(result: Result): Result {
  const { resultType, ttlMs, cacheScope, structuredContent, ...rest } = result
  return isRecord(structuredContent) ? { ...rest, structuredContent } : rest
}

export function encodeError(id: RequestId | null, error: RondoError): string {
  const body = { code: olderCode(error), message: error.sentence, data: error.data }
  return `{"jsonrpc":"2.0","id":${JSON.stringify(id)},"error":${JSON.stringify(body)}}`
}

function olderCode({ code, rpc }: RondoError): number {
  if (code === 'PEER_RESOURCE') return -32002
  return rpc <= -32020 && rpc >= -32099 ? -32602 : rpc
}

/** A question as a request to the client. `elicitationId` names a page to visit. */
export function encodeRequest(
  id: string,
  request: InputRequest,
  protocolVersion: string,
  elicitationId: string,
): string {
  const { method } = request
  return JSON.stringify({
    jsonrpc: '2.0',
    id,
    method,
    params: paramsOf(request, protocolVersion, elicitationId),
  })
}

function paramsOf(request: InputRequest, protocolVersion: string, elicitationId: string): Result | undefined {
  if (request.method !== 'elicitation/create') return request.params
  const { mode, ...rest } = request.params
  if (mode === 'url') return { mode, ...rest, elicitationId }
  return protocolVersion < '2025-11-25' ? rest : { mode: 'form', ...rest }
}
