/**
 * A response of 2025-11-25 or older. A result is always complete, since questions come as requests of their own, and
 * `resultType` is ignored. One error asks, `URLElicitationRequired` of 2025-11-25: a round without a state, after which the
 * request is repeated unchanged.
 *
 * The response to a call that asked for a task is a task without content; `tasks/result` returns the result of the call.
 */

import { isRecord } from '../../lib/json.ts'
import type { Call, FlowCall, TaskCall } from '../call.ts'
import {
  type DecodedResponse,
  decodeComplete,
  decodeError,
  decodeQuestion,
  decodeServerInfo,
  decodeTask,
  invalid,
} from '../common/decode-result.ts'
import type { WireError } from '../reply.ts'
import type { TaskState } from '../task.ts'
import type { Discovery, InputRequest, InputRequests } from '../wire.ts'

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
