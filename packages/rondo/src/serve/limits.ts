/**
 * Limits of one instance and of one caller: overload of the instance, the share of a caller, connections per address.
 *
 * An instance is overloaded if the operator's function says so, or if its event loop is late.
 *
 * A caller's share of a limit keeps one caller from using up all of it (T18). It belongs to the principal, or, for an
 * anonymous caller, to its address. All callers without a known address have one share. The address is that of the
 * connection; behind a proxy, that of the header that `addressHeader` names. Of a list the last entry counts, since the
 * nearest proxy wrote it; the others may be forged. An IPv6 address counts by its first 64 bits, which one caller has all of.
 *
 * What is in flight is limited by what it weighs, not by its number or length: bodies that are arriving, and messages whose
 * calls run. What does not fit is refused, and the caller is told when to try again.
 */

import type { Socket, Server as SocketServer } from 'node:net'
import { monitorEventLoopDelay } from 'node:perf_hooks'
import { misuse, RondoError } from '../errors.ts'
import { JSON_LIMITS } from '../lib/json.ts'
import { defineOptions, number, type OptionSet, type OptionsOf } from '../options.ts'
import { principalTag } from '../seal/state.ts'
import { MAX_INTERVAL } from './heartbeat.ts'
import type { Loads, ShareOf } from './port.ts'

interface Overload {
  overloaded(): boolean
  close(): void
}

const NEVER: Overload = { overloaded: () => false, close: () => {} }

/** How often the delay is measured. */
const WINDOW_MS = 250

/** When an instance is overloaded: its event loop is late, or the operator's function says so. */
export type Shed = { eventLoopDelayMs: number } | (() => boolean)

export function createOverload(
  shed: Shed | undefined,
  now: () => number,
  onError: (error: unknown) => void,
): Overload {
  if (shed === undefined) return NEVER
  if (typeof shed === 'function') return { overloaded: () => shouldShed(shed, onError), close: () => {} }
  const { eventLoopDelayMs } = shed
  if (!(eventLoopDelayMs > 0))
    throw misuse('shed.eventLoopDelayMs must be a positive number of milliseconds.')
  const histogram = monitorEventLoopDelay({ resolution: 10 })
  histogram.enable()
  let measuredAt = now()
  let overloaded = false
  return {
    overloaded() {
      if (now() - measuredAt >= WINDOW_MS) {
        overloaded = histogram.percentile(90) / 1e6 >= eventLoopDelayMs
        histogram.reset()
        measuredAt = now()
      }
      return overloaded
    },
    close: () => histogram.disable(),
  }
}

/** If the function throws, nothing is shed and the error is reported. */
function shouldShed(shed: () => boolean, onError: (error: unknown) => void): boolean {
  try {
    return shed() === true
  } catch (error) {
    onError(error)
    return false
  }
}

export const NOBODY: string = principalTag(undefined)

export function createShares(addressHeader?: string): ShareOf {
  const header = addressHeader?.toLowerCase()
  return (principal, headers, { address }) => {
    if (principal !== undefined) return principalTag(principal)
    const known = header === undefined ? address : headers[header]?.split(',').at(-1)?.trim()
    return known === undefined || known === '' ? NOBODY : `${NOBODY} ${networkOf(known.slice(0, 64))}`
  }
}

function networkOf(address: string): string {
  if (!address.includes(':')) return address
  const mapped = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(address)
  if (mapped?.[1] !== undefined) return mapped[1]
  const [head = '', tail] = address.replace(/[[\]]|%.*$/g, '').split('::')
  const before = head === '' ? [] : head.split(':')
  const after = tail === undefined || tail === '' ? [] : tail.split(':')
  const zeros =
    tail === undefined ? [] : Array<string>(Math.max(0, 8 - before.length - after.length)).fill('0')
  const groups = [...before, ...zeros, ...after].slice(0, 4)
  return groups.map((group) => group.replace(/^0+(?=.)/, '').toLowerCase()).join(':')
}

/** Limits and intervals of an HTTP entrance. */
export interface HttpLimits {
  /** The `Retry-After` that a draining or overloaded instance sends, in seconds. Default: 1. */
  retryAfterSeconds?: number
  /** Concurrent subscriptions; then `LIMIT_SUBSCRIPTIONS`. Default: 1024. */
  maxSubscriptions?: number
  /** Subscriptions of one authenticated caller, or of one address if unauthenticated. Default: 256. */
  maxSubscriptionsPerCaller?: number
  /** Size of what one subscription names (URIs and task ids), counted as 64 bytes per entry and two per character. Default: 64 KiB. */
  maxSubscriptionBytes?: number
  /** The interval of keep-alive comments on an open stream. Default: 15 s. */
  keepAliveMs?: number
  /**
   * How long a call may be silent before it sends a heartbeat, which may be late by a quarter of that time: progress if the client
   * asked for it, a comment on the stream otherwise; 0 for never. Default: 5 s.
   */
  heartbeatMs?: number
  /** Bytes that a client may leave unread before progress is dropped and a subscription is closed. Default: 1 MiB. */
  maxBacklogBytes?: number
}

export const HTTP_LIMITS: OptionSet<OptionsOf<Required<HttpLimits>>> = defineOptions('listen', {
  retryAfterSeconds: number(1),
  maxSubscriptions: number(1024),
  maxSubscriptionsPerCaller: number(256),
  maxSubscriptionBytes: number(65_536),
  keepAliveMs: number(15_000, { min: 1, max: MAX_INTERVAL }),
  heartbeatMs: number(5_000, { max: MAX_INTERVAL }),
  maxBacklogBytes: number(1_048_576),
})

export interface WeightOptions {
  /**
   * How deep the JSON of a message may nest, 1000 at most; then `LIMIT_JSON`. Beyond the default, a recursive schema may not be able to
   * check a value, which is then refused as invalid. Default: 512.
   */
  maxDepth?: number
  /** The weight of one message, which is roughly the memory that its JSON takes once it is parsed; then `LIMIT_JSON`. Default: 16 MiB. */
  maxMessageWeight?: number
  /**
   * The weight of everything in flight: bodies that are arriving, and the messages of calls that run; then `LIMIT_IN_FLIGHT`. Messages
   * below 8 KiB do not count. The default is safe for a heap of 512 MB; raise it with the heap. Default: 128 MiB.
   */
  maxWeightInFlight?: number
  /** The weight of everything in flight for one authenticated caller, or for one address if unauthenticated. Default: 64 MiB. */
  maxWeightInFlightPerCaller?: number
}

/** Deeper JSON would overflow the stack of some code that copies, checks or writes it. */
const DEEPEST = 1_000

/** Safe for a heap of 512 MB, although handlers and schemas copy what they receive. */
export const WEIGHTS: OptionSet<OptionsOf<Required<WeightOptions>>> = defineOptions('createServer', {
  maxDepth: number(JSON_LIMITS.depth, { min: 1, max: DEEPEST }),
  maxMessageWeight: number(JSON_LIMITS.weight, { min: 1 }),
  maxWeightInFlight: number(128 * 1_048_576, { min: 1 }),
  maxWeightInFlightPerCaller: number(64 * 1_048_576, { min: 1 }),
})

/** Lighter messages are not counted one by one: the connection that brings one takes more memory than it does. */
export const FREE_WEIGHT = 8_192

export function createLoads(given: WeightOptions & Pick<HttpLimits, 'retryAfterSeconds'> = {}): Loads {
  const { maxDepth, maxMessageWeight, maxWeightInFlight, maxWeightInFlightPerCaller } = WEIGHTS.pick(given)
  const json = { depth: maxDepth, weight: maxMessageWeight }
  // A message that is allowed at all has room when nothing else is there.
  const ofOne = Math.max(maxWeightInFlightPerCaller, json.weight)
  const ofAll = Math.max(maxWeightInFlight, ofOne)
  const { retryAfterSeconds } = HTTP_LIMITS.pick(given)
  const callers = new Map<string, number>()
  let total = 0
  const add = (share: string, weight: number): void => {
    total += weight
    const sum = (callers.get(share) ?? 0) + weight
    if (sum > 0) callers.set(share, sum)
    else callers.delete(share)
    if (weight < 0) admitWaiting()
  }
  /** Each takes its room, if there is enough now. */
  let waiting: (() => boolean)[] = []
  const admitWaiting = (): void => {
    const tried = waiting
    waiting = []
    waiting = [...tried.filter((take) => !take()), ...waiting]
  }
  return {
    json,
    get weight() {
      return total
    },
    refusal: () =>
      new RondoError('LIMIT_IN_FLIGHT', undefined, {
        data: { retryAfterMs: retryAfterSeconds * 1_000 },
        headers: { 'Retry-After': String(retryAfterSeconds) },
      }),
    open(share) {
      let counted = 0
      let holders = 0
      const weigh = (weight: number): boolean => {
        const more = weight - counted
        if (more > 0 && (total + more > ofAll || (callers.get(share) ?? 0) + more > ofOne)) return false
        counted = weight
        if (more !== 0) add(share, more)
        return true
      }
      const hold = (): (() => void) => {
        holders += 1
        let isHeld = true
        return () => {
          if (!isHeld) return
          isHeld = false
          holders -= 1
          if (holders === 0) weigh(0)
        }
      }
      return {
        weigh,
        hold,
        reclaim: (weight) =>
          new Promise((resolve) => {
            const take = (): boolean => {
              if (!weigh(Math.max(weight, counted))) return false
              resolve(hold())
              return true
            }
            if (!take()) waiting.push(take)
          }),
        get weight() {
          return counted
        },
      }
    },
  }
}

/** Sums amounts by owner, and forgets owners whose sum is zero. */
export interface OwnerTally {
  readonly total: number
  of(owner: string): number
  add(owner: string, change: number): void
}

export function createOwnerTally(): OwnerTally {
  const amounts = new Map<string, number>()
  let total = 0
  return {
    get total() {
      return total
    },
    of: (owner) => amounts.get(owner) ?? 0,
    add(owner, change) {
      const amount = (amounts.get(owner) ?? 0) + change
      total += change
      if (amount > 0) amounts.set(owner, amount)
      else amounts.delete(owner)
    },
  }
}

/** Roughly the bytes of memory that a string takes, with the entry that holds it. */
export function costOf(text: string): number {
  return 64 + 2 * text.length
}

/** Limits the connections of one address (T20), so that one machine cannot use up all of them. */
export function capConnections(server: SocketServer, perAddress: number): void {
  const open = new Map<string, number>()
  server.on('connection', (socket: Socket) => {
    const address = socket.remoteAddress ?? ''
    const count = (open.get(address) ?? 0) + 1
    if (count > perAddress) {
      socket.destroy()
      return
    }
    open.set(address, count)
    socket.once('close', () => {
      const left = (open.get(address) ?? 1) - 1
      if (left === 0) open.delete(address)
      else open.set(address, left)
    })
  })
}
