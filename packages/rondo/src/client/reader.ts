/** Requests of one round whose results may be cached: discovery, lists, completion. */

import { RondoError } from '../errors.ts'
import type { Clock } from '../lib/clock.ts'
import { isRecord, measureJson } from '../lib/json.ts'
import type { CompleteRef, Listing } from '../protocol/call.ts'
import { type ParamHeader, scanParamHeaders } from '../protocol/common/headers.ts'
import { decodeCompletion, decodeDiscovery, decodePage } from '../protocol/common/received.ts'
import type { CacheHint, Completion, Discovery, Page, Tool } from '../protocol/wire.ts'
import { PeerError } from './peer.ts'
import type { Peer, SendOptions, TaskSupport, ToolBook } from './port.ts'

export interface ReadOptions {
  /** Cancels the request. Default: none. */
  readonly signal?: AbortSignal
  /** The time for one request. Default: the client's. */
  readonly timeoutMs?: number
  /** Sends the request even if the cache has its result. Default: `false`. */
  readonly fresh?: boolean
}

export interface CompleteRequest {
  readonly ref: CompleteRef
  readonly argument: { readonly name: string; readonly value: string }
  /** Arguments whose values are already known. */
  readonly known?: Readonly<Record<string, string>>
}

interface CachedReader {
  list(listing: Listing, options?: ReadOptions): Promise<Page['items']>
  discover(options?: ReadOptions): Promise<Discovery>
  complete(request: CompleteRequest, options?: ReadOptions): Promise<Completion>
  /** Returns what is cached under `key`, or what `fetch` returns, which is then cached as its hint allows. */
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
        const discovery = decodeDiscovery(result) ?? invalid('server/discover')
        return [discovery, discovery]
      }),
    async complete({ ref, argument, known = {} }, options = {}) {
      const call = { kind: 'complete', ref, argument, context: known } as const
      const result = await sendForResult(peer, call, sending(options))
      return decodeCompletion(result) ?? invalid('completion/complete')
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

/** The headers as part of a cache key: what one login may see is not returned to another. */
async function loginOf({ headers }: Peer): Promise<string> {
  if (headers === undefined) return ''
  return JSON.stringify(typeof headers === 'function' ? await headers() : headers)
}

function invalid(what: string): never {
  throw new RondoError('PEER_BAD_RESPONSE', `The response to ${what} is not valid`)
}

interface WholeList {
  readonly items: Page['items']
  /** The shortest of all pages. */
  readonly hint: CacheHint
}

/**
 * Fetches a list page by page. Throws for a list that does not end, whose cursors repeat, that takes as long as no call may,
 * or that is too large to hold. An empty cursor counts.
 */
async function listAll(peer: Peer, listing: Listing, given: SendOptions): Promise<WholeList> {
  const options = { ...given, deadlineAt: peer.clock.now() + peer.limits.deadlineMs }
  const fits = createListBudget(peer, listing)
  const pages: Page[] = []
  const seen = new Set<string>()
  let cursor: string | undefined
  do {
    const page = await fetchPage(peer, listing, cursor, options)
    pages.push(page)
    cursor = page.nextCursor
    fits(page.items)
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

/** How many times the largest response all pages of a list together may be. */
const MAX_RESPONSES = 2

/** Throws when the pages of a list are too large together. */
export function createListBudget({ limits }: Peer, what: string): (items: readonly unknown[]) => void {
  let left = MAX_RESPONSES * limits.maxResponseBytes
  return (items) => {
    left -= measureJson(items, left, Number.POSITIVE_INFINITY)
    if (left < 0)
      throw new RondoError('LIMIT_CLIENT_BYTES', `The list of ${what} is larger than this client accepts`)
  }
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
  const page = received.kind === 'complete' ? decodePage(listing, received.result) : undefined
  if (page === undefined) throw new RondoError('PEER_BAD_RESPONSE', `The list of ${listing} is not valid`)
  return page
}

/** Results a server allows to be cached (`ttlMs`). Keys contain the request's headers, so that logins share nothing. */
export interface Cache {
  get(key: string): unknown
  put(key: string, value: unknown, hint: CacheHint): void
  /** Drops every key that begins with `prefix`. */
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

export const noCache: Cache = { get: () => undefined, put() {}, forget() {} }

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
        else onWarning(`The tool "${tool.name}" is omitted: ${scan.problem}`)
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
