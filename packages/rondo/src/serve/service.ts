/**
 * The seam between the entrances (HTTP, fetch, stdio) and what is served. An entrance turns bytes into a `Call`, passes
 * it to the service, and turns the `Reply` into bytes; it knows nothing of tools, journals or seals. The service finds
 * the target of a call and runs its round; lists, discovery and completion are in `listing.ts`.
 */

import { AS_REPLY, aroundRequest } from '../carry/around.ts'
import type { FlowHost } from '../carry/host.ts'
import { observeRequest } from '../carry/report.ts'
import { needOf } from '../carry/scope.ts'
import { handleTask, watchTasks, withRelatedTasks } from '../carry/task/call.ts'
import { runRound } from '../carry/token.ts'
import { RondoError } from '../errors.ts'
import type { Listing } from '../protocol/call.ts'
import { namedVersions } from '../protocol/codec.ts'
import type { Reply } from '../protocol/reply.ts'
import type { CachePolicy } from '../tool/definition.ts'
import type { Registry } from '../tool/registry.ts'
import { type ErrorReply, internalError, toErrorReply, unknownTarget } from './failure.ts'
import { complete, createCatalog, watchResource } from './listing.ts'
import type { ActiveCall, ServedExtensions, Service } from './port.ts'

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
  readonly extensions: ServedExtensions
  readonly host: FlowHost
  readonly registry: Registry
  readonly instructions?: () => string | undefined
  readonly pageSize: number
  readonly listCache: CachePolicy
}

export interface OpenService extends Service {
  /** Something was declared or removed: rebuilds the list and notifies subscribers. */
  changed(listing: Listing): void
  /** Rebuilds the list without a notification. */
  invalidate(listing: Listing): void
}

export function createService(options: ServiceOptions): OpenService {
  const { host, registry, serverInfo, instructions, changes, pageSize, listCache: cache, codecs } = options
  const { extensions } = options
  const supportedVersions = codecs.requestVersions
  const servesTasks = (): boolean => host.tasks !== undefined || host.forwarded !== undefined
  const perCaller = (): boolean => host.rowsFor !== undefined
  const catalog = createCatalog(registry, {
    pageSize,
    cache,
    supportedVersions,
    instructions,
    tasks: servesTasks,
    perCaller,
  })
  const watching = watchTasks(host)
  const invalidate = (listing: Listing): void => {
    catalog.invalidate(listing)
    options.older?.changed(listing)
  }
  const toReply = (error: unknown): Reply => {
    if (error instanceof RondoError && error.code === 'LIMIT_TASKS')
      options.onRefused?.(error.code, error.http)
    return toErrorReply(error, host)
  }

  const serve = ({ call, principal, line }: ActiveCall): Reply | Promise<Reply> => {
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
        return observeRequest(host, call, () =>
          host.rowsFor
            ? catalog.listFor(host.rowsFor, call, principal).catch(toReply)
            : catalog.list(call.listing, call.cursor),
        )
      case 'discover':
        return observeRequest(host, call, () => catalog.discover())
      case 'complete':
        return observeRequest(host, call, () => complete(registry, call, principal).catch(toReply))
      case 'custom':
        return observeRequest(host, call, () => extensions.serve(call, principal, line).catch(toReply))
      case 'task':
        return observeRequest(host, call, (observed) => {
          if (!servesTasks()) return { kind: 'error', error: new RondoError('PEER_METHOD') }
          return handleTask(host, call, principal, observed?.span).catch(toReply)
        })
    }
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
    extensions,
    get tasks() {
      return servesTasks()
    },
    watchResource: (uri, principal, changed) => watchResource(registry, uri, principal, changed),
    get watchTasks() {
      return servesTasks() ? watching : undefined
    },
    paramHeaders: registry.paramHeaders,
    get scoped() {
      return registry.scoped
    },
    needOf: (call) => needOf(registry, call),
    handle(active) {
      if (host.steps.length === 0) return serve(active)
      const run = async (): Promise<Reply> => serve(active)
      return aroundRequest<Reply>(host.steps, active.call, active.principal, run, AS_REPLY).catch(toReply)
    },
    invalidate,
    changed(listing) {
      invalidate(listing)
      changes.publish({ kind: listing === 'templates' ? 'resources' : listing })
    },
  }
}

/** Passes a call to the service. If it fails, the reply is an internal error and the cause goes to `onError`. Never rejects. */
export async function replyTo(
  service: Service,
  active: ActiveCall,
  onError: (error: unknown) => void,
): Promise<Reply> {
  try {
    return await service.handle(active)
  } catch (error) {
    return internalError(error, onError)
  }
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
