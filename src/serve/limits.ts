/**
 * What one instance and one caller may use up: overload of the instance, the share of a caller, connections per address.
 *
 * An instance is overloaded if the operator's function says so, or if its event loop is late.
 *
 * A caller's share of a limit keeps one caller from using up all of it (T18). It belongs to the principal, or, for an
 * anonymous caller, to its address. All callers without a known address have one share. The address is that of the
 * connection; behind a proxy, that of the header that `addressHeader` names. Of a list the last entry counts, since the
 * nearest proxy wrote it; the others may be forged. An IPv6 address counts by its first 64 bits, which one caller has all of.
 */

import type { Socket, Server as SocketServer } from 'node:net'
import { monitorEventLoopDelay } from 'node:perf_hooks'
import { misuse } from '../errors.ts'
import type { Principal } from '../protocol/call.ts'
import type { RequestHeaders } from '../protocol/common/headers.ts'
import { principalTag } from '../seal/state.ts'
import type { ServerOptions } from './options.ts'

interface Overload {
  overloaded(): boolean
  close(): void
}

const NEVER: Overload = { overloaded: () => false, close: () => {} }

/** How often the delay is measured. */
const WINDOW_MS = 250

export function createOverload(
  shed: ServerOptions['shed'],
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
