/**
 * The fields a complete result must have, by the kind of call, and the few that are read here. Gives undefined where a
 * field is missing or has another type; what a server adds is kept.
 */

import { isRecord } from '../../lib/is-record.ts'
import type { FlowMethod, Listing } from '../call.ts'
import type { CacheHint, Completion, Discovery, Page, ServerInfo } from '../result.ts'
import { SERVER_INFO } from './meta-key.ts'

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

/** The result without what belongs to the protocol. */
export function decodeFlowResult(method: FlowMethod, result: Fields): Fields | undefined {
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
  return { items, ...(nextCursor !== undefined && { nextCursor }), ...decodeCacheHint(result) }
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

/** Hints that are missing or make no sense are no hints: such a result is not kept. */
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
