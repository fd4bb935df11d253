/**
 * A parsed message becomes a call.
 *
 * The order of the checks decides which error a faulty request gets: JSON-RPC shape, version and `_meta`, the
 * `Mcp-Method` header, the method, its target, `Mcp-Name`, the other parameters, the `Mcp-Param-…` headers. Headers are
 * checked over HTTP only. A version header that disagrees with the claimed version comes before a version that is not
 * served, and that before a missing header.
 */

import { RondoError } from '../../errors.ts'
import { isRecord } from '../../lib/json.ts'
import type { Call, Envelope, FlowMethod, RequestId } from '../call.ts'
import type { DecodeContext, RequestMessage } from '../codec.ts'
import {
  checkMethodHeader,
  checkNameHeader,
  checkParamHeaders,
  type RequestHeaders,
  versionHeader,
} from '../common/headers.ts'
import {
  CLIENT_CAPABILITIES,
  CLIENT_INFO,
  LOG_LEVEL,
  PROTOCOL_VERSION,
  RELATED_TASK_IDS,
} from '../common/json-rpc.ts'
import {
  ANSWER_LIMITS,
  readClientInfo,
  readComplete,
  readFlow,
  readList,
  readListen,
  readLogLevel,
  readProgressToken,
  readRelated,
  readTarget,
  readTask,
  readTrace,
  type TaskMethod,
} from '../common/request.ts'
import { isRequestId } from '../common/request-id.ts'
import type { ClientCapabilities } from '../wire.ts'

type Params = Readonly<Record<string, unknown>>

const NO_PARAMS: Params = Object.freeze({})

export function decode(
  message: unknown,
  headers: RequestHeaders | undefined,
  context: DecodeContext,
): RequestMessage {
  let id: RequestId | null = null
  try {
    if (!isRecord(message)) throw new RondoError('PEER_REQUEST', notOneMessage(message))
    if (isRequestId(message.id)) id = message.id
    const { jsonrpc, method, params } = message
    if (jsonrpc !== '2.0') throw new RondoError('PEER_REQUEST', 'jsonrpc must be "2.0"')
    if (typeof method !== 'string') throw new RondoError('PEER_REQUEST', 'method must be a string')
    if (params !== undefined && !isRecord(params)) {
      throw new RondoError('PEER_REQUEST', 'params must be an object')
    }
    if (message.id === undefined) return notification(method, params, headers)
    if (id === null) throw new RondoError('PEER_REQUEST', 'id must be a string or an integer')
    const envelope = readEnvelope(id, method, params, headers, context)
    if (headers !== undefined) checkMethodHeader(headers, method)
    return { kind: 'call', call: readCall(envelope, method, params ?? NO_PARAMS, headers, context) }
  } catch (error) {
    if (error instanceof RondoError) return { kind: 'refused', id, error }
    throw error
  }
}

function readCall(
  envelope: Envelope,
  method: string,
  params: Params,
  headers: RequestHeaders | undefined,
  context: DecodeContext,
): Call {
  switch (method) {
    case 'tools/call':
    case 'prompts/get':
    case 'resources/read':
      return flow(envelope, method, params, headers, context)
    case 'server/discover':
      return { kind: 'discover', ...envelope }
    case 'tools/list':
      return readList(envelope, 'tools', params)
    case 'prompts/list':
      return readList(envelope, 'prompts', params)
    case 'resources/list':
      return readList(envelope, 'resources', params)
    case 'resources/templates/list':
      return readList(envelope, 'templates', params)
    case 'completion/complete':
      return readComplete(envelope, params)
    case 'subscriptions/listen':
      return readListen(envelope, params)
    case 'tasks/get':
    case 'tasks/update':
    case 'tasks/cancel':
      return task(envelope, method, params, headers, context)
    default:
      return { kind: 'custom', method, args: params, ...envelope }
  }
}

function flow(
  envelope: Envelope,
  method: FlowMethod,
  params: Params,
  headers: RequestHeaders | undefined,
  context: DecodeContext,
): Call {
  const target = readTarget(method, params)
  if (headers !== undefined) checkNameHeader(headers, target)
  const call = readFlow(envelope, method, target, params, context.answerLimits ?? ANSWER_LIMITS)
  if (headers !== undefined && method === 'tools/call') {
    checkParamHeaders(headers, context.paramHeaders(target), call.args)
  }
  const related = isRecord(params._meta) ? params._meta[RELATED_TASK_IDS] : undefined
  return related === undefined ? call : { ...call, relatedTaskIds: readRelated(related) }
}

function task(
  envelope: Envelope,
  method: TaskMethod,
  params: Params,
  headers: RequestHeaders | undefined,
  context: DecodeContext,
): Call {
  if (!context.tasks) throw new RondoError('PEER_METHOD')
  const call = readTask(envelope, method, params, context.answerLimits ?? ANSWER_LIMITS)
  if (headers !== undefined) checkNameHeader(headers, call.taskId)
  return call
}

function notification(
  method: string,
  params: Params | undefined,
  headers: RequestHeaders | undefined,
): RequestMessage {
  // Existing clients omit the header on notifications; a wrong one is still a mismatch.
  if (headers?.['mcp-method'] !== undefined) checkMethodHeader(headers, method)
  return { kind: 'notification', method, params: params ?? NO_PARAMS }
}

function notOneMessage(message: unknown): string | undefined {
  return Array.isArray(message) ? 'Batches are not supported: send one message' : undefined
}

interface Versions {
  readonly supportedVersions: readonly string[]
  readonly namedVersions?: readonly string[]
}

function readEnvelope(
  id: RequestId,
  method: string,
  params: Params | undefined,
  headers: RequestHeaders | undefined,
  versions: Versions,
): Envelope {
  const meta = params?._meta
  const header = headers === undefined ? undefined : versionHeader(headers)
  if (!isRecord(meta) || meta[PROTOCOL_VERSION] === undefined) {
    throw unclaimed(method, params, header, versions)
  }
  const capabilities = meta[CLIENT_CAPABILITIES]
  const protocolVersion = checkVersion(meta[PROTOCOL_VERSION], header, versions)
  if (headers !== undefined && header === undefined) {
    throw new RondoError('PEER_HEADER', 'The MCP-Protocol-Version header is missing')
  }
  if (!isRecord(capabilities))
    throw new RondoError('PEER_META', `params._meta lacks "${CLIENT_CAPABILITIES}"`)
  return {
    id,
    protocolVersion,
    capabilities: capabilities as ClientCapabilities,
    clientInfo: meta[CLIENT_INFO] === undefined ? undefined : readClientInfo(meta[CLIENT_INFO]),
    progressToken: meta.progressToken === undefined ? undefined : readProgressToken(meta.progressToken),
    logLevel: meta[LOG_LEVEL] === undefined ? undefined : readLogLevel(meta[LOG_LEVEL]),
    trace: meta.traceparent === undefined ? undefined : readTrace(meta),
    meta,
  }
}

function checkVersion(claim: unknown, header: string | undefined, versions: Versions): string {
  if (typeof claim !== 'string') throw new RondoError('PEER_META', `"${PROTOCOL_VERSION}" must be a string`)
  if (header !== undefined && header !== claim) {
    throw new RondoError('PEER_HEADER', `MCP-Protocol-Version does not match "${PROTOCOL_VERSION}"`)
  }
  if (!versions.supportedVersions.includes(claim)) throw unsupported(claim, versions)
  return claim
}

/** A request without a version is of an older client, which learns the versions served (-32022), or malformed (-32602). */
function unclaimed(
  method: string,
  params: Params | undefined,
  header: string | undefined,
  versions: Versions,
): RondoError {
  if (header !== undefined && !versions.supportedVersions.includes(header))
    return unsupported(header, versions)
  if (method !== 'initialize') return new RondoError('PEER_META', `params._meta lacks "${PROTOCOL_VERSION}"`)
  if (header !== undefined) {
    return new RondoError(
      'PEER_HEADER',
      `initialize does not exist in ${header}, the version that the header names`,
    )
  }
  const wanted = params?.protocolVersion
  return unsupported(typeof wanted === 'string' ? wanted : '', versions)
}

function unsupported(requested: string, { supportedVersions, namedVersions }: Versions): RondoError {
  const supported = namedVersions ?? supportedVersions
  return new RondoError('PEER_VERSION', undefined, { data: { supported, requested } })
}
