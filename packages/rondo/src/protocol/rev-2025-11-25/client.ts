/**
 * The client's side of 2025-11-25 and older: a call becomes a message, a response is read. The client said
 * who it is and what it can be asked once, at `initialize`; a request carries its own parameters, and in `_meta` at most a
 * progress token and a trace.
 */

import { RondoError } from '../../errors.ts'
import { isRecord } from '../../lib/json.ts'
import type { Call, Envelope, FlowCall, RequestId, TaskCall } from '../call.ts'
import type { EncodedRequest } from '../codec.ts'
import { encodeMessage, methodOf, paramsOf } from '../common/json-rpc.ts'
import {
  type DecodedResponse,
  decodeComplete,
  decodeError,
  decodeQuestion,
  decodeServerInfo,
  decodeTask,
  invalid,
} from '../common/received.ts'
import type { TaskState, WireError } from '../reply.ts'
import type { ClientCapabilities, Discovery, InputRequest, InputRequests } from '../wire.ts'
import { hasTasks } from './decode.ts'

type Fields = Readonly<Record<string, unknown>>

export interface Introduction {
  readonly version: string
  readonly capabilities: ClientCapabilities
  readonly clientInfo: Envelope['clientInfo']
}

export function encodeRequest(call: Call): EncodedRequest {
  if (call.kind === 'discover' || call.kind === 'listen' || isLaterTask(call)) {
    throw new RondoError('PEER_REVISION', `${methodOf(call)} does not exist in ${call.protocolVersion}`)
  }
  if (call.kind === 'flow' && call.requestState !== undefined) {
    throw new RondoError(
      'INPUT_PENDING',
      'The pending call waits between two rounds, but this server has no rounds',
    )
  }
  assertVisited(call)
  const { inputResponses: _, requestState: __, ...plain } = paramsOf(call)
  const params = { ...plain, ...taskWishOf(call) }
  return {
    body: encodeMessage(call.id, methodOf(call), withMeta(params, metaOf(call))),
    headers: headersOf(call.protocolVersion),
  }
}

/** A request that needs visits to URLs is retried only after all of them were accepted. */
function assertVisited(call: Call): void {
  const responses = call.kind === 'flow' ? Object.values(call.inputResponses ?? {}) : []
  if (responses.every((one) => isRecord(one) && one.action === 'accept')) return
  const why = 'The server requires a visit to a URL before this request, and the visit was declined'
  throw new RondoError('INPUT_ABORTED', why)
}

/** There is no method for the input of a task: it asks while its result is awaited. */
function isLaterTask(call: Call): boolean {
  if (call.kind !== 'task') return false
  return !hasTasks(call.protocolVersion) || call.action === 'update'
}

/** The field with which a client asks for a task. */
export function taskWishOf(call: Call): Fields {
  return call.kind === 'flow' && call.task ? { task: { ttl: call.task.ttlMs } } : {}
}

export function encodeInitialize(id: RequestId, { version, capabilities, clientInfo }: Introduction): string {
  return encodeMessage(id, 'initialize', {
    protocolVersion: version,
    capabilities: capabilitiesIn(version, capabilities),
    clientInfo,
  })
}

/** Forms came with 2025-06-18; modes, and with them URLs, with 2025-11-25. */
function capabilitiesIn(version: string, { elicitation, ...others }: ClientCapabilities): ClientCapabilities {
  if (elicitation === undefined || version < '2025-06-18') return others
  if (version >= '2025-11-25') return { ...others, elicitation }
  return elicitation.form ? { ...others, elicitation: {} } : others
}

/** The client's response to a request of the server. */
export type Answered = { readonly result: object } | { readonly error: { code: number; message: string } }

/** Encodes it. `state` is echoed exactly, if the request had one. */
export function encodeAnswer({ id, state }: Fields, answered: Answered): string {
  return JSON.stringify({ jsonrpc: '2.0', id, ...(state !== undefined && { state }), ...answered })
}

/** Since 2025-06-18 a header repeats the version. */
export function hasVersionHeader(version: string): boolean {
  return version >= '2025-06-18'
}

export function headersOf(version: string): Readonly<Record<string, string>> {
  return {
    'Content-Type': 'application/json',
    Accept: 'application/json, text/event-stream',
    ...(hasVersionHeader(version) && { 'MCP-Protocol-Version': version }),
  }
}

export function metaOf(call: Envelope): Fields {
  const { meta, progressToken, trace } = call
  return { ...meta, ...(progressToken !== undefined && { progressToken }), ...trace }
}

export function withMeta(params: Fields, meta: Fields): Fields {
  return Object.keys(meta).length === 0 ? params : { ...params, _meta: meta }
}

// A response of 2025-11-25 or older. A result is always complete, since questions come as requests of their own, and
// `resultType` is ignored. One error asks, `URLElicitationRequired` of 2025-11-25: a round without a state, after which the
// request is repeated unchanged.
//
// The response to a call that asked for a task is a task without content; `tasks/result` returns the result of the call.

export function decodeResponse(call: Call, message: unknown): DecodedResponse {
  return decodeWithTasks(call, message, decodePlain)
}

function decodePlain(call: Call, message: unknown): DecodedResponse {
  const outcome = decodeOutcome(message)
  if (outcome.kind === 'complete') return decodeComplete(call, outcome.result)
  const visits = outcome.kind === 'error' ? visitsIn(call, outcome.error) : undefined
  return visits ? { kind: 'input_required', questions: visits } : outcome
}

const URL_ELICITATION_REQUIRED = -32042

/** The URLs to visit before the request is repeated; undefined for any other error. */
function visitsIn(call: Call, { code, data }: WireError): InputRequests | undefined {
  const asks = call.kind === 'flow' && isRecord(call.capabilities.elicitation?.url)
  const list = isRecord(data) ? data.elicitations : undefined
  if (code !== URL_ELICITATION_REQUIRED || !asks || !Array.isArray(list) || list.length === 0)
    return undefined
  const visits = list.map((params) => decodeQuestion({ method: 'elicitation/create', params }))
  if (visits.some((one) => one?.method !== 'elicitation/create' || one.params.mode !== 'url'))
    return undefined
  return Object.fromEntries(visits.map((one, index) => [`url-${index + 1}`, one as InputRequest]))
}

/** Decodes a response without checking the fields of its result. */
export function decodeOutcome(message: unknown): DecodedResponse {
  if (!isRecord(message) || message.jsonrpc !== '2.0') return invalid('it is not a JSON-RPC message')
  if (message.error !== undefined) return decodeError(message.error)
  return isRecord(message.result)
    ? { kind: 'complete', result: message.result }
    : invalid('it has neither a result nor an error')
}

/** The result of `initialize` as a discovery, with the one version that the server chose. */
export function decodeInitialize(result: Readonly<Record<string, unknown>>): Discovery | undefined {
  const { protocolVersion, capabilities, instructions } = result
  if (typeof protocolVersion !== 'string' || !isRecord(capabilities)) return undefined
  const serverInfo = decodeServerInfo(result.serverInfo)
  return {
    supportedVersions: [protocolVersion],
    capabilities,
    ...(typeof instructions === 'string' && { instructions }),
    ...(serverInfo && { serverInfo }),
  }
}

/** `decode` reads the responses that are not about tasks. */
export function decodeWithTasks(
  call: Call,
  message: unknown,
  decode: (call: Call, message: unknown) => DecodedResponse,
): DecodedResponse {
  if (call.kind === 'task') return decodeAboutTask(call, message, decode)
  const result = isRecord(message) ? message.result : undefined
  if (call.kind !== 'flow' || call.task === undefined || !isRecord(result) || result.task === undefined) {
    return decode(call, message)
  }
  const task = decodeHead(result.task)
  return task ? { kind: 'task', task } : { kind: 'invalid', problem: 'it lacks the fields of a task' }
}

function decodeAboutTask(
  call: TaskCall,
  message: unknown,
  decode: (call: Call, message: unknown) => DecodedResponse,
): DecodedResponse {
  if (call.action === 'result') {
    const asCall: FlowCall = { ...call, kind: 'flow', method: 'tools/call', target: '', args: {} }
    return decode(asCall, message)
  }
  const decoded = decode({ ...call, action: 'update' }, message)
  if (call.action !== 'get' || decoded.kind !== 'complete') return decoded
  const task = decodeHead(decoded.result)
  if (task?.taskId === call.taskId) return { kind: 'task', task }
  return { kind: 'invalid', problem: 'it is another task than the requested one' }
}

/** A page of `tasks/list`. Tasks that lack a field are left out. */
export function decodeTaskPage(
  result: Readonly<Record<string, unknown>>,
): { readonly tasks: readonly TaskState[]; readonly nextCursor?: string } | undefined {
  const { tasks, nextCursor } = result
  if (!Array.isArray(tasks)) return undefined
  return {
    tasks: tasks.flatMap((one) => decodeHead(one) ?? []),
    ...(typeof nextCursor === 'string' && { nextCursor }),
  }
}

/** The task in a `notifications/tasks/status`. */
export function decodeTaskStatus(message: unknown): TaskState | undefined {
  if (!isRecord(message) || message.method !== 'notifications/tasks/status') return undefined
  return decodeHead(message.params)
}

function decodeHead(value: unknown): TaskState | undefined {
  if (!isRecord(value)) return undefined
  return decodeTask({ ...value, ttlMs: value.ttl, pollIntervalMs: value.pollInterval }, 'head')
}
