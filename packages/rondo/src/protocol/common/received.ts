/**
 * The messages that a client receives. In results: the fields that a complete one must have, by the kind of call, the input requests of an
 * `input_required` one, and tasks. Returns undefined if a field is missing or has another type; additional fields are kept.
 * At the end: the notifications of a server.
 *
 * A1 Input requests are a map from keys to elicitation, sampling and roots requests, nothing else. A form may leave its
 * mode out.
 */

import { isRecord } from '../../lib/json.ts'
import type { Call, FlowMethod, ListenFilter, Listing } from '../call.ts'
import type { Notice, Received, TaskState } from '../reply.ts'
import {
  type CacheHint,
  type Completion,
  type Discovery,
  type InputRequest,
  type InputRequests,
  LOG_LEVELS,
  type Page,
  type ServerInfo,
} from '../wire.ts'
import { SERVER_INFO, SUBSCRIPTION_ID } from './json-rpc.ts'

export type DecodedResponse = Received | { readonly kind: 'invalid'; readonly problem: string }

type Fields = Readonly<Record<string, unknown>>

const FLOW_FIELDS: Readonly<Record<FlowMethod, string>> = {
  'tools/call': 'content',
  'prompts/get': 'messages',
  'resources/read': 'contents',
}

const LIST_FIELDS: Readonly<Record<Listing, { readonly list: string; readonly id: string }>> = {
  tools: { list: 'tools', id: 'name' },
  prompts: { list: 'prompts', id: 'name' },
  resources: { list: 'resources', id: 'uri' },
  templates: { list: 'resourceTemplates', id: 'uriTemplate' },
}

export function decodeComplete(call: Call, result: Fields): DecodedResponse {
  if (call.kind === 'task' && call.action === 'get') {
    const task = decodeTask(result, 'whole')
    return task?.taskId === call.taskId
      ? { kind: 'task', task }
      : invalid('it is another task than the requested one')
  }
  if (call.kind !== 'flow') return { kind: 'complete', result }
  const checked = decodeFlowResult(call.method, result)
  return checked === undefined
    ? invalid(`it lacks the list "${FLOW_FIELDS[call.method]}" of ${call.method}`)
    : { kind: 'complete', result: checked }
}

export function decodeError(error: unknown): DecodedResponse {
  if (!isRecord(error) || !Number.isInteger(error.code) || typeof error.message !== 'string') {
    return invalid('its error has no integer code or no message')
  }
  const { code, message, data } = error
  return { kind: 'error', error: { code: Number(code), message, ...(data !== undefined && { data }) } }
}

export function invalid(problem: string): DecodedResponse {
  return { kind: 'invalid', problem }
}

/** The result without the fields of the protocol. */
function decodeFlowResult(method: FlowMethod, result: Fields): Fields | undefined {
  const list = result[FLOW_FIELDS[method]]
  if (!Array.isArray(list) || !list.every(isRecord)) return undefined
  const { resultType: _, ...rest } = result
  return rest
}

export function decodePage(listing: Listing, result: Fields): Page | undefined {
  const { list, id } = LIST_FIELDS[listing]
  const items = result[list]
  const { nextCursor } = result
  if (!Array.isArray(items) || !items.every((item) => isRecord(item) && typeof item[id] === 'string')) {
    return undefined
  }
  if (nextCursor !== undefined && typeof nextCursor !== 'string') return undefined
  const decoded = items.map((item) => decodeItem(listing, item))
  return { items: decoded, ...(nextCursor !== undefined && { nextCursor }), ...decodeCacheHint(result) }
}

/**
 * An entry of a list whose fields have the types that callers rely on: a field of another type is left out, so that one bad
 * entry does not hide the others. A tool without a schema takes any object; a resource without a name has its URI for one.
 */
function decodeItem(listing: Listing, item: Fields): Fields {
  const entry = withText(withText(item, 'title'), 'description')
  switch (listing) {
    case 'tools':
      return isRecord(entry.inputSchema) ? entry : { ...entry, inputSchema: ANY_OBJECT }
    case 'prompts': {
      const { arguments: args, ...prompt } = entry
      const isNamed = (one: unknown) => isRecord(one) && typeof one.name === 'string'
      return Array.isArray(args) ? { ...prompt, arguments: args.filter(isNamed) } : prompt
    }
    default:
      return typeof entry.name === 'string' ? entry : { ...entry, name: entry[LIST_FIELDS[listing].id] }
  }
}

const ANY_OBJECT = { type: 'object' }

/** The entry without a field that is not a text. */
function withText(entry: Fields, name: string): Fields {
  if (entry[name] === undefined || typeof entry[name] === 'string') return entry
  const { [name]: _, ...rest } = entry
  return rest
}

export function decodeDiscovery(result: Fields): Discovery | undefined {
  const { supportedVersions, capabilities, instructions, _meta } = result
  if (!Array.isArray(supportedVersions) || !supportedVersions.every((one) => typeof one === 'string')) {
    return undefined
  }
  if (!isRecord(capabilities)) return undefined
  const serverInfo = decodeServerInfo(isRecord(_meta) ? _meta[SERVER_INFO] : undefined)
  return {
    supportedVersions,
    capabilities,
    ...(typeof instructions === 'string' && { instructions }),
    ...(serverInfo && { serverInfo }),
    ...decodeCacheHint(result),
  }
}

export function decodeCompletion(result: Fields): Completion | undefined {
  const { completion } = result
  if (!isRecord(completion) || !Array.isArray(completion.values)) return undefined
  const { values, total, hasMore } = completion
  if (!values.every((value) => typeof value === 'string')) return undefined
  return {
    values,
    ...(typeof total === 'number' && { total }),
    ...(typeof hasMore === 'boolean' && { hasMore }),
  }
}

/** A result without valid hints is not cached. */
export function decodeCacheHint(result: Fields): CacheHint {
  const { ttlMs, cacheScope } = result
  if (typeof ttlMs !== 'number' || !(ttlMs >= 0)) return {}
  return { ttlMs, cacheScope: cacheScope === 'public' ? 'public' : 'private' }
}

export function decodeServerInfo(value: unknown): ServerInfo | undefined {
  if (!isRecord(value) || typeof value.name !== 'string' || typeof value.version !== 'string')
    return undefined
  const { name, version, title } = value
  return { name, version, ...(typeof title === 'string' && { title }) }
}

export function decodeQuestions(value: unknown): InputRequests | undefined {
  if (value === undefined) return {}
  if (!isRecord(value)) return undefined
  const questions: [string, InputRequest][] = []
  for (const [key, entry] of Object.entries(value)) {
    const question = key === '__proto__' ? undefined : decodeQuestion(entry)
    if (question === undefined) return undefined
    questions.push([key, question])
  }
  return Object.fromEntries(questions)
}

/** One input request, from a result or from a request of the server. */
export function decodeQuestion(value: unknown): InputRequest | undefined {
  if (!isRecord(value)) return undefined
  const { method, params } = value
  switch (method) {
    case 'elicitation/create':
      return isRecord(params) ? decodeElicitation(params) : undefined
    case 'sampling/createMessage':
      if (!isRecord(params) || !Array.isArray(params.messages) || typeof params.maxTokens !== 'number') {
        return undefined
      }
      return { method, params: { ...params, messages: params.messages, maxTokens: params.maxTokens } }
    case 'roots/list':
      if (params === undefined) return { method }
      return isRecord(params) ? { method, params } : undefined
    default:
      return undefined
  }
}

function decodeElicitation(params: Readonly<Record<string, unknown>>): InputRequest | undefined {
  const { mode, message, requestedSchema, url } = params
  if (typeof message !== 'string') return undefined
  const method = 'elicitation/create'
  if (mode === undefined || mode === 'form') {
    if (!isRecord(requestedSchema)) return undefined
    return { method, params: { ...params, mode: 'form', message, requestedSchema } }
  }
  if (mode !== 'url' || typeof url !== 'string') return undefined
  return { method, params: { ...params, mode, message, url } }
}

const STATUSES: readonly TaskState['status'][] = [
  'working',
  'input_required',
  'completed',
  'failed',
  'cancelled',
]

/** A task that was just created is a head; one that was polled also has the questions, result or error of its status. */
export function decodeTask(fields: Fields, part: 'head' | 'whole'): TaskState | undefined {
  const { taskId, statusMessage, ttlMs, pollIntervalMs } = fields
  const status = STATUSES.find((one) => one === fields.status)
  const createdAt = timeOf(fields.createdAt)
  const lastUpdatedAt = timeOf(fields.lastUpdatedAt)
  if (typeof taskId !== 'string' || taskId === '' || status === undefined) return undefined
  if (createdAt === undefined || lastUpdatedAt === undefined) return undefined
  const content = part === 'head' ? {} : decodeContent(status, fields)
  return (
    content && {
      taskId,
      status,
      ...(typeof statusMessage === 'string' && { statusMessage }),
      createdAt,
      lastUpdatedAt,
      ttlMs: typeof ttlMs === 'number' && ttlMs >= 0 ? ttlMs : null,
      ...(typeof pollIntervalMs === 'number' && pollIntervalMs >= 0 && { pollIntervalMs }),
      ...content,
    }
  )
}

function decodeContent(
  status: TaskState['status'],
  { inputRequests, result, error }: Fields,
): Pick<TaskState, 'inputRequests' | 'result' | 'error'> | undefined {
  switch (status) {
    case 'input_required': {
      const questions = decodeQuestions(inputRequests)
      return questions && { inputRequests: questions }
    }
    case 'completed': {
      if (!isRecord(result) || (result.resultType ?? 'complete') !== 'complete') return undefined
      const checked = decodeFlowResult('tools/call', result)
      return checked && { result: checked }
    }
    case 'failed': {
      if (!isRecord(error) || !Number.isInteger(error.code) || typeof error.message !== 'string') {
        return undefined
      }
      const { code, message, data } = error
      return { error: { code: Number(code), message, ...(data !== undefined && { data }) } }
    }
    default:
      return {}
  }
}

function timeOf(text: unknown): number | undefined {
  const time = typeof text === 'string' ? Date.parse(text) : Number.NaN
  return Number.isFinite(time) ? time : undefined
}

/**
 * Returns undefined for a notification that this client does not know or that lacks a field: a notification has no response,
 * so there is nowhere to report the error.
 */
export function decodeNotification(message: unknown): Notice | undefined {
  if (!isRecord(message)) return undefined
  const params = isRecord(message.params) ? message.params : {}
  switch (message.method) {
    case 'notifications/progress':
      return decodeProgress(params)
    case 'notifications/message':
      return decodeLog(params)
    case 'notifications/subscriptions/acknowledged':
      return { kind: 'subscribed', filter: decodeFilter(params.notifications) }
    case 'notifications/tools/list_changed':
      return { kind: 'tools' }
    case 'notifications/prompts/list_changed':
      return { kind: 'prompts' }
    case 'notifications/resources/list_changed':
      return { kind: 'resources' }
    case 'notifications/resources/updated':
      return typeof params.uri === 'string' ? { kind: 'resource', uri: params.uri } : undefined
    case 'notifications/tasks': {
      const task = decodeTask(params, 'whole')
      return task && { kind: 'task', task }
    }
    default:
      return undefined
  }
}

/** The subscription that a notification belongs to, if one connection carries several. */
export function subscriptionOf(message: unknown): unknown {
  const params = isRecord(message) ? message.params : undefined
  const meta = isRecord(params) ? params._meta : undefined
  return isRecord(meta) ? meta[SUBSCRIPTION_ID] : undefined
}

function decodeProgress(params: Fields): Notice | undefined {
  const { progressToken: token, progress, total, message } = params
  if (typeof token !== 'string' && typeof token !== 'number') return undefined
  if (typeof progress !== 'number') return undefined
  return {
    kind: 'progress',
    token,
    progress,
    ...(typeof total === 'number' && { total }),
    ...(typeof message === 'string' && { message }),
  }
}

function decodeLog(params: Fields): Notice | undefined {
  const level = LOG_LEVELS.find((one) => one === params.level)
  if (level === undefined || params.data === undefined) return undefined
  return {
    kind: 'log',
    level,
    data: params.data,
    ...(typeof params.logger === 'string' && { logger: params.logger }),
  }
}

function decodeFilter(value: unknown): ListenFilter {
  if (!isRecord(value)) return {}
  const { resourceSubscriptions: uris, taskIds: ids } = value
  const isText = (one: unknown): one is string => typeof one === 'string'
  return {
    ...(value.toolsListChanged === true && { toolsListChanged: true }),
    ...(value.promptsListChanged === true && { promptsListChanged: true }),
    ...(value.resourcesListChanged === true && { resourcesListChanged: true }),
    ...(Array.isArray(uris) && { resourceSubscriptions: uris.filter(isText) }),
    ...(Array.isArray(ids) && { taskIds: ids.filter(isText) }),
  }
}
