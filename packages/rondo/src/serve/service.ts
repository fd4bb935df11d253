/**
 * The seam between the entrances (HTTP, fetch, stdio) and what is served. An entrance turns bytes into a `Call`, passes
 * it to the service, and turns the `Reply` into bytes; it knows nothing of tools, journals or seals. The service finds
 * the target of a call and runs its round; lists, discovery and completion are in `listing.ts`.
 */

import type { FlowHost } from '../carry/host.ts'
import { observeRequest } from '../carry/report.ts'
import { type Need, needOf } from '../carry/scope.ts'
import { handleTask, watchTasks, withRelatedTasks } from '../carry/task/call.ts'
import { runRound } from '../carry/token.ts'
import { type ErrorCode, RondoError } from '../errors.ts'
import { isThenable } from '../lib/json.ts'
import type {
  Call,
  Line,
  ListenCall,
  Listing,
  Principal,
  SessionCall,
  TaskListCall,
} from '../protocol/call.ts'
import { type Codecs, namedVersions } from '../protocol/codec.ts'
import type { ParamHeader } from '../protocol/common/headers.ts'
import type { Reply, TaskState } from '../protocol/reply.ts'
import type { ClientCapabilities } from '../protocol/wire.ts'
import type { Older } from '../session/older.ts'
import type { CachePolicy } from '../tool/definition.ts'
import type { Registry } from '../tool/registry.ts'
import { type ErrorReply, internalError, toErrorReply, unknownTarget } from './failure.ts'
import type { SlowHandlers } from './heartbeat.ts'
import type { Readiness } from './http/listen.ts'
import type { Change, ChangeBus } from './http/subscription.ts'
import type { Loads } from './limits.ts'
import { complete, createCatalog } from './listing.ts'

/** A call in progress. Subscriptions are served by the entrances, from `changes`. */
interface ActiveCall {
  readonly call: Exclude<Call, ListenCall>
  readonly principal: Principal | undefined
  readonly line: Line
}

export interface Service {
  readonly serverInfo: { readonly name: string; readonly version: string; readonly title?: string }
  readonly codecs: Codecs
  readonly supportedVersions: readonly string[]
  /** The versions named to a client that speaks none of them. */
  readonly namedVersions?: readonly string[]
  readonly changes: ChangeBus
  /** The changes to which a client may subscribe: those whose capability is declared. */
  readonly changeKinds: readonly Exclude<Change['kind'], 'everything'>[]
  /** Never rejects. */
  handle(active: ActiveCall): Reply | Promise<Reply>
  /** Serves clients of earlier eras. Absent if these are closed. */
  readonly older?: Older
  paramHeaders(tool: string): readonly ParamHeader[]
  /** True if something that is served asks for scopes. */
  readonly scoped: boolean
  /** What a request needs of its caller's token. Throws or rejects if the author's function does. */
  needOf(call: Call | SessionCall | TaskListCall): Need | Promise<Need>
  /** There is a store for tasks. */
  readonly tasks?: boolean
  readonly watchTasks?: WatchTasks
  /** What the messages in flight weigh. */
  readonly loads?: Loads
  /** Logs slow handlers. */
  readonly slow?: SlowHandlers
  /** Whether the store does not respond. */
  readonly isStuck?: () => boolean
  /** Whether this instance can take calls. */
  readonly readiness?: Readiness
  /** Logs a request that was refused before anything ran. */
  onRefused?(code: ErrorCode, status: number): void
  /** An entrance has closed after draining. Resolves when everything else has stopped too. */
  onClosed?(): Promise<void>
  /** `draining` is true once the process has begun to stop. */
  readonly state: { readonly draining: boolean }
  /** From now on this instance is not ready, but still serves. */
  leave?(): void
  /** Sets `state.draining`. */
  drain(): void
}

/** Reports tasks as they change; returns a function that ends this. */
export type WatchTasks = (
  taskIds: readonly string[],
  principal: Principal | undefined,
  capabilities: ClientCapabilities,
  listener: (task: TaskState) => void,
) => Promise<() => void>

type Given =
  | 'serverInfo'
  | 'codecs'
  | 'changes'
  | 'older'
  | 'loads'
  | 'slow'
  | 'readiness'
  | 'onRefused'
  | 'onClosed'
  | 'leave'
  | 'drain'

interface ServiceOptions extends Pick<Service, Given> {
  readonly host: FlowHost
  readonly registry: Registry
  readonly instructions?: string
  readonly pageSize: number
  readonly listCache: CachePolicy
}

export interface OpenService extends Service {
  /** Something was declared or removed: rebuilds the list and notifies subscribers. */
  changed(listing: Listing): void
}

export function createService(options: ServiceOptions): OpenService {
  const { host, registry, serverInfo, instructions, changes, pageSize, listCache: cache, codecs } = options
  const supportedVersions = codecs.requestVersions
  const tasks = host.tasks !== undefined
  const catalog = createCatalog(registry, { pageSize, cache, supportedVersions, instructions, tasks })
  const toReply = (error: unknown): Reply => {
    if (error instanceof RondoError && error.code === 'LIMIT_TASKS')
      options.onRefused?.(error.code, error.http)
    return toErrorReply(error, host)
  }

  return {
    serverInfo,
    codecs,
    supportedVersions,
    namedVersions: namedVersions(codecs),
    older: options.older,
    loads: options.loads,
    changes,
    isStuck: host.storeWatch?.isStuck,
    changeKinds: ['tools', 'prompts', 'resources', 'resource'],
    slow: options.slow,
    readiness: options.readiness,
    onRefused: options.onRefused,
    onClosed: options.onClosed,
    leave: options.leave,
    state: host,
    drain: options.drain,
    tasks,
    watchTasks: host.tasks && watchTasks(host, host.tasks),
    paramHeaders: registry.paramHeaders,
    get scoped() {
      return registry.scoped
    },
    needOf: (call) => needOf(registry, call),
    handle({ call, principal, line }) {
      switch (call.kind) {
        case 'flow': {
          const target = registry.find(call.method, call.target)
          if (!target) return observeRequest(host, call, () => unknownTarget(call))
          const running = call.relatedTaskIds
            ? withRelatedTasks(host, call, principal).then((related) =>
                runRound({ host, target, call: related, principal, line }),
              )
            : runRound({ host, target, call, principal, line })
          return running.catch(toReply)
        }
        case 'list':
          return observeRequest(host, call, () => catalog.list(call.listing, call.cursor))
        case 'discover':
          return observeRequest(host, call, () => catalog.discover())
        case 'complete':
          return observeRequest(host, call, () => complete(registry, call).catch(toReply))
        case 'task':
          return observeRequest(host, call, (observed) => {
            if (!host.tasks) return { kind: 'error', error: new RondoError('PEER_METHOD') }
            return handleTask(host, host.tasks, call, principal, observed?.span).catch(toReply)
          })
      }
    },
    changed(listing) {
      catalog.invalidate(listing)
      options.older?.changed(listing)
      changes.publish({ kind: listing === 'templates' ? 'resources' : listing })
    },
  }
}

/**
 * Passes a call to the service and calls `finish` once, synchronously if the service replies so. If the service fails,
 * the client gets an internal error and the cause goes to `onError`.
 */
export function settle(
  service: Service,
  active: ActiveCall,
  onError: (error: unknown) => void,
  finish: (reply: Reply) => void,
): void {
  let reply: Reply | Promise<Reply>
  try {
    reply = service.handle(active)
  } catch (error) {
    reply = internalError(error, onError)
  }
  const done = (settled: Reply): void => finishOnce<Reply>(settled, finish, onError)
  if (isThenable(reply)) reply.then(done, (error) => done(internalError(error, onError)))
  else done(reply)
}

/** Finishes with `reply`, or with an internal error if that throws: a result that cannot be encoded, for example. */
export function finishOnce<R>(
  reply: R | ErrorReply,
  finish: (reply: R | ErrorReply) => void,
  onError: (error: unknown) => void,
): void {
  try {
    finish(reply)
  } catch (error) {
    try {
      finish(internalError(error, onError))
    } catch (again) {
      onError(again)
    }
  }
}
