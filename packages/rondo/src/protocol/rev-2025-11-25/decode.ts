/**
 * A parsed message of a session becomes a call, a notification, or the response to a request of the server.
 *
 * A request does not say who sends it: version, capabilities and log level come from the session, and `params._meta` has at
 * most a progress token and a trace. There are no rounds and no extensions: `inputResponses` and `requestState` are
 * ignored. The client decides what becomes a task, with `task: { ttl }` beside the arguments of `tools/call`.
 */

import { RondoError } from '../../errors.ts'
import { isRecord } from '../../lib/json.ts'
import type {
  Envelope,
  FlowCall,
  FlowMethod,
  InitializeCall,
  OlderCall,
  PeerAnswer,
  PeerFacts,
  RequestId,
  SessionCall,
  TaskCall,
  TaskListCall,
} from '../call.ts'
import type { SessionMessage } from '../codec.ts'
import { DRAWS_FORMS, drawsForms } from '../common/apps.ts'
import {
  ANSWER_LIMITS,
  type AnswerLimits,
  readAnswers,
  readComplete,
  readFlow,
  readList,
  readTarget,
  readTrace,
} from '../common/request.ts'
import { isRequestId } from '../common/request-id.ts'
import { RELATED_TASK } from '../reply.ts'
import { type ClientCapabilities, LOG_LEVELS } from '../wire.ts'

type Params = Readonly<Record<string, unknown>>

/** The parts that a draft that shares this form may replace. */
export interface ParamsReader {
  envelope(id: RequestId, params: Params, peer: PeerFacts): Envelope
  flow(envelope: Envelope, method: FlowMethod, params: Params): FlowCall
  /** A request about tasks; undefined for any other method. */
  task(envelope: Envelope, method: string, params: Params): TaskCall | TaskListCall | undefined
}

const NO_PARAMS: Params = Object.freeze({})

const READER: ParamsReader = {
  envelope: readEnvelope,
  flow(envelope, method, params) {
    const call = readFlow(envelope, method, readTarget(method, params), withoutRounds(params), ANSWER_LIMITS)
    return withTaskWish(call, params)
  },
  task: (envelope, method, params) => readTask(envelope, method, params),
}

function withoutRounds(params: Params): Params {
  if (params.inputResponses === undefined && params.requestState === undefined) return params
  return { ...params, inputResponses: undefined, requestState: undefined }
}

export function decode(message: unknown, peer: PeerFacts, reader: ParamsReader = READER): SessionMessage {
  let id: RequestId | null = null
  try {
    if (!isRecord(message)) throw new RondoError('PEER_REQUEST')
    if (isRequestId(message.id)) id = message.id
    const { jsonrpc, method, params } = message
    if (jsonrpc !== '2.0') throw new RondoError('PEER_REQUEST', 'jsonrpc must be "2.0"')
    if (method === undefined && id !== null) return { kind: 'answer', id, answer: readAnswer(message) }
    if (typeof method !== 'string') throw new RondoError('PEER_REQUEST', 'method must be a string')
    if (params !== undefined && !isRecord(params)) {
      throw new RondoError('PEER_REQUEST', 'params must be an object')
    }
    if (message.id === undefined) return { kind: 'notification', method, params: params ?? NO_PARAMS }
    if (id === null) throw new RondoError('PEER_REQUEST', 'id must be a string or an integer')
    return readCall(id, method, params ?? NO_PARAMS, peer, reader)
  } catch (error) {
    if (error instanceof RondoError) return { kind: 'refused', id, error }
    throw error
  }
}

function readCall(
  id: RequestId,
  method: string,
  params: Params,
  peer: PeerFacts,
  reader: ParamsReader,
): SessionMessage {
  switch (method) {
    case 'initialize':
      return { kind: 'session', call: readInitialize(id, params) }
    case 'ping':
      return { kind: 'session', call: { kind: 'ping', id } }
    case 'logging/setLevel':
      return { kind: 'session', call: readLevel(id, params) }
    case 'resources/subscribe':
      return { kind: 'session', call: readWatch(id, 'watch', params) }
    case 'resources/unsubscribe':
      return { kind: 'session', call: readWatch(id, 'unwatch', params) }
    default:
      return { kind: 'call', call: readOther(reader.envelope(id, params, peer), method, params, reader) }
  }
}

function readOther(envelope: Envelope, method: string, params: Params, reader: ParamsReader): OlderCall {
  switch (method) {
    case 'tools/call':
    case 'prompts/get':
    case 'resources/read':
      return reader.flow(envelope, method, params)
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
    default:
      return reader.task(envelope, method, params) ?? { kind: 'custom', method, args: params, ...envelope }
  }
}

/** An invalid progress token is ignored: no progress is sent then. */
export function readEnvelope(id: RequestId, params: Params, peer: PeerFacts): Envelope {
  const meta = isRecord(params._meta) ? params._meta : {}
  return {
    id,
    protocolVersion: peer.protocolVersion,
    capabilities: withoutLaterExtensions(peer.capabilities),
    clientInfo: peer.clientInfo,
    progressToken: isRequestId(meta.progressToken) ? meta.progressToken : undefined,
    logLevel: peer.logLevel,
    trace: meta.traceparent === undefined ? undefined : readTrace(meta),
    meta,
  }
}

/**
 * Returns a copy, because handlers see the capabilities and the session keeps them. Of the extensions of later revisions, a session
 * has the one for apps alone.
 */
function withoutLaterExtensions(capabilities: ClientCapabilities): ClientCapabilities {
  const copy = { ...capabilities }
  if (copy.extensions !== undefined) copy.extensions = drawsForms(capabilities) ? DRAWS_FORMS : undefined
  return copy
}

function readInitialize(id: RequestId, params: Params): InitializeCall {
  const { protocolVersion, capabilities, clientInfo } = params
  if (typeof protocolVersion !== 'string') throw invalid('params.protocolVersion must be a string')
  if (capabilities !== undefined && !isRecord(capabilities)) {
    throw invalid('params.capabilities must be an object')
  }
  return {
    kind: 'initialize',
    id,
    requested: protocolVersion,
    capabilities: capabilities ?? {},
    clientInfo: readClientInfo(clientInfo),
  }
}

/** Existing clients leave parts of it out; it is for logs and handlers only. */
function readClientInfo(value: unknown): InitializeCall['clientInfo'] {
  if (!isRecord(value) || typeof value.name !== 'string') return undefined
  const { name, version, title } = value
  return {
    name,
    version: typeof version === 'string' ? version : '',
    ...(typeof title === 'string' ? { title } : {}),
  }
}

function readLevel(id: RequestId, params: Params): SessionCall {
  const level = LOG_LEVELS.find((known) => known === params.level)
  if (level === undefined) throw invalid(`params.level must be one of ${LOG_LEVELS.join(', ')}`)
  return { kind: 'level', id, level }
}

function readWatch(id: RequestId, kind: 'watch' | 'unwatch', params: Params): SessionCall {
  if (typeof params.uri !== 'string') throw invalid('params.uri must be a string')
  return { kind, id, uri: params.uri }
}

function invalid(detail: string): RondoError {
  return new RondoError('PEER_PARAMS', detail)
}

/** A client's response to an input request. Only shape and size are checked here (T7); whether it fits is decided later. */
export function readAnswer(message: Params, limits: AnswerLimits = ANSWER_LIMITS): PeerAnswer {
  const { result, error } = message
  if (isRecord(error)) {
    const code = typeof error.code === 'number' ? error.code : 0
    return { kind: 'error', code, message: typeof error.message === 'string' ? error.message : '' }
  }
  try {
    const { only } = readAnswers({ only: result }, limits)
    return { kind: 'result', result: withoutTask(only as Params) }
  } catch {
    return { kind: 'error', code: 0, message: 'The response is not an object, or is too large' }
  }
}

/** Removes the name of the task: a handler sees the same response under every carrier (R10). */
function withoutTask(result: Params): Params {
  if (!isRecord(result._meta) || !Object.hasOwn(result._meta, RELATED_TASK)) return result
  const { _meta, ...rest } = result
  const { [RELATED_TASK]: _, ...others } = _meta as Params
  return Object.keys(others).length === 0 ? rest : { ...rest, _meta: others }
}

/** True if a client of this version can ask for a task. Labels of drafts sort after dates. */
export function hasTasks(version: string): boolean {
  return version >= '2025-11-25'
}

export function withTaskWish(call: FlowCall, { task }: Params): FlowCall {
  if (task === undefined || call.method !== 'tools/call' || !hasTasks(call.protocolVersion)) return call
  if (!isRecord(task)) throw new RondoError('PEER_PARAMS', 'params.task must be an object')
  const { ttl } = task
  if (
    ttl !== undefined &&
    ttl !== null &&
    !(typeof ttl === 'number' && Number.isSafeInteger(ttl) && ttl > 0)
  ) {
    throw new RondoError('PEER_PARAMS', 'params.task.ttl must be a positive number of milliseconds')
  }
  return { ...call, task: typeof ttl === 'number' ? { ttlMs: ttl } : {} }
}

const ACTIONS: Readonly<Record<string, TaskCall['action']>> = {
  'tasks/get': 'get',
  'tasks/result': 'result',
  'tasks/cancel': 'cancel',
}

export function readTask(
  envelope: Envelope,
  method: string,
  params: Params,
): TaskCall | TaskListCall | undefined {
  if (!hasTasks(envelope.protocolVersion)) return undefined
  if (method === 'tasks/list') return readTaskList(envelope, params)
  const action = Object.hasOwn(ACTIONS, method) ? ACTIONS[method] : undefined
  if (action === undefined) return undefined
  return { kind: 'task', action, taskId: readTaskId(params.taskId), ...envelope }
}

function readTaskList(envelope: Envelope, { cursor }: Params): TaskListCall {
  if (cursor !== undefined && typeof cursor !== 'string') {
    throw new RondoError('PEER_PARAMS', 'params.cursor must be a string')
  }
  return { kind: 'tasks', cursor, ...envelope }
}

export function readTaskId(value: unknown): string {
  if (typeof value !== 'string') throw new RondoError('PEER_PARAMS', 'The task id must be a string')
  return value
}
