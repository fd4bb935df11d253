/**
 * A reply becomes the JSON text of a JSON-RPC response.
 *
 * Every result carries `resultType` and names the server in `_meta` (A4). The text is put together from the parts:
 * the server's name is serialised once per service, a result that was serialised before is taken as it is.
 */

import { RondoError } from '../../errors.ts'
import type { RequestId } from '../call.ts'
import { SERVER_INFO } from '../common/meta-key.ts'
import type { Reply } from '../reply.ts'
import type { TaskState } from '../task.ts'

/** What encoding must know of the service. */
export interface Identity {
  readonly serverInfo: { readonly name: string; readonly version: string; readonly title?: string }
}

const stamps = new WeakMap<Identity, string>()

/** The whole response. A reply that cannot be written as JSON becomes an internal error. */
export function encodeReply(id: RequestId, reply: Reply, service: Identity): string {
  if (reply.kind === 'error') return encodeError(id, reply.error)
  try {
    return `{"jsonrpc":"2.0","id":${idText(id)},"result":${resultText(reply, service)}}`
  } catch (error) {
    return encodeError(id, new RondoError('SERVER_INTERNAL', 'The result is not JSON', { cause: error }))
  }
}

function resultText(reply: Exclude<Reply, { kind: 'error' }>, service: Identity): string {
  if (reply.kind === 'serialized') return reply.json
  if (reply.kind === 'complete') return serializeResult(reply.result, service)
  if (reply.kind === 'task_created') return stamped('task', toTaskHead(reply.task), service)
  if (reply.kind === 'task') return stamped('complete', toTaskResult(reply.task), service)
  const { inputRequests, requestState } = reply
  if (inputRequests === undefined && requestState === undefined) {
    throw new TypeError('input_required needs inputRequests or requestState')
  }
  return stamped('input_required', { inputRequests, requestState }, service)
}

/** The text of a complete result, for a reply of kind `serialized` that is sent many times. */
export function serializeResult(result: Readonly<Record<string, unknown>>, service: Identity): string {
  return stamped('complete', result, service)
}

function stamped(resultType: string, result: Readonly<Record<string, unknown>>, service: Identity): string {
  if (result._meta !== undefined || result.resultType !== undefined) {
    const _meta = { ...(result._meta as object | undefined), [SERVER_INFO]: service.serverInfo }
    return JSON.stringify({ ...result, resultType, _meta })
  }
  const text = JSON.stringify(result)
  const head = `{"resultType":"${resultType}",${stampOf(service)}`
  return text === '{}' ? `${head}}` : `${head},${text.slice(1)}`
}

function stampOf(service: Identity): string {
  let stamp = stamps.get(service)
  if (stamp === undefined) {
    stamp = `"_meta":{"${SERVER_INFO}":${JSON.stringify(service.serverInfo)}}`
    stamps.set(service, stamp)
  }
  return stamp
}

export function encodeError(id: RequestId | null, error: RondoError): string {
  const body = JSON.stringify({ code: error.rpc, message: error.sentence, data: error.data })
  return `{"jsonrpc":"2.0","id":${idText(id)},"error":${body}}`
}

export function encodeNotification(method: string, params: Readonly<Record<string, unknown>>): string {
  return `{"jsonrpc":"2.0","method":${JSON.stringify(method)},"params":${JSON.stringify(params)}}`
}

/** The HTTP status of a reply that is sent as one JSON body. */
export function statusOf(reply: Reply): number {
  return reply.kind === 'error' ? reply.error.http : 200
}

function idText(id: RequestId | null): string {
  return typeof id === 'string' ? JSON.stringify(id) : String(id)
}

/*
 * A task on the wire: flat, times as text. What was just created has no content yet; what is looked at later has the open
 * questions, the result or the error inline.
 */

export function toTaskHead(task: TaskState): Readonly<Record<string, unknown>> {
  const { taskId, status, statusMessage, createdAt, lastUpdatedAt, ttlMs, pollIntervalMs } = task
  return {
    taskId,
    status,
    statusMessage,
    createdAt: new Date(createdAt).toISOString(),
    lastUpdatedAt: new Date(lastUpdatedAt).toISOString(),
    ttlMs,
    pollIntervalMs,
  }
}

export function toTaskResult(task: TaskState): Readonly<Record<string, unknown>> {
  const { inputRequests, result, error } = task
  // Requesters in the field parse the inner result like any other, so it says of itself what it is.
  const inner = result === undefined ? undefined : { resultType: 'complete', ...result }
  return { ...toTaskHead(task), inputRequests, result: inner, error }
}
