/**
 * A reply becomes a JSON-RPC response of these revisions, an input request a JSON-RPC request.
 *
 * Results have no `resultType` and no cache hints. A missing resource is -32002; later codes are not sent. Structured
 * content is an object or absent; content blocks that a version lacks become text. Input requests name their mode only
 * where modes exist, a URL has an id, and choices have the form that the version defines.
 */

import { RondoError } from '../../errors.ts'
import { isRecord } from '../../lib/json.ts'
import type { RequestId } from '../call.ts'
import type { RequestOrigin } from '../codec.ts'
import { encodeNotification, errorText, responseText } from '../common/json-rpc.ts'
import { type OlderReply, relatedTask, type TaskState, type WireError } from '../reply.ts'
import type { ElicitFormParams, InputRequest, JsonSchema } from '../wire.ts'

type Result = Readonly<Record<string, unknown>>

/** The whole response. A reply that cannot be written as JSON becomes an internal error. */
export function encodeReply(id: RequestId, reply: OlderReply, protocolVersion: string): string {
  if (reply.kind === 'error') return encodeError(id, reply.error)
  if (reply.kind === 'task_failed') return encodeWireError(id, reply.error)
  try {
    return responseText(id, resultText(reply, protocolVersion))
  } catch (error) {
    return encodeError(id, new RondoError('SERVER_INTERNAL', 'The result is not JSON', { cause: error }))
  }
}

function resultText(
  reply: Exclude<OlderReply, { kind: 'error' | 'task_failed' }>,
  protocolVersion: string,
): string {
  if (reply.kind === 'input_required') throw new TypeError('input_required does not exist in this revision')
  return completeText(reply, protocolVersion)
}

/** Any result but `input_required`. */
export function completeText(
  reply: Exclude<OlderReply, { kind: 'error' | 'task_failed' | 'input_required' }>,
  protocolVersion: string,
): string {
  switch (reply.kind) {
    case 'cacheable':
      return cacheableText(reply.result)
    case 'complete':
      return JSON.stringify(olderResult(reply.result, protocolVersion))
    case 'task_created':
      return JSON.stringify({ task: toOlderTask(reply.task) })
    case 'task':
      return JSON.stringify(toOlderTask(reply.task))
    case 'tasks':
      return JSON.stringify({ tasks: reply.tasks.map(toOlderTask), nextCursor: reply.nextCursor })
  }
}

/** By result. */
const texts = new WeakMap<object, string>()

function cacheableText(result: Result): string {
  const text = texts.get(result) ?? JSON.stringify(result)
  texts.set(result, text)
  return text
}

/** A result without later fields. */
function olderResult(result: Result, protocolVersion: string): Result {
  const { resultType, ttlMs, cacheScope, structuredContent, ...rest } = result
  const plain = withOlderBlocks(rest, protocolVersion)
  return isRecord(structuredContent) ? { ...plain, structuredContent } : plain
}

/** The version in which a kind of content block first appeared; the others have always existed. */
const BLOCK_SINCE: Readonly<Record<string, string>> = {
  audio: '2025-03-26',
  resource_link: '2025-06-18',
}

/** Clients refuse a whole result for one unknown block, so such a block becomes text. */
function withOlderBlocks(result: Result, protocolVersion: string): Result {
  const older = (block: unknown): unknown => toOlderBlock(block, protocolVersion)
  const { content, messages } = result
  return {
    ...result,
    ...(Array.isArray(content) && { content: content.map(older) }),
    ...(Array.isArray(messages) && {
      messages: messages.map((one) => (isRecord(one) ? { ...one, content: older(one.content) } : one)),
    }),
  }
}

function toOlderBlock(block: unknown, protocolVersion: string): unknown {
  if (!isRecord(block)) return block
  const since = BLOCK_SINCE[String(block.type)]
  if (since === undefined || protocolVersion >= since) return block
  const { annotations } = block
  return {
    type: 'text',
    text: leftOut(block, protocolVersion),
    ...(annotations !== undefined && { annotations }),
  }
}

function leftOut(block: Result, protocolVersion: string): string {
  if (block.type === 'audio') {
    return `[Audio (${block.mimeType}) was left out: protocol revision ${protocolVersion} has no audio content.]`
  }
  const { name, uri, title, description, mimeType } = block
  const kind = mimeType === undefined ? '' : ` (${mimeType})`
  const about = description === undefined ? '' : ` ${description}`
  return `Resource "${title ?? name}"${kind}: ${uri}${about}`
}

export function encodeError(id: RequestId | null, error: RondoError): string {
  const code = error.code === 'PEER_RESOURCE' ? -32002 : error.rpc
  return encodeWireError(id, { code, message: error.sentence, data: error.data })
}

/** Later codes become -32602. */
export function encodeWireError(id: RequestId | null, error: WireError): string {
  const { code } = error
  return errorText(id, code <= -32020 && code >= -32099 ? { ...error, code: -32602 } : error)
}

/** An input request. `elicitationId` names a page to visit. */
export function encodeRequest(
  id: string,
  request: InputRequest,
  protocolVersion: string,
  elicitationId: string,
  { task, trace }: RequestOrigin = {},
): string {
  const { method } = request
  const own = paramsOf(request, protocolVersion, elicitationId)
  const origin = { ...(task !== undefined && relatedTask(task)), ...trace }
  const hasOrigin = Object.keys(origin).length > 0
  const params = hasOrigin ? { ...own, _meta: { ...metaOf(own), ...origin } } : own
  return JSON.stringify({ jsonrpc: '2.0', id, method, params })
}

function metaOf(params: Result | undefined): Result {
  return isRecord(params?._meta) ? params._meta : {}
}

function paramsOf(request: InputRequest, protocolVersion: string, elicitationId: string): Result | undefined {
  if (request.method === 'sampling/createMessage') return withOlderBlocks(request.params, protocolVersion)
  if (request.method !== 'elicitation/create') return request.params
  const { mode, ...rest } = request.params
  if (mode === 'url') return { elicitationId, mode, ...rest }
  if (protocolVersion >= '2025-11-25') return { mode: 'form', ...rest }
  const { requestedSchema } = rest as Pick<ElicitFormParams, 'requestedSchema'>
  return { ...rest, requestedSchema: toOlderForm(requestedSchema) }
}

/** Titled choices were `enum` with `enumNames` before 2025-11-25, which not every host shows: the description has them too. */
function toOlderForm(schema: JsonSchema): JsonSchema {
  if (!isRecord(schema.properties)) return schema
  const fields = Object.entries(schema.properties).map(([name, field]) => [name, toOlderField(field)])
  return { ...schema, properties: Object.fromEntries(fields) }
}

function toOlderField(field: unknown): unknown {
  if (!isRecord(field)) return field
  if (field.type === 'array') return toOlderList(field)
  const choices = choicesOf(field.oneOf)
  if (choices === undefined) return field
  const { oneOf, description, ...rest } = field
  const isTitled = choices.some(({ value, title }) => title !== value)
  return {
    ...rest,
    ...withHint(description, isTitled ? `One of ${listChoices(choices)}` : undefined),
    enum: choices.map(({ value }) => value),
    enumNames: choices.map(({ title }) => title),
  }
}

function listChoices(choices: readonly Choice[]): string {
  return choices.map(({ value, title }) => (title === value ? value : `${value} (${title})`)).join(', ')
}

function withHint(description: unknown, hint: string | undefined): { readonly description?: string } {
  const parts = [description, hint].filter((part) => part !== undefined)
  return parts.length > 0 ? { description: parts.join('. ') } : {}
}

/** These versions have no multiple choice: the values are typed, separated by commas. */
function toOlderList(field: JsonSchema): JsonSchema {
  const { type, items, minItems, maxItems, uniqueItems, default: preset, description, ...rest } = field
  const values = isRecord(items) && Array.isArray(items.enum) ? items.enum : undefined
  const choices =
    values?.map((value) => ({ value, title: value })) ?? choicesOf(isRecord(items) && items.anyOf)
  return {
    ...rest,
    type: 'string',
    ...withHint(description, choices && `Any of these, separated by commas: ${listChoices(choices)}`),
    ...(Array.isArray(preset) && { default: preset.join(', ') }),
  }
}

interface Choice {
  readonly value: unknown
  readonly title: unknown
}

function choicesOf(list: unknown): Choice[] | undefined {
  if (!Array.isArray(list)) return undefined
  return list.filter(isRecord).map(({ const: value, title }) => ({ value, title: title ?? value }))
}

/** With `ttl` and `pollInterval`, and without content. An `isError` result is a failed task, and a failed task says why. */
function toOlderTask(task: TaskState): Readonly<Record<string, unknown>> {
  const { taskId, createdAt, lastUpdatedAt, ttlMs, pollIntervalMs } = task
  const failed = task.status === 'failed' || task.result?.isError === true
  return {
    taskId,
    status: failed ? 'failed' : task.status,
    statusMessage: failed ? (reasonOf(task) ?? task.statusMessage) : task.statusMessage,
    createdAt: new Date(createdAt).toISOString(),
    lastUpdatedAt: new Date(lastUpdatedAt).toISOString(),
    ttl: ttlMs,
    pollInterval: pollIntervalMs,
  }
}

/** The notification that a task has changed. */
export function encodeTaskStatus(task: TaskState): string {
  return encodeNotification('notifications/tasks/status', toOlderTask(task))
}

/** Characters of a status message. */
const MAX_REASON = 500

function reasonOf({ error, result }: TaskState): string | undefined {
  if (error) return error.message
  const [first] = Array.isArray(result?.content) ? result.content : []
  return isRecord(first) && typeof first.text === 'string' ? first.text.slice(0, MAX_REASON) : undefined
}
