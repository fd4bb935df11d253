/**
 * Lists, serialised once: a page of tools is text that is sent as it is until something is declared or removed.
 */

import { RondoError } from '../errors.ts'
import type { Listing } from '../protocol/call.ts'
import type { Registry } from './registry.ts'

const FIELD: Readonly<Record<Listing, string>> = {
  tools: 'tools',
  prompts: 'prompts',
  resources: 'resources',
  templates: 'resourceTemplates',
}

export interface Catalog {
  /** The JSON text of one page of a listing. Throws if the cursor is none of ours. */
  page(listing: Listing, cursor: string | undefined): string
  /** Something was declared or removed. */
  forget(listing: Listing): void
}

export interface CatalogOptions {
  readonly pageSize: number
  /** What a revision wants on every page. */
  readonly stamp: Readonly<Record<string, unknown>>
}

export function createCatalog(
  registry: Pick<Registry, 'rows'>,
  { pageSize, stamp }: CatalogOptions,
): Catalog {
  const pages = new Map<Listing, string[]>()

  const build = (listing: Listing): string[] => {
    const rows = registry.rows(listing)
    const count = Math.max(1, Math.ceil(rows.length / pageSize))
    return Array.from({ length: count }, (_, i) =>
      JSON.stringify({
        ...stamp,
        [FIELD[listing]]: rows.slice(i * pageSize, (i + 1) * pageSize),
        nextCursor: i + 1 < count ? `p${i + 1}` : undefined,
      }),
    )
  }

  return {
    page(listing, cursor) {
      let texts = pages.get(listing)
      if (!texts) {
        texts = build(listing)
        pages.set(listing, texts)
      }
      const number = cursor === undefined ? 0 : /^p[1-9]\d{0,6}$/.test(cursor) ? Number(cursor.slice(1)) : -1
      const text = texts[number]
      if (text === undefined) throw new RondoError('PEER_PARAMS', 'This cursor is not from this list')
      return text
    },
    forget: (listing) => void pages.delete(listing),
  }
}
