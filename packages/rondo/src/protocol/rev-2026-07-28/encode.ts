/**
 * A reply becomes the JSON text of a JSON-RPC response.
 *
 * Every result carries `resultType` and names the server in `_meta` (A4). The server's name is serialized once per
 * service, and so is every result that many calls share.
 */

import { RondoError } from '../../errors.ts'
import { quote } from '../../lib/json.ts'
import type { RequestId } from '../call.ts'
import type { EncodeContext } from '../codec.ts'
import { encodeError, SERVER_INFO } from '../common/json-rpc.ts'
import { type Reply, toTaskHead, toTaskResult } from '../reply.ts'
import type { InputRequest, InputRequests } from '../wire.ts'

const stamps = new WeakMap<EncodeContext, string>()
/** By result, and by schema of a form. */
const texts = new WeakMap<object, string>()

/** The whole response. A reply that cannot be written as JSON becomes an internal error. */
export function encodeReply(id: RequestId, reply: Reply, service: EncodeContext): string {
  if (reply.kind === 'error') return encodeError(id, reply.error)
  try {
    return `{"jsonrpc":"2.0","id":${JSON.stringify(id)},"result":${resultText(reply, service)}}`
  } catch (error) {
    return encodeError(id, new RondoError('SERVER_INTERNAL', 'The result is not JSON', { cause: error }))
  }
}

function resultText(reply: Exclude<Reply, { kind: 'error' }>, service: EncodeContext): string {
  if (reply.kind === 'complete') return stamped('complete', reply.result, service)
  if (reply.kind === 'cacheable') return cacheableText(reply, service)
  if (reply.kind === 'task_created') return stamped('task', toTaskHead(reply.task), service)
  if (reply.kind === 'task') return stamped('complete', toTaskResult(reply.task), service)
  const { inputRequests, requestState } = reply
  if (inputRequests === undefined && requestState === undefined) {
    throw new TypeError('input_required needs inputRequests or requestState')
  }
  const state = requestState === undefined ? '' : `,"requestState":${quote(requestState)}`
  const asks = inputRequests === undefined ? '' : `,"inputRequests":${requestsText(inputRequests)}`
  return `{"resultType":"input_required",${stampOf(service)}${asks}${state}}`
}

function requestsText(requests: InputRequests): string {
  let text = ''
  for (const key of Object.keys(requests)) {
    const request = requests[key]
    if (request !== undefined) text += `${text && ','}${JSON.stringify(key)}:${requestText(request)}`
  }
  return `{${text}}`
}

/** The text of a form is written once for each schema: it is most of what a question costs to write. */
function requestText(request: InputRequest): string {
  const { method, params } = request
  if (method !== 'elicitation/create' || params.mode !== 'form' || Object.keys(params).length !== 3)
    return JSON.stringify(request)
  const { message, requestedSchema } = params
  let schema = texts.get(requestedSchema)
  if (schema === undefined) {
    schema = JSON.stringify(requestedSchema)
    texts.set(requestedSchema, schema)
  }
  return `{"method":"${method}","params":{"mode":"form","message":${JSON.stringify(message)},"requestedSchema":${schema}}}`
}

function cacheableText(
  { result, cache }: Extract<Reply, { kind: 'cacheable' }>,
  service: EncodeContext,
): string {
  let text = texts.get(result)
  if (text === undefined) {
    text = stamped('complete', { ttlMs: cache?.ttlMs, cacheScope: cache?.scope, ...result }, service)
    texts.set(result, text)
  }
  return text
}

function stamped(
  resultType: string,
  result: Readonly<Record<string, unknown>>,
  service: EncodeContext,
): string {
  if (result._meta !== undefined || result.resultType !== undefined) {
    const _meta = { ...(result._meta as object | undefined), [SERVER_INFO]: service.serverInfo }
    return JSON.stringify({ ...result, resultType, _meta })
  }
  const text = JSON.stringify(result)
  const head = `{"resultType":"${resultType}",${stampOf(service)}`
  return text === '{}' ? `${head}}` : `${head},${text.slice(1)}`
}

function stampOf(service: EncodeContext): string {
  let stamp = stamps.get(service)
  if (stamp === undefined) {
    stamp = `"_meta":{"${SERVER_INFO}":${JSON.stringify(service.serverInfo)}}`
    stamps.set(service, stamp)
  }
  return stamp
}
