/**
 * `subscriptions/listen`: who is told of which changes, over HTTP and stdio alike.
 *
 * S1 The first message is the acknowledgement with the part of the filter that is honoured. S2 Every message names
 * its subscription. S3 Only what was asked for is told. S4 When the server closes, an empty result ends the
 * subscription; when the client goes, nothing more is written. S5 There are never more open at once, in all and of one
 * caller, than the limits say, and none keeps more bytes than it may (T18).
 */

import { RondoError } from '../../errors.ts'
import type { ListenCall, ListenFilter, Principal, RequestId } from '../../protocol/call.ts'
import { encodeNotification } from '../../protocol/common/json-rpc.ts'
import { SUBSCRIPTION_ID } from '../../protocol/common/meta-key.ts'
import { rememberedCapabilities } from '../../protocol/common/request.ts'
import { type TaskState, toTaskResult } from '../../protocol/task.ts'
import type { ClientCapabilities } from '../../protocol/wire.ts'
import { NOBODY } from '../limits.ts'
import type { Service } from '../service.ts'
import { createOwnerTally } from '../session/options.ts'
import { costOf } from '../session/session.ts'
import { type Outlet, openStream, refusal, type StreamOptions, toEvent } from './line.ts'

/** Where the messages of one subscription go. */
interface SubscriptionSink {
  send(json: string): void
  /** Nothing more follows. */
  end(): void
}

export interface Subscriptions {
  /** Starts a subscription; returns a function that ends it when the client goes. Throws if there are too many. */
  open(call: ListenCall, subscriber: Subscriber, sink: SubscriptionSink): () => void
  /** Ends all of them, each with its result. */
  endAll(): void
  readonly size: number
}

export interface Subscriber {
  readonly principal: Principal | undefined
  /** Whose part of the limits the subscription uses. */
  readonly share: string
}

export interface SubscriptionLimits {
  readonly maxSubscriptions?: number
  readonly maxSubscriptionsPerCaller?: number
  readonly maxSubscriptionBytes?: number
}

export function createSubscriptions(service: Service, limits: SubscriptionLimits = {}): Subscriptions {
  const {
    maxSubscriptions: max = 1024,
    maxSubscriptionsPerCaller: perCaller = 256,
    maxSubscriptionBytes: maxBytes = 65_536,
  } = limits
  const enders = new Set<() => void>()
  const byShare = createOwnerTally()

  const admit = (share: string, id: RequestId, filter: ListenFilter): void => {
    const full = enders.size >= max || (share !== NOBODY && byShare.of(share) >= perCaller)
    if (full) throw new RondoError('LIMIT_SUBSCRIPTIONS')
    const named = [String(id), ...(filter.resourceSubscriptions ?? []), ...(filter.taskIds ?? [])]
    if (named.reduce((sum, text) => sum + costOf(text), 0) > maxBytes) {
      throw new RondoError('PEER_PARAMS', 'The subscription names too much: listen to less at once')
    }
  }

  function open(call: ListenCall, { principal, share }: Subscriber, sink: SubscriptionSink): () => void {
    // What follows lives as long as the subscription, and must not hold on to the request.
    const { id, protocolVersion } = call
    const honoured = honour(call.filter, service)
    admit(share, id, honoured)
    const tag = { [SUBSCRIPTION_ID]: id }
    const leave = service.changes.subscribe((change) => {
      if (wants(honoured, change)) sink.send(toNotification(change, tag))
    })
    const declared = rememberedCapabilities(call.capabilities)
    const leaveTasks = followTasks(service, honoured.taskIds, principal, declared, {
      tell: (task) =>
        sink.send(encodeNotification('notifications/tasks', { ...toTaskResult(task), _meta: tag })),
      // The client looks by itself when nobody tells it.
      fail: () => end(),
    })
    const stop = (): void => {
      leave()
      leaveTasks()
      if (enders.delete(end)) byShare.add(share, -1)
    }
    const end = (): void => {
      stop()
      sink.send(farewell(id, protocolVersion, service))
      sink.end()
    }
    enders.add(end)
    byShare.add(share, 1)
    sink.send(
      encodeNotification('notifications/subscriptions/acknowledged', { notifications: honoured, _meta: tag }),
    )
    // There will never be anything to tell: no reason to hold a connection.
    if (Object.keys(honoured).length === 0) end()
    return stop
  }

  return {
    open,
    endAll() {
      for (const end of [...enders]) end()
    },
    get size() {
      return enders.size
    },
  }
}

interface TaskListener {
  tell(task: TaskState): void
  /** The tasks cannot be watched. */
  fail(): void
}

/** Watching begins a moment later than it is asked for, so that the acknowledgement is first. */
function followTasks(
  { watchTasks }: Service,
  ids: readonly string[] | undefined,
  principal: Principal | undefined,
  capabilities: ClientCapabilities,
  listener: TaskListener,
): () => void {
  if (!watchTasks || ids === undefined) return () => {}
  let left = false
  let stop = () => {}
  const follow = async () => {
    await undefined
    if (left) return
    const stopWatching = await watchTasks(ids, principal, capabilities, (task) => {
      if (!left) listener.tell(task)
    })
    if (left) stopWatching()
    else stop = stopWatching
  }
  follow()
    .catch(() => {
      if (!left) listener.fail()
    })
    // The client has gone in between: there is nobody to tell.
    .catch(() => {})
  return () => {
    left = true
    stop()
  }
}

function honour(filter: ListenFilter, { changeKinds: kinds, watchTasks }: Service): ListenFilter {
  const uris = filter.resourceSubscriptions
  const ids = watchTasks ? filter.taskIds : undefined
  return {
    ...(filter.toolsListChanged === true && kinds.includes('tools') && { toolsListChanged: true }),
    ...(filter.promptsListChanged === true && kinds.includes('prompts') && { promptsListChanged: true }),
    ...(filter.resourcesListChanged === true &&
      kinds.includes('resources') && { resourcesListChanged: true }),
    ...(uris !== undefined &&
      uris.length > 0 &&
      kinds.includes('resource') && { resourceSubscriptions: [...new Set(uris)] }),
    ...(ids !== undefined && ids.length > 0 && { taskIds: [...new Set(ids)] }),
  }
}

function wants(filter: ListenFilter, change: Change): boolean {
  switch (change.kind) {
    case 'tools':
      return filter.toolsListChanged === true
    case 'prompts':
      return filter.promptsListChanged === true
    case 'resources':
      return filter.resourcesListChanged === true
    case 'resource':
      return filter.resourceSubscriptions?.includes(change.uri) === true
  }
}

function toNotification(change: Change, _meta: Readonly<Record<string, RequestId>>): string {
  if (change.kind === 'resource') {
    return encodeNotification('notifications/resources/updated', { uri: change.uri, _meta })
  }
  return encodeNotification(`notifications/${change.kind}/list_changed`, { _meta })
}

function farewell(id: RequestId, version: string, service: Service): string {
  const { requests, newest } = service.codecs
  const codec = requests.get(version) ?? newest
  return codec.encodeReply(id, { kind: 'complete', result: { _meta: { [SUBSCRIPTION_ID]: id } } }, service)
}

/*
 * Changes within one process. A listener that throws does not keep the others from hearing; one that leaves while a
 * change is told hears it no more.
 */

export type Change =
  | { readonly kind: 'tools' }
  | { readonly kind: 'prompts' }
  | { readonly kind: 'resources' }
  | { readonly kind: 'resource'; readonly uri: string }

/** Carries list changes to open subscriptions. Instances that share one tell each other's subscribers too. */
export interface ChangeBus {
  publish(change: Change): void
  subscribe(listener: (change: Change) => void): () => void
}

export function createChangeBus(onError: (error: unknown) => void = () => {}): ChangeBus {
  const listeners = new Set<(change: Change) => void>()
  return {
    publish(change) {
      for (const listener of listeners) {
        try {
          listener(change)
        } catch (error) {
          onError(error)
        }
      }
    },
    subscribe(listener) {
      // One function may subscribe twice and leave once.
      const entry = (change: Change): void => listener(change)
      listeners.add(entry)
      return () => {
        listeners.delete(entry)
      }
    },
  }
}

/** Whatever bus it is: our listeners never throw into it. */
export function guardedBus(bus: ChangeBus, onError: (error: unknown) => void): ChangeBus {
  return {
    publish: (change) => bus.publish(change),
    subscribe: (listener) =>
      bus.subscribe((change) => {
        try {
          listener(change)
        } catch (error) {
          onError(error)
        }
      }),
  }
}

/*
 * One subscription over HTTP: a stream that stays open. A client that does not read it is cut off; it listens again
 * and looks at the lists anew.
 */

export function serveListen(
  call: ListenCall,
  subscriber: Subscriber,
  outlet: Outlet,
  subscriptions: Subscriptions,
  stream: StreamOptions,
): void {
  let stopKeepAlive: (() => void) | undefined
  try {
    const stop = subscriptions.open(call, subscriber, {
      send(json) {
        stopKeepAlive ??= openStream(outlet, stream)
        if (outlet.backlog > stream.maxBacklog) outlet.drop()
        else outlet.write(toEvent(json))
      },
      end() {
        stopKeepAlive?.()
        outlet.end()
      },
    })
    outlet.onGone(stop)
  } catch (error) {
    if (!(error instanceof RondoError)) throw error
    outlet.send(refusal(error, call.id))
  }
}
