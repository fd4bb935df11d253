/**
 * Whose part of the limits a request uses, where one caller must not take what is there for all (T18): its principal's, or,
 * for a caller without a name, that of its address. Where the address is not known all of these are one share.
 *
 * The address is the one that the connection comes from. Behind a proxy that is the proxy's, unless `addressHeader` names
 * the header in which the proxy tells the caller's. Of a list the last entry counts, since that is what the nearest proxy
 * wrote; the others may be made up. An IPv6 address counts by its first 64 bits: whoever has one has all of these.
 */

import type { Principal } from '../protocol/call.ts'
import type { HeaderReader } from '../protocol/rev-2026-07-28/headers.ts'
import { principalTag } from '../seal/binding.ts'

export type ShareOf = (
  principal: Principal | undefined,
  headers: HeaderReader,
  connection: { readonly address: string | undefined },
) => string

export const NOBODY: string = principalTag(undefined)

export function createShares(addressHeader?: string): ShareOf {
  const header = addressHeader?.toLowerCase()
  return (principal, headers, { address }) => {
    if (principal !== undefined) return principalTag(principal)
    const told = header === undefined ? address : headers(header)?.split(',').at(-1)?.trim()
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
