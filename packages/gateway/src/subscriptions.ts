/**
 * Subscriptions to the resources of one upstream.
 *
 * W5 Each caller has a subscription of its own at the upstream, with its own credentials, and hears of nothing else.
 * W7 All resources that a caller watches are one subscription upstream, however many requests and sessions watch them. When the set
 *    changes, the next subscription is open before the last one ends. After a break every watched resource counts as changed.
 * W9 A resource that `decide` does not allow to be read is not watched.
 *
 * The number of resources per caller is bounded, and a caller that watches nothing has no subscription.
 */

import { type Principal, RondoError } from 'rondo'
import type { Clock, QuestionKind, Subscription } from 'rondo/client'
import { callerKey, reasonOf, type Upstream } from './upstream.ts'

export interface Subscriptions {
  /**
   * Calls `changed` when the resource changes, never before it returns. Returns a function that ends this, or undefined if the
   * upstream offers no subscriptions. Throws if the caller watches too much.
   */
  watch(resource: WatchedResource, changed: () => void): (() => void) | undefined
  close(): void
}

export interface WatchedResource {
  readonly uri: string
  /** Claims of the upstream about the resource. */
  readonly annotations: Readonly<Record<string, unknown>>
  /** The caller that watches it. */
  readonly principal: Principal | undefined
}

interface SubscriptionsParts {
  readonly upstream: Upstream
  /** Kinds to declare on a connection that is opened for a subscription. */
  readonly kinds: readonly QuestionKind[]
  readonly clock: Clock
  /** Resources that a caller may watch. */
  readonly max: number
  /** Whether the caller may read the resource. */
  mayRead(resource: WatchedResource): Promise<boolean>
  warn(message: string): void
}

/** The resources that one caller watches. */
interface Watcher {
  readonly principal: Principal | undefined
  /** Listeners by URI. */
  readonly uris: Map<string, Set<() => void>>
  /** Whether `decide` allows each URI, as found when it was first watched. */
  readonly allowed: Map<string, Promise<boolean>>
  /** Makes the subscription follow the set of resources. */
  wake(): void
}

const FIRST_RETRY_MS = 1_000
const LONGEST_RETRY_MS = 60_000

export function createSubscriptions(parts: SubscriptionsParts): Subscriptions {
  const { upstream, max } = parts
  const watchers = new Map<string, Watcher>()
  const closing = new AbortController()

  const watcherOf = (principal: Principal | undefined): Watcher => {
    const key = callerKey(principal)
    const known = watchers.get(key)
    if (known !== undefined) return known
    const { watcher, ended } = startWatcher(parts, principal, closing.signal, () => watchers.delete(key))
    watchers.set(key, watcher)
    ended.catch((error: unknown) =>
      parts.warn(`Subscriptions at "${upstream.name}" failed: ${reasonOf(error)}.`),
    )
    return watcher
  }

  return {
    watch(resource, changed) {
      if (!upstream.known.subscribe) return undefined
      const { uri, principal } = resource
      const watcher = watcherOf(principal)
      const { uris } = watcher
      const listeners = uris.get(uri) ?? new Set()
      if (listeners.size === 0 && uris.size >= max) throw new RondoError('LIMIT_SUBSCRIPTIONS')
      // Wrapped, so that one function can watch twice.
      const listener = (): void => changed()
      listeners.add(listener)
      if (listeners.size === 1) {
        uris.set(uri, listeners)
        const may = Promise.resolve().then(() => parts.mayRead(resource))
        watcher.allowed.set(
          uri,
          may.catch(() => false),
        )
        watcher.wake()
      }
      return () => {
        if (!listeners.delete(listener) || listeners.size > 0) return
        uris.delete(uri)
        watcher.allowed.delete(uri)
        watcher.wake()
      }
    },
    close: () => closing.abort(new Error('The gateway was closed')),
  }
}

/** Follows the resources of a caller until none is left. `forget` is called before the last subscription ends. */
function startWatcher(
  parts: SubscriptionsParts,
  principal: Principal | undefined,
  closing: AbortSignal,
  forget: () => void,
): { watcher: Watcher; ended: Promise<void> } {
  let wake = (): void => {}
  let isStale = true
  const watcher: Watcher = {
    principal,
    uris: new Map(),
    allowed: new Map(),
    wake() {
      isStale = true
      wake()
    },
  }
  /** Resolves when the set of resources has changed, the subscription has ended, or the gateway closes. */
  const change = (): Promise<void> =>
    new Promise((resolve) => {
      if (isStale || closing.aborted) return resolve()
      const end = (): void => {
        closing.removeEventListener('abort', end)
        resolve()
      }
      wake = end
      closing.addEventListener('abort', end)
    })

  const follow = async (): Promise<void> => {
    const { clock, upstream, warn } = parts
    let open: Opened | undefined
    let failures = 0
    // The resources of one request become one subscription.
    await undefined
    try {
      while (!closing.aborted) {
        isStale = false
        if (watcher.uris.size === 0) return
        try {
          const next = await openSubscription(parts, watcher, closing, watcher.wake)
          open?.close()
          open = next
          if (failures > 0) for (const uri of [...watcher.uris.keys()]) report(watcher, uri)
          const since = clock.now()
          await change()
          if (clock.now() - since > LONGEST_RETRY_MS) failures = 0
          if (!open.isBroken()) continue
          open.close()
          open = undefined
          failures += 1
        } catch (error) {
          failures += 1
          if (failures === 2) warn(`"${upstream.name}" does not report changes: ${reasonOf(error)}.`)
        }
        await sleep(clock, retryMs(failures), closing)
      }
    } finally {
      forget()
      open?.close()
    }
  }
  return { watcher, ended: follow() }
}

function retryMs(failures: number): number {
  return Math.min(LONGEST_RETRY_MS, FIRST_RETRY_MS * 2 ** (failures - 1)) * (0.5 + Math.random() / 2)
}

function report({ uris }: Watcher, uri: string): void {
  for (const listener of [...(uris.get(uri) ?? [])]) listener()
}

/** A subscription at the upstream. */
interface Opened {
  isBroken(): boolean
  close(): void
}

/** Opens a subscription for all resources that the caller watches now. Resolves when the upstream has accepted it. */
async function openSubscription(
  { upstream, kinds }: SubscriptionsParts,
  watcher: Watcher,
  signal: AbortSignal,
  onBroken: () => void,
): Promise<Opened> {
  const { principal, allowed } = watcher
  const wanted: string[] = []
  for (const [uri, may] of [...allowed]) if (await may) wanted.push(uri)
  if (wanted.length === 0) return { isBroken: () => false, close() {} }
  const connection = await upstream.anyConnection(principal, kinds)
  const release = connection.keep()
  const subscription = connection.client.subscribe({ resourceSubscriptions: wanted }, { signal })
  let state: 'open' | 'closed' | 'broken' = 'open'
  const close = (): void => {
    if (state === 'open') state = 'closed'
    subscription.close()
    release()
  }
  try {
    const { resourceSubscriptions = [] } = await subscription.filter
    if (resourceSubscriptions.length === 0) throw new Error('it accepts no subscription to these resources')
  } catch (error) {
    close()
    throw error
  }
  const broken = (): void => {
    if (state !== 'open' || signal.aborted) return
    state = 'broken'
    onBroken()
  }
  readChanges(subscription, watcher).then(broken, broken)
  return { isBroken: () => state === 'broken', close }
}

async function readChanges(subscription: Subscription, watcher: Watcher): Promise<void> {
  for await (const change of subscription) {
    if (change.kind === 'resource') report(watcher, change.uri)
    else if (change.kind === 'gap') for (const uri of [...watcher.uris.keys()]) report(watcher, uri)
  }
}

/** Resolves early when the signal fires. */
export function sleep(clock: Clock, ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) return resolve()
    const end = (): void => {
      stop()
      signal.removeEventListener('abort', end)
      resolve()
    }
    const stop = clock.after(ms, end)
    signal.addEventListener('abort', end)
  })
}
