/** Requests that take one round and may be answered from the cache: discovery, lists, completion. */

import { RondoError } from '../errors.ts'
import type { Clock } from '../lib/clock.ts'
import { isRecord } from '../lib/narrow.ts'
import type { Listing } from '../protocol/call.ts'
import { type ParamHeader, scanParamHeaders } from '../protocol/common/headers.ts'
import type { CacheHint, Completion, Discovery, Page, Tool } from '../protocol/wire.ts'
import type { CompleteRequest, ReadOptions } from './client.ts'
import { type Peer, PeerError, type SendOptions } from './peer.ts'

export interface CachedReader {
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

export function createReader(peer: Peer, cache: Cache, tools: ToolBook, base: SendOptions): CachedReader {
  const sending = ({ signal, timeoutMs }: ReadOptions): SendOptions => ({ ...base, signal, timeoutMs })
  const cached: CachedReader['cached'] = async (key, fresh, fetch) => {
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
        return [tools.learn(items as unknown as Tool[], peer.dialect.mirrorsArguments), hint]
      }),
    discover: (options = {}) =>
      cached('discover', options.fresh, async () => {
        if (peer.channel.discovery) return [peer.channel.discovery, {}]
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

/*
 * A whole list, page by page. Cursors are the server's own and only handed back; an empty one counts. A server that never
 * stops, or gives a cursor it gave before, is stopped here.
 */

export interface WholeList {
  readonly items: Page['items']
  /** The shortest life of any page. */
  readonly hint: CacheHint
}

async function listAll(peer: Peer, listing: Listing, options: SendOptions): Promise<WholeList> {
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

/*
 * Answers that a server allows to be kept for a while (`ttlMs`). One cache belongs to one client; its keys contain the
 * headers a request was sent with, so what was private to one login is never given to another. Only what came in a
 * single round gets here.
 */

export interface Cache {
  get(key: string): unknown
  put(key: string, value: unknown, hint: CacheHint): void
  /** Forgets every key that begins like this. */
  forget(prefix: string): void
}

const MAX_ENTRIES = 64

export function createCache(clock: Clock): Cache {
  const entries = new Map<string, { readonly value: unknown; readonly until: number }>()
  return {
    get(key) {
      const entry = entries.get(key)
      if (entry === undefined || entry.until > clock.now()) return entry?.value
      entries.delete(key)
      return undefined
    },
    put(key, value, { ttlMs = 0 }) {
      if (ttlMs <= 0) return
      const [oldest] = entries.keys()
      if (entries.size >= MAX_ENTRIES && oldest !== undefined) entries.delete(oldest)
      entries.set(key, { value, until: clock.now() + ttlMs })
    },
    forget(prefix) {
      for (const key of entries.keys()) if (key.startsWith(prefix)) entries.delete(key)
    },
  }
}

/** For clients that want none. */
export const noCache: Cache = { get: () => undefined, put() {}, forget() {} }

/*
 * What our client remembers of a server's tools: which arguments are mirrored into headers, and which run only as tasks
 * that have to be asked for. A tool whose annotations are bad is left out of the list and reported; one bad tool does not
 * hide the others.
 */

export interface ToolBook {
  /** Takes the tools of a fresh list; gives those that can be used, all of them where nothing is mirrored. */
  learn(tools: readonly Tool[], mirrors?: boolean): Tool[]
  /** There was a list. */
  readonly learned: boolean
  /** Undefined for a tool that was never listed. */
  mirrored(name: string): readonly ParamHeader[] | undefined
  /** What the tool says of running as a task that is asked for; undefined for a tool that was never listed. */
  taskSupport(name: string): TaskSupport | undefined
}

export type TaskSupport = 'required' | 'optional' | 'forbidden'

function supportOf({ execution }: Tool): TaskSupport {
  const said = isRecord(execution) ? execution.taskSupport : undefined
  return said === 'required' || said === 'optional' ? said : 'forbidden'
}

export function createToolBook(onWarning: (text: string) => void): ToolBook {
  let known = new Map<string, readonly ParamHeader[]>()
  let support: ReadonlyMap<string, TaskSupport> | undefined
  return {
    get learned() {
      return support !== undefined
    },
    learn(tools, mirrors = true) {
      const found = new Map<string, readonly ParamHeader[]>()
      const usable = tools.filter((tool) => {
        if (!mirrors) return true
        const scan = scanParamHeaders(tool.inputSchema)
        if (scan.kind === 'good') found.set(tool.name, scan.headers)
        else onWarning(`The tool "${tool.name}" is left out: ${scan.problem}`)
        return scan.kind === 'good'
      })
      known = found
      support = new Map(usable.map((tool) => [tool.name, supportOf(tool)]))
      return usable
    },
    mirrored: (name) => known.get(name),
    taskSupport: (name) => support?.get(name),
  }
}
