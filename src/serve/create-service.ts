/**
 * What is served: finds the target of a call and runs its round; answers lists, discovery and completion.
 */

import type { FlowHost } from '../carry/flow-host.ts'
import { answerTask, watchTasks } from '../carry/task-call.ts'
import { runRound } from '../carry/token.ts'
import { RondoError } from '../errors.ts'
import type { CompleteCall, FlowCall, Line, Listing, Principal, TaskCall } from '../protocol/call.ts'
import type { Reply } from '../protocol/reply.ts'
import { SERVER_INFO } from '../protocol/rev-2026-07-28/meta-key.ts'
import { TASKS_EXTENSION } from '../protocol/task.ts'
import { type Catalog, createCatalog } from '../tool/catalog.ts'
import type { CacheHint } from '../tool/definition.ts'
import type { Registry } from '../tool/registry.ts'
import type { ChangeBus, Service } from './service.ts'

const SUPPORTED_VERSIONS: readonly string[] = ['2026-07-28']

export interface ServiceOptions {
  readonly host: FlowHost
  readonly registry: Registry
  readonly serverInfo: Service['serverInfo']
  readonly instructions?: string
  readonly pageSize: number
  readonly listCache: CacheHint
  readonly changes: ChangeBus
  drain(): void
}

export interface OpenService extends Service {
  /** Something was declared or removed: lists are made anew and subscribers are told. */
  changed(listing: Listing): void
}

const MAX_COMPLETIONS = 100

export function createService(options: ServiceOptions): OpenService {
  const { host, registry, serverInfo, changes, pageSize, listCache } = options
  const meta = { [SERVER_INFO]: serverInfo }
  const catalog = createCatalog(registry, { pageSize, cache: listCache, meta })
  let discovery: string | undefined

  return {
    serverInfo,
    supportedVersions: SUPPORTED_VERSIONS,
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
          return answerFlow(host, registry, call, principal, line)
        case 'list':
          return answerList(catalog, call.listing, call.cursor)
        case 'discover':
          discovery ??= describe(options, meta)
          return { kind: 'serialized', json: discovery }
        case 'complete':
          return answerComplete(registry, call)
        case 'task':
          return answerTaskCall(host, call, principal)
      }
    },
    changed(listing) {
      catalog.forget(listing)
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
  if (!target) return { kind: 'error', error: unknownTarget(call) }
  try {
    return await runRound(host, target, call, principal, line)
  } catch (error) {
    return { kind: 'error', error: toRondoError(error) }
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
    return { kind: 'error', error: toRondoError(error) }
  }
}

function unknownTarget({ method, target }: FlowCall): RondoError {
  if (method === 'resources/read')
    return new RondoError('PEER_RESOURCE', undefined, { data: { uri: target } })
  return new RondoError('PEER_PARAMS', `Unknown ${method === 'tools/call' ? 'tool' : 'prompt'}: ${target}`)
}

function toRondoError(error: unknown): RondoError {
  return error instanceof RondoError ? error : new RondoError('SERVER_INTERNAL', undefined, { cause: error })
}

function answerList(catalog: Catalog, listing: Listing, cursor: string | undefined): Reply {
  try {
    return { kind: 'serialized', json: catalog.page(listing, cursor) }
  } catch (error) {
    return { kind: 'error', error: toRondoError(error) }
  }
}

async function answerComplete(registry: Registry, { ref, argument, context }: CompleteCall): Promise<Reply> {
  const completer = registry.completer(ref, argument.name)
  try {
    const found = completer ? await completer(argument.value, context) : []
    const values = found.slice(0, MAX_COMPLETIONS)
    const completion = { values, total: found.length, hasMore: found.length > values.length }
    return { kind: 'complete', result: { completion } }
  } catch (error) {
    return { kind: 'error', error: toRondoError(error) }
  }
}

function describe(
  { host: { tasks }, registry, instructions, listCache }: ServiceOptions,
  meta: object,
): string {
  const has = (listing: Listing): boolean => registry.rows(listing).length > 0
  return JSON.stringify({
    resultType: 'complete',
    supportedVersions: SUPPORTED_VERSIONS,
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
