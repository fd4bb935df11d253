/**
 * The offers of a server, and help with filling them in: lists, discovery and completion, for the clients of every era.
 *
 * A page of a list is the same object until something is declared or removed, so a revision serializes it once.
 */

import { RondoError } from '../errors.ts'
import type { CompleteCall, ListCall, Listing, Principal } from '../protocol/call.ts'
import { HAS_APPS, hasApps } from '../protocol/common/apps.ts'
import { type Reply, TASKS_EXTENSION } from '../protocol/reply.ts'
import type { Completion } from '../protocol/wire.ts'
import type { CachePolicy } from '../tool/definition.ts'
import type { RowsFor } from '../tool/forward.ts'
import type { Registry } from '../tool/registry.ts'

type Result = Readonly<Record<string, unknown>>

interface Catalog {
  /** A page of a list, or the error of a cursor that is not from this list. */
  list(listing: Listing, cursor: string | undefined): Reply
  /** Like `list`, with the rows of one caller. */
  listFor(rowsFor: RowsFor, call: ListCall, principal: Principal | undefined): Promise<Reply>
  /** The result of `server/discover`. */
  discover(): Reply
  /** Something was declared or removed: builds the list again when it is next asked for. */
  invalidate(listing: Listing): void
}

interface CatalogOptions {
  readonly pageSize: number
  /** How long clients may keep what is listed. */
  readonly cache?: CachePolicy
  readonly supportedVersions?: readonly string[]
  readonly instructions?: () => string | undefined
  /** Whether tasks are served. */
  readonly tasks?: () => boolean
  /** Whether callers may get rows that are not declared. */
  readonly perCaller?: () => boolean
}

const FIELD: Readonly<Record<Listing, string>> = {
  tools: 'tools',
  prompts: 'prompts',
  resources: 'resources',
  templates: 'resourceTemplates',
}

const MAX_COMPLETIONS = 100

export function createCatalog(registry: Pick<Registry, 'rows'>, options: CatalogOptions): Catalog {
  const { pageSize, cache } = options
  const lists = new Map<Listing, Result[]>()
  let discovery: Result | undefined

  const build = (listing: Listing, rows: readonly Result[]): Result[] => {
    const count = Math.max(1, Math.ceil(rows.length / pageSize))
    return Array.from({ length: count }, (_, i) => ({
      [FIELD[listing]]: rows.slice(i * pageSize, (i + 1) * pageSize),
      nextCursor: i + 1 < count ? `p${i + 1}` : undefined,
    }))
  }

  return {
    list(listing, cursor) {
      let pages = lists.get(listing)
      if (!pages) {
        pages = build(listing, registry.rows(listing))
        lists.set(listing, pages)
      }
      return pageOf(pages, cursor, cache)
    },
    async listFor(rowsFor, { listing, cursor }, principal) {
      const rows = await rowsFor(listing, principal, registry.rows(listing))
      return pageOf(build(listing, rows), cursor, { ttlMs: cache?.ttlMs ?? 0, scope: 'private' })
    },
    discover() {
      if (discovery?.instructions !== options.instructions?.()) discovery = undefined
      discovery ??= describe(registry, options)
      return { kind: 'cacheable', result: discovery, cache }
    },
    invalidate(listing) {
      lists.delete(listing)
      discovery = undefined
    },
  }
}

function pageOf(pages: readonly Result[], cursor: string | undefined, cache: CachePolicy | undefined): Reply {
  const number = cursor === undefined ? 0 : /^p[1-9]\d{0,6}$/.test(cursor) ? Number(cursor.slice(1)) : -1
  const result = pages[number]
  if (result !== undefined) return { kind: 'cacheable', result, cache }
  return { kind: 'error', error: new RondoError('PEER_PARAMS', 'The cursor does not belong to this list') }
}

function describe(
  registry: Pick<Registry, 'rows'>,
  { supportedVersions, instructions, tasks, perCaller }: CatalogOptions,
): Result {
  const has = (listing: Listing): boolean => perCaller?.() === true || registry.rows(listing).length > 0
  return {
    supportedVersions,
    capabilities: {
      tools: has('tools') ? { listChanged: true } : undefined,
      prompts: has('prompts') ? { listChanged: true } : undefined,
      resources: has('resources') || has('templates') ? { listChanged: true, subscribe: true } : undefined,
      completions: has('prompts') || has('templates') ? {} : undefined,
      logging: {},
      extensions: extensionsOf(registry, tasks?.() === true),
    },
    instructions: instructions?.(),
  }
}

function extensionsOf(registry: Pick<Registry, 'rows'>, tasks: boolean): Result | undefined {
  const apps = hasApps(registry)
  if (!tasks && !apps) return undefined
  return { ...(tasks && { [TASKS_EXTENSION]: {} }), ...(apps && HAS_APPS) }
}

/**
 * Reports changes of a resource to one caller where another server has it; all others are reported on the bus of changes. Returns
 * undefined if the resource cannot be watched.
 */
export function watchResource(
  registry: Pick<Registry, 'find'>,
  uri: string,
  principal: Principal | undefined,
  changed: () => void,
): (() => void) | undefined {
  const target = registry.find('resources/read', uri)
  return target?.watch ? target.watch(principal, changed) : () => {}
}

function isList(found: readonly string[] | Completion): found is readonly string[] {
  return Array.isArray(found)
}

/** Rejects with whatever the author's function throws. */
export async function complete(
  registry: Registry,
  { ref, argument, context }: CompleteCall,
  principal: Principal | undefined,
): Promise<Reply> {
  const completer = registry.completer(ref, argument.name)
  const found = completer ? await completer(argument.value, context, principal) : []
  if (!isList(found)) return { kind: 'complete', result: { completion: found } }
  const values = found.slice(0, MAX_COMPLETIONS)
  const completion = { values, total: found.length, hasMore: found.length > values.length }
  return { kind: 'complete', result: { completion } }
}
