/**
 * Watches a store from outside, whichever it is: whether its operations fail, and whether one has been waiting for longer than
 * a healthy database takes.
 *
 * watch 1 An outage is two lines in the log: one when it begins, that of the first request or background work that fails, and one
 * when it is over, with the number of requests that failed meanwhile. watch 2 The store is back when the operation succeeds that failed first, or any other after
 * a while without failures: on a full disk reads succeed while writes fail.
 */

import type { FlowHost } from '../carry/host.ts'
import { isStoreFault } from '../errors.ts'
import { isThenable } from '../lib/json.ts'
import type { LogFacts } from '../log/event.ts'
import type { EngineStore, Store } from '../store/store.ts'

export interface WatchedStore extends NonNullable<FlowHost['storeWatch']> {
  readonly store: Store | EngineStore
}

/** An operation that takes this long waits for a database that is away. */
const STUCK_MS = 2_000
/** After this time without a failure, any success ends an outage. */
const CALM_MS = 10_000

interface Outage {
  readonly since: number
  /** The operation that failed first. */
  readonly operation: string
  failedAt: number
  requests: number
  said: boolean
}

const PORTS: ReadonlySet<PropertyKey> = new Set([
  'tasks',
  'once',
  'blobs',
  'records',
  'bus',
  'permits',
  'alarms',
])

export function watchStore(
  store: Store | EngineStore,
  log: (event: LogFacts) => void,
  now: () => number,
): WatchedStore {
  const waiting = new Set<{ readonly since: number }>()
  let outage: Outage | undefined

  const failed = (operation: string, error: unknown): void => {
    if (!isStoreFault(error)) return
    outage ??= { since: now(), operation, failedAt: now(), requests: 0, said: false }
    outage.failedAt = now()
  }
  const succeeded = (operation: string): void => {
    if (outage === undefined) return
    const { since, failedAt, requests, said } = outage
    if (operation !== outage.operation && now() - failedAt < CALM_MS) return
    outage = undefined
    if (!said) return
    const seconds = Math.round((now() - since) / 100) / 10
    const count = requests === 1 ? '1 request' : `${requests} requests`
    log({ event: 'warning', message: `The store works again after ${seconds} s; ${count} failed meanwhile` })
  }
  const isSaid = (): boolean => {
    const said = outage?.said ?? false
    if (outage) outage.said = true
    return said
  }
  const track = (operation: string, result: unknown): unknown => {
    // Some methods return no promise: `bus.subscribe`, for example.
    if (!isThenable(result)) return result
    const one = { since: now() }
    waiting.add(one)
    void Promise.resolve(result).then(
      () => {
        waiting.delete(one)
        succeeded(operation)
      },
      (error) => {
        waiting.delete(one)
        failed(operation, error)
      },
    )
    return result
  }
  /** Returns the object with every method watched. A store may be an instance of a class, whose methods need their `this`. */
  const watched = <T extends object>(port: T, name: string): T => {
    const methods = new Map<PropertyKey, unknown>()
    return new Proxy(port, {
      get(target, key) {
        const value: unknown = Reflect.get(target, key, target)
        if (typeof value !== 'function') return value
        const known = methods.get(key)
        if (known !== undefined) return known
        const operation = `${name}.${String(key)}`
        const method = (...given: unknown[]) => track(operation, value.apply(target, given))
        methods.set(key, method)
        return method
      },
    })
  }
  const ports = new Map<PropertyKey, unknown>()
  const whole = new Proxy(store, {
    get(target, key) {
      const value: unknown = Reflect.get(target, key, target)
      if (key === 'createEngine' && 'createEngine' in target)
        return (...given: Parameters<EngineStore['createEngine']>) =>
          watched(target.createEngine(...given), 'engine')
      if (PORTS.has(key) && typeof value === 'object' && value !== null) {
        const port = ports.get(key) ?? watched(value, String(key))
        ports.set(key, port)
        return port
      }
      return typeof value === 'function' ? value.bind(target) : value
    },
  })
  return {
    store: whole,
    isStuck() {
      // A set keeps the order of insertion, so the first has waited longest.
      for (const { since } of waiting) return now() - since >= STUCK_MS
      return false
    },
    requestFailed() {
      if (outage) outage.requests += 1
      return isSaid()
    },
    isSaid,
  }
}
