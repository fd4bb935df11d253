/**
 * A reply becomes the JSON text of a JSON-RPC response.
 *
 * Every result carries `resultType` and names the server in `_meta` (A4). The server's name is serialized once per
 * service, and so is every result that many calls share.
 */

import { RondoError } from '../../errors.ts'
import type { RequestId } from '../call.ts'
import type { EncodeContext, RequestCodec } from '../codec.ts'
import { encodeError, SERVER_INFO } from '../common/json-rpc.ts'
import type { Reply } from '../reply.ts'
import { toTaskHead, toTaskResult } from '../task.ts'
import { decode } from './decode.ts'

const stamps = new WeakMap<EncodeContext, string>()
/** By result. */
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
  return stamped('input_required', { inputRequests, requestState }, service)
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

/** The revision 2026-07-28: requests that stand alone, and rounds. */
export const REV_2026_07_28: RequestCodec = { kind: 'request', versions: ['2026-07-28'], decode, encodeReply }
