/**
 * A JSON-RPC response to our client as `Received`, or the reason why it is none.
 *
 * A4: a result without `resultType` is complete. A6: `input_required` is valid for calls, prompts and resources only;
 * elsewhere, and with any type this client does not know, the response is invalid. A3: at least one of questions and
 * state, and the state is a string. A task is valid for tool calls that said they can follow one, and nowhere else.
 */

import { isRecord } from '../../lib/narrow.ts'
import type { Call, ListenFilter } from '../call.ts'
import { decodeFlowResult, decodeQuestions, decodeTask } from '../common/decode-result.ts'
import { SUBSCRIPTION_ID } from '../common/meta-key.ts'
import type { Notice, Received } from '../reply.ts'
import { followsTasks } from '../task.ts'
import { LOG_LEVELS } from '../wire.ts'

export type Decoded = Received | { readonly kind: 'invalid'; readonly problem: string }

export function decodeResponse(call: Call, message: unknown): Decoded {
  if (!isRecord(message) || message.jsonrpc !== '2.0') return invalid('it is not a JSON-RPC message')
  if (message.error !== undefined) return decodeError(message.error)
  if (!isRecord(message.result)) return invalid('it has neither a result nor an error')
  const { result } = message
  switch (result.resultType) {
    case undefined:
    case 'complete':
      return decodeComplete(call, result)
    case 'input_required':
      return call.kind === 'flow' ? decodeInputRequired(result) : invalid('only calls may ask for input')
    case 'task':
      return decodeCreated(call, result)
    default:
      return invalid(`its resultType ${JSON.stringify(result.resultType)} is not known`)
  }
}

function decodeCreated(call: Call, result: Readonly<Record<string, unknown>>): Decoded {
  if (call.kind !== 'flow' || call.method !== 'tools/call') return invalid('only tool calls may become tasks')
  if (!followsTasks(call.capabilities)) return invalid('it is a task, which this request did not allow')
  const task = decodeTask(result, 'head')
  return task === undefined ? invalid('it lacks what a task has') : { kind: 'task', task }
}

/** A result that is the last word. */
export function decodeComplete(call: Call, result: Readonly<Record<string, unknown>>): Decoded {
  if (call.kind === 'task' && call.action === 'get') {
    const task = decodeTask(result, 'whole')
    return task?.taskId === call.taskId
      ? { kind: 'task', task }
      : invalid('it is not the task that was asked for')
  }
  if (call.kind !== 'flow') return { kind: 'complete', result }
  const checked = decodeFlowResult(call.method, result)
  return checked === undefined
    ? invalid(`it lacks what ${call.method} gives`)
    : { kind: 'complete', result: checked }
}

function decodeInputRequired(result: Readonly<Record<string, unknown>>): Decoded {
  const questions = decodeQuestions(result.inputRequests)
  const state = result.requestState
  if (questions === undefined) return invalid('inputRequests is not a map of requests a client knows')
  if (state !== undefined && typeof state !== 'string') return invalid('requestState is not a string')
  if (state === undefined && Object.keys(questions).length === 0) {
    return invalid('it has neither inputRequests nor requestState')
  }
  return { kind: 'input_required', questions, ...(state !== undefined && { state }) }
}

export function decodeError(error: unknown): Decoded {
  if (!isRecord(error) || !Number.isInteger(error.code) || typeof error.message !== 'string') {
    return invalid('its error has no integer code or no message')
  }
  const { code, message, data } = error
  return { kind: 'error', error: { code: Number(code), message, ...(data !== undefined && { data }) } }
}

function invalid(problem: string): Decoded {
  return { kind: 'invalid', problem }
}

/*
 * What a server tells our client beside its answers. Gives undefined for what this client does not know or what lacks a
 * field: a notification has no answer, so there is nobody to complain to.
 */

type Fields = Readonly<Record<string, unknown>>

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

/** The subscription a notification belongs to, where one connection carries several. */
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
