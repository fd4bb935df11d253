/**
 * When an instance has too much to do: the operator's own function, or the delay of its event loop.
 */

import type { Socket, Server as SocketServer } from 'node:net'
import { monitorEventLoopDelay } from 'node:perf_hooks'
import { misuse } from '../errors.ts'
import type { Principal } from '../protocol/call.ts'
import type { RequestHeaders } from '../protocol/common/headers.ts'
import { principalTag } from '../seal/state.ts'
import type { ServerOptions } from './options.ts'

export interface Overload {
  overloaded(): boolean
  close(): void
}

const NEVER: Overload = { overloaded: () => false, close: () => {} }

/** How often the delay is looked at; in between, the last look counts. */
const WINDOW_MS = 250

export function createOverload(
  shed: ServerOptions['shed'],
  now: () => number,
  onError: (error: unknown) => void,
): Overload {
  if (shed === undefined) return NEVER
  if (typeof shed === 'function') return { overloaded: () => asks(shed, onError), close: () => {} }
  const { eventLoopDelayMs } = shed
  if (!(eventLoopDelayMs > 0))
    throw misuse('shed.eventLoopDelayMs must be a positive number of milliseconds.')
  const histogram = monitorEventLoopDelay({ resolution: 10 })
  histogram.enable()
  let seenAt = now()
  let overloaded = false
  return {
    overloaded() {
      if (now() - seenAt >= WINDOW_MS) {
        overloaded = histogram.percentile(90) / 1e6 >= eventLoopDelayMs
        histogram.reset()
        seenAt = now()
      }
      return overloaded
    },
    close: () => histogram.disable(),
  }
}

/** A function that throws sheds nothing, and is reported. */
function asks(shed: () => boolean, onError: (error: unknown) => void): boolean {
  try {
    return shed() === true
  } catch (error) {
    onError(error)
    return false
  }
}

/*
 * Whose part of the limits a request uses, where one caller must not take what is there for all (T18): its principal's, or,
 * for a caller without a name, that of its address. Where the address is not known all of these are one share.
 *
 * The address is the one that the connection comes from. Behind a proxy that is the proxy's, unless `addressHeader` names
 * the header in which the proxy tells the caller's. Of a list the last entry counts, since that is what the nearest proxy
 * wrote; the others may be made up. An IPv6 address counts by its first 64 bits: whoever has one has all of these.
 */

export type ShareOf = (
  principal: Principal | undefined,
  headers: RequestHeaders,
  connection: { readonly address: string | undefined },
) => string

export const NOBODY: string = principalTag(undefined)

export function createShares(addressHeader?: string): ShareOf {
  const header = addressHeader?.toLowerCase()
  return (principal, headers, { address }) => {
    if (principal !== undefined) return principalTag(principal)
    const told = header === undefined ? address : headers[header]?.split(',').at(-1)?.trim()
    return told === undefined || told === '' ? NOBODY : `${NOBODY} ${networkOf(told.slice(0, 64))}`
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

/* Holds the connections of one address to a number (T20), so that one machine cannot take all there are. */

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
