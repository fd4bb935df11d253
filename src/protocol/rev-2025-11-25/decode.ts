/**
 * A parsed message of a session becomes a call, a notification, or the answer to a question of ours.
 *
 * Unlike at 2026-07-28 a request does not say who sends it: version, capabilities and log level come from the session.
 * Rounds do not exist here: `inputResponses` and `requestState` mean nothing.
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
import {
  ANSWER_LIMITS,
  type AnswerLimits,
  isRequestId,
  readAnswers,
  readComplete,
  readFlow,
  readList,
  readTarget,
  readTrace,
} from '../common/request.ts'
import { RELATED_TASK } from '../task.ts'
import { LOG_LEVELS } from '../wire.ts'

type Params = Readonly<Record<string, unknown>>

/** What differs between the dialects that share this form. */
export interface ParamsReader {
  envelope(id: RequestId, params: Params, peer: PeerFacts): Envelope
  flow(envelope: Envelope, method: FlowMethod, params: Params): FlowCall
  /** What is done with tasks; undefined for a method that is none of theirs. */
  task(envelope: Envelope, method: string, params: Params): TaskCall | TaskListCall | undefined
}

const NO_PARAMS: Params = Object.freeze({})

const READER: ParamsReader = {
  envelope: readEnvelope,
  flow(envelope, method, params) {
    const plain = { ...params, inputResponses: undefined, requestState: undefined }
    const call = readFlow(envelope, method, readTarget(method, params), plain, ANSWER_LIMITS)
    return withTaskWish(call, params)
  },
  task: (envelope, method, params) => readTask(envelope, method, params),
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
      return reader.task(envelope, method, params) ?? unknownMethod()
  }
}

function unknownMethod(): never {
  throw new RondoError('PEER_METHOD')
}

/*
 * What stands for an envelope in these revisions: the session's facts, and the little that `params._meta` of a request
 * says. A token that is none is left out: nobody is told of progress then. Extensions came later and mean nothing here.
 */

export function readEnvelope(id: RequestId, params: Params, peer: PeerFacts): Envelope {
  const meta = isRecord(params._meta) ? params._meta : {}
  return {
    id,
    protocolVersion: peer.protocolVersion,
    capabilities: { ...peer.capabilities, extensions: undefined },
    clientInfo: peer.clientInfo,
    progressToken: isRequestId(meta.progressToken) ? meta.progressToken : undefined,
    logLevel: peer.logLevel,
    trace: meta.traceparent === undefined ? undefined : readTrace(meta),
  }
}

/* The parameters of the methods that only these revisions have, narrowed from JSON. */

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

/** Clients in the field leave parts of it out; it is for logs and handlers only. */
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

/*
 * A client's response to a question that was pushed to it: the bare result object, or why there is none.
 *
 * Whether it fits the question is decided later; here only shape and size count (T7).
 */

type Message = Readonly<Record<string, unknown>>

export function readAnswer(message: Message, limits: AnswerLimits = ANSWER_LIMITS): PeerAnswer {
  const { result, error } = message
  if (isRecord(error)) {
    const code = typeof error.code === 'number' ? error.code : 0
    return { kind: 'error', code, message: typeof error.message === 'string' ? error.message : '' }
  }
  try {
    const { only } = readAnswers({ only: result }, limits)
    return { kind: 'result', result: withoutTask(only as Message) }
  } catch {
    return { kind: 'error', code: 0, message: 'The answer is no result object, or is too large' }
  }
}

/** To which task an answer belongs is said for the way. What the handler sees is the same whatever carried it (R10). */
function withoutTask(result: Message): Message {
  if (!isRecord(result._meta) || !Object.hasOwn(result._meta, RELATED_TASK)) return result
  const { _meta, ...rest } = result
  const { [RELATED_TASK]: _, ...others } = _meta as Message
  return Object.keys(others).length === 0 ? rest : { ...rest, _meta: others }
}

/*
 * Tasks where the client is the one who asks for them: `task: { ttl }` beside the arguments of `tools/call`, and the
 * methods with which it follows one.
 */

/** Before this version there were no tasks. Draft labels sort after dates. */
const SINCE = '2025-11-25'

/** True if a client of this version could ask for a task. */
export function hasTasks(version: string): boolean {
  return version >= SINCE
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
