/**
 * What is served: finds the target of a call and runs its round; answers lists, discovery and completion.
 */

import type { FlowHost } from '../carry/flow-host.ts'
import { answerTask, watchTasks } from '../carry/task-call.ts'
import { runRound } from '../carry/token.ts'
import { RondoError } from '../errors.ts'
import type { FlowCall, Line, Listing, Principal, TaskCall } from '../protocol/call.ts'
import { DRAFT_VERSION } from '../protocol/draft-2026-v1/version.ts'
import type { Reply } from '../protocol/reply.ts'
import { SERVER_INFO } from '../protocol/rev-2026-07-28/meta-key.ts'
import { TASKS_EXTENSION } from '../protocol/task.ts'
import { createCatalog } from '../tool/catalog.ts'
import type { CacheHint } from '../tool/definition.ts'
import type { Registry } from '../tool/registry.ts'
import {
  answerComplete,
  answerList,
  type SlowWatch,
  toErrorReply,
  unknownTarget,
  watchSlow,
} from './answer-call.ts'
import type { ChangeBus } from './change-bus.ts'
import type { Service } from './service.ts'
import type { Older } from './session/older.ts'

export interface ServiceOptions {
  readonly host: FlowHost
  readonly registry: Registry
  readonly serverInfo: Service['serverInfo']
  readonly instructions?: string
  readonly pageSize: number
  readonly listCache: CacheHint
  readonly changes: ChangeBus
  readonly slow: SlowWatch
  /** Versions of the new era that are served. */
  readonly versions: readonly string[]
  /** Serves clients of earlier eras, unless these are closed. */
  readonly older?: Older
  drain(): void
}

export interface OpenService extends Service {
  /** Something was declared or removed: lists are made anew and subscribers are told. */
  changed(listing: Listing): void
}

/**
 * Versions of the new era go first and alone: a client that shares none of them begins a session anyway. Where there are none,
 * the versions of sessions are named. A draft is named only where there is nothing else, since official clients take its label
 * for one of the new era that they lack, and give up.
 */
function namedVersions(modern: readonly string[], older: readonly string[]): readonly string[] {
  if (modern.length > 0) return modern
  const dated = older.filter((version) => version !== DRAFT_VERSION)
  return dated.length > 0 ? dated : older
}

export function createService(options: ServiceOptions): OpenService {
  const { host, registry, serverInfo, changes, pageSize, listCache } = options
  const meta = { [SERVER_INFO]: serverInfo }
  const { ttlMs, scope: cacheScope } = listCache
  const stamp = { resultType: 'complete', ttlMs, cacheScope, _meta: meta }
  const catalog = createCatalog(registry, { pageSize, stamp })
  let discovery: string | undefined

  return {
    serverInfo,
    supportedVersions: options.versions,
    namedVersions: namedVersions(options.versions, options.older?.versions ?? []),
    older: options.older,
    changes,
    changeKinds: ['tools', 'prompts', 'resources', 'resource'],
    get draining() {
      return host.draining
    },
    drain: options.drain,
    tasks: host.tasks !== undefined,
    watchTasks: host.tasks && watchTasks(host, host.tasks),
    paramHeaders: registry.paramHeaders,
    answer(call, principal, line) {
      switch (call.kind) {
        case 'flow':
          return watchSlow(options.slow, call, line, answerFlow(host, registry, call, principal, line))
        case 'list':
          return answerList(catalog, call.listing, call.cursor, host.log)
        case 'discover':
          discovery ??= describe(options, meta)
          return { kind: 'serialized', json: discovery }
        case 'complete':
          return answerComplete(registry, call, host.log)
        case 'task':
          return answerTaskCall(host, call, principal)
      }
    },
    changed(listing) {
      catalog.forget(listing)
      options.older?.changed(listing)
      discovery = undefined
      changes.publish({ kind: listing === 'templates' ? 'resources' : listing })
    },
  }
}

async function answerFlow(
  host: FlowHost,
  registry: Registry,
  call: FlowCall,
  principal: Principal | undefined,
  line: Line,
): Promise<Reply> {
  const target = registry.find(call.method, call.target)
  if (!target) return unknownTarget(call)
  try {
    return await runRound(host, target, call, principal, line)
  } catch (error) {
    return toErrorReply(error, host.log)
  }
}

async function answerTaskCall(
  host: FlowHost,
  call: TaskCall,
  principal: Principal | undefined,
): Promise<Reply> {
  if (!host.tasks) return { kind: 'error', error: new RondoError('PEER_METHOD') }
  try {
    return await answerTask(host, host.tasks, call, principal)
  } catch (error) {
    return toErrorReply(error, host.log)
  }
}

function describe(
  { host: { tasks }, registry, instructions, listCache, versions }: ServiceOptions,
  meta: object,
): string {
  const has = (listing: Listing): boolean => registry.rows(listing).length > 0
  return JSON.stringify({
    resultType: 'complete',
    supportedVersions: versions,
    capabilities: {
      tools: has('tools') ? { listChanged: true } : undefined,
      prompts: has('prompts') ? { listChanged: true } : undefined,
      resources: has('resources') || has('templates') ? { listChanged: true, subscribe: true } : undefined,
      completions: has('prompts') || has('templates') ? {} : undefined,
      logging: {},
      extensions: tasks ? { [TASKS_EXTENSION]: {} } : undefined,
    },
    instructions,
    ttlMs: listCache.ttlMs,
    cacheScope: listCache.scope,
    _meta: meta,
  })
}
