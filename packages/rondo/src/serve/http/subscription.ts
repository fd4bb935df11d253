/**
 * `subscriptions/listen`: notifies subscribers of changes, over HTTP and stdio alike. Over HTTP a subscription is a stream
 * that stays open; a client that does not read it is cut off, and is to listen again and fetch the lists anew.
 *
 * subscription 1: The first message is the acknowledgement, with the part of the filter that is honored.
 * subscription 2: Every message names its subscription.
 * subscription 3: A subscriber is notified only of what it asked for.
 * subscription 4: When the server closes, an empty result ends the subscription; when the client goes, nothing more is sent.
 * subscription 5: The number of open subscriptions, in all and per caller, and the bytes of each are limited (T18).
 */

import { RondoError } from '../../errors.ts'
import type { ListenCall, ListenFilter, Principal, RequestId } from '../../protocol/call.ts'
import { encodeNotification, SUBSCRIPTION_ID } from '../../protocol/common/json-rpc.ts'
import { rememberedCapabilities } from '../../protocol/common/request.ts'
import { type TaskState, toTaskResult } from '../../protocol/reply.ts'
import type { ClientCapabilities } from '../../protocol/wire.ts'
import { costOf, createOwnerTally, HTTP_LIMITS, NOBODY } from '../limits.ts'
import type { Change, ChangeBus, Outlet, Service, StreamOptions } from '../port.ts'
import { openStream, refusal, toEvent } from './line.ts'

/** The receiver of one subscription's messages. */
interface SubscriptionSink {
  send(json: string): void
  /** Nothing more follows. */
  end(): void
}

export interface Subscriptions {
  /** Starts a subscription; returns a function to call when the client goes. Throws if there are too many. */
  open(call: ListenCall, subscriber: Subscriber, sink: SubscriptionSink): () => void
  /** Ends every subscription with its result. */
  endAll(): void
  readonly size: number
}

interface Subscriber {
  readonly principal: Principal | undefined
  /** The caller whose limits apply. */
  readonly share: string
}

interface SubscriptionLimits {
  readonly maxSubscriptions?: number
  readonly maxSubscriptionsPerCaller?: number
  readonly maxSubscriptionBytes?: number
}

export function createSubscriptions(service: Service, limits: SubscriptionLimits = {}): Subscriptions {
  const {
    maxSubscriptions: max,
    maxSubscriptionsPerCaller: perCaller,
    maxSubscriptionBytes: maxBytes,
  } = HTTP_LIMITS.pick(limits)
  const enders = new Set<() => void>()
  const byShare = createOwnerTally()

  const admit = (share: string, id: RequestId, filter: ListenFilter): void => {
    const full = enders.size >= max || (share !== NOBODY && byShare.of(share) >= perCaller)
    if (full) throw new RondoError('LIMIT_SUBSCRIPTIONS')
    const named = [String(id), ...(filter.resourceSubscriptions ?? []), ...(filter.taskIds ?? [])]
    if (named.reduce((sum, text) => sum + costOf(text), 0) > maxBytes) {
      throw new RondoError('PEER_PARAMS', 'The subscription is too large: name fewer resources or tasks')
    }
  }

  function open(call: ListenCall, { principal, share }: Subscriber, sink: SubscriptionSink): () => void {
    // The closures below live as long as the subscription, and must not keep the request alive.
    const { id, protocolVersion } = call
    const asked = honor(call.filter, service)
    admit(share, id, asked)
    const tag = { [SUBSCRIPTION_ID]: id }
    const { uris, leaveResources } = watchResources(
      service,
      asked.resourceSubscriptions ?? [],
      principal,
      (uri) => sink.send(toNotification({ kind: 'resource', uri }, tag)),
    )
    const { resourceSubscriptions: _, ...others } = asked
    const honored = uris.length > 0 ? { ...others, resourceSubscriptions: uris } : others
    const leave = service.changes.subscribe((change) => {
      for (const one of change.kind === 'everything' ? allOf(honored) : [change])
        if (wants(honored, one)) sink.send(toNotification(one, tag))
    })
    const declared = rememberedCapabilities(call.capabilities)
    const leaveTasks = followTasks(service, honored.taskIds, principal, declared, {
      changed: (task) =>
        sink.send(encodeNotification('notifications/tasks', { ...toTaskResult(task), _meta: tag })),
      // A client that is not notified polls.
      fail: () => end(),
    })
    const stop = (): void => {
      leave()
      leaveResources()
      leaveTasks()
      if (enders.delete(end)) byShare.add(share, -1)
    }
    const end = (): void => {
      stop()
      sink.send(finalResult(id, protocolVersion, service))
      sink.end()
    }
    enders.add(end)
    byShare.add(share, 1)
    sink.send(
      encodeNotification('notifications/subscriptions/acknowledged', { notifications: honored, _meta: tag }),
    )
    // Without anything to be notified of there is no reason to hold a connection.
    if (Object.keys(honored).length === 0) end()
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

/** Watches the resources of other servers. `uris` are those that can be watched. */
function watchResources(
  { watchResource }: Service,
  asked: readonly string[],
  principal: Principal | undefined,
  changed: (uri: string) => void,
): { readonly uris: readonly string[]; leaveResources(): void } {
  if (watchResource === undefined) return { uris: asked, leaveResources() {} }
  const stops = new Map<string, () => void>()
  const leaveResources = (): void => {
    for (const stop of stops.values()) stop()
  }
  try {
    for (const uri of asked) {
      const stop = watchResource(uri, principal, () => changed(uri))
      if (stop) stops.set(uri, stop)
    }
  } catch (error) {
    leaveResources()
    throw error
  }
  return { uris: [...stops.keys()], leaveResources }
}

interface TaskListener {
  changed(task: TaskState): void
  /** Called if the tasks cannot be watched. */
  fail(): void
}

/** Begins to watch in a later microtask, so that the acknowledgement is sent first. */
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
      if (!left) listener.changed(task)
    })
    if (left) stopWatching()
    else stop = stopWatching
  }
  follow()
    .catch(() => {
      if (!left) listener.fail()
    })
    // The client has gone in the meantime.
    .catch(() => {})
  return () => {
    left = true
    stop()
  }
}

function honor(filter: ListenFilter, { changeKinds: kinds, watchTasks }: Service): ListenFilter {
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

/** Every change that a subscription can be notified of. */
function allOf({ resourceSubscriptions = [] }: ListenFilter): readonly OneChange[] {
  const lists = (['tools', 'prompts', 'resources'] as const).map((kind) => ({ kind }))
  return [...lists, ...resourceSubscriptions.map((uri) => ({ kind: 'resource' as const, uri }))]
}

function wants(filter: ListenFilter, change: OneChange): boolean {
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

function toNotification(change: OneChange, _meta: Readonly<Record<string, RequestId>>): string {
  if (change.kind === 'resource') {
    return encodeNotification('notifications/resources/updated', { uri: change.uri, _meta })
  }
  return encodeNotification(`notifications/${change.kind}/list_changed`, { _meta })
}

function finalResult(id: RequestId, version: string, service: Service): string {
  const { requests, newest } = service.codecs
  const codec = requests.get(version) ?? newest
  return codec.encodeReply(id, { kind: 'complete', result: { _meta: { [SUBSCRIPTION_ID]: id } } }, service)
}

/** A change that clients can be notified of. */
type OneChange = Exclude<Change, { readonly kind: 'everything' }>

/** A bus within one process. A listener that throws does not stop the others. */
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
      // Wrapped, so that a function that subscribed twice can unsubscribe once.
      const entry = (change: Change): void => listener(change)
      listeners.add(entry)
      return () => {
        listeners.delete(entry)
      }
    },
  }
}

/** Keeps our listeners from throwing into a bus of the operator. */
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
