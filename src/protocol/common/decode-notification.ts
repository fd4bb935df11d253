/**
 * The notifications of a server. Returns undefined for one that this client does not know or that lacks a field: a
 * notification has no response, so there is nowhere to report the error.
 */

import { isRecord } from '../../lib/json.ts'
import type { ListenFilter } from '../call.ts'
import type { Notice } from '../reply.ts'
import { LOG_LEVELS } from '../wire.ts'
import { decodeTask } from './decode-result.ts'
import { SUBSCRIPTION_ID } from './meta-key.ts'

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
