/** Requests that take one round and may be answered from the cache: discovery, lists, completion. */

import { RondoError } from '../errors.ts'
import type { Listing } from '../protocol/call.ts'
import type { CacheHint, Completion, Discovery, Page, Tool } from '../protocol/result.ts'
import type { Cache } from './cache.ts'
import type { CompleteRequest, ReadOptions } from './client.ts'
import { listAll } from './list.ts'
import type { Peer, SendOptions } from './peer.ts'
import { PeerError } from './peer-error.ts'
import type { ToolBook } from './tool-book.ts'

export interface Reader {
  list(listing: Listing, options?: ReadOptions): Promise<Page['items']>
  discover(options?: ReadOptions): Promise<Discovery>
  complete(request: CompleteRequest, options?: ReadOptions): Promise<Completion>
  /** What is kept under `key`, or what `fetch` gives, kept as long as it may be. */
  cached<T>(
    key: string,
    fresh: boolean | undefined,
    fetch: () => Promise<[value: T, hint: CacheHint]>,
  ): Promise<T>
}

export function createReader(peer: Peer, cache: Cache, tools: ToolBook, base: SendOptions): Reader {
  const sending = ({ signal, timeout }: ReadOptions): SendOptions => ({ ...base, signal, timeout })
  const cached: Reader['cached'] = async (key, fresh, fetch) => {
    const place = `${key} ${await loginOf(peer)}`
    const kept = fresh ? undefined : cache.get(place)
    if (kept !== undefined) return kept as Awaited<ReturnType<typeof fetch>>[0]
    const [value, hint] = await fetch()
    cache.put(place, value, hint)
    return value
  }
  return {
    cached,
    list: (listing, options = {}) =>
      cached(`list ${listing}`, options.fresh, async () => {
        const { items, hint } = await listAll(peer, listing, sending(options))
        if (listing !== 'tools') return [items, hint]
        // Arguments are mirrored into headers only where there is no session.
        return [tools.learn(items as unknown as Tool[], peer.session === undefined), hint]
      }),
    discover: (options = {}) =>
      cached('discover', options.fresh, async () => {
        if (peer.session) return [peer.session.discovery, {}]
        const result = await sendForResult(peer, { kind: 'discover' }, sending(options))
        const discovery = peer.dialect.decodeDiscovery(result) ?? invalid('server/discover')
        return [discovery, discovery]
      }),
    async complete({ ref, argument, known = {} }, options = {}) {
      const call = { kind: 'complete', ref, argument, context: known } as const
      const result = await sendForResult(peer, call, sending(options))
      return peer.dialect.decodeCompletion(result) ?? invalid('completion/complete')
    },
  }
}

async function sendForResult(
  peer: Peer,
  call: Parameters<Peer['send']>[0],
  options: SendOptions,
): Promise<Readonly<Record<string, unknown>>> {
  const received = await peer.send(call, options)
  if (received.kind === 'error') throw new PeerError(received.error)
  return received.kind === 'complete' ? received.result : invalid('the request')
}

/** Whose answers these are: the headers sent along. */
async function loginOf({ headers }: Peer): Promise<string> {
  if (headers === undefined) return ''
  return JSON.stringify(typeof headers === 'function' ? await headers() : headers)
}

function invalid(what: string): never {
  throw new RondoError('PEER_ANSWER', `The answer to ${what} is not valid`)
}
