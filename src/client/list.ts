/**
 * A whole list, page by page. Cursors are the server's own and only handed back; an empty one counts. A server that never
 * stops, or gives a cursor it gave before, is stopped here.
 */

import { RondoError } from '../errors.ts'
import type { Listing } from '../protocol/call.ts'
import type { CacheHint, Page } from '../protocol/result.ts'
import type { Peer, SendOptions } from './peer.ts'
import { PeerError } from './peer-error.ts'

export interface WholeList {
  readonly items: Page['items']
  /** The shortest life of any page. */
  readonly hint: CacheHint
}

export async function listAll(peer: Peer, listing: Listing, options: SendOptions): Promise<WholeList> {
  const pages: Page[] = []
  const seen = new Set<string>()
  let cursor: string | undefined
  do {
    const page = await fetchPage(peer, listing, cursor, options)
    pages.push(page)
    cursor = page.nextCursor
    if (cursor !== undefined && (seen.has(cursor) || pages.length >= peer.limits.maxPages)) {
      throw new RondoError(
        'LIMIT_CLIENT_PAGES',
        `The list of ${listing} does not end after ${pages.length} pages`,
      )
    }
    if (cursor !== undefined) seen.add(cursor)
  } while (cursor !== undefined)
  const ttlMs = Math.min(...pages.map((page) => page.ttlMs ?? 0))
  return { items: pages.flatMap((page) => page.items), hint: { ttlMs } }
}

async function fetchPage(
  peer: Peer,
  listing: Listing,
  cursor: string | undefined,
  options: SendOptions,
): Promise<Page> {
  const received = await peer.send(
    { kind: 'list', listing, ...(cursor !== undefined && { cursor }) },
    options,
  )
  if (received.kind === 'error') throw new PeerError(received.error)
  const page = received.kind === 'complete' ? peer.dialect.decodePage(listing, received.result) : undefined
  if (page === undefined) throw new RondoError('PEER_ANSWER', `The list of ${listing} is not valid`)
  return page
}
