/**
 * Whether a message is of an earlier era, found from the message itself.
 *
 * The body decides: a request that claims a version in its `_meta` is of 2026-07-28 or later, whatever else it carries;
 * only the draft's label is ours. Without a claim it is of an earlier era if it begins a session, belongs to one, or
 * names such a version in its header. A header that names a version of the new era without a claim in the body stays
 * there and is refused there.
 */

import { isRecord } from '../../lib/is-record.ts'
import { DRAFT_VERSION } from '../../protocol/draft-2026-v1/version.ts'
import { versionHeader } from '../../protocol/rev-2026-07-28/headers.ts'
import { PROTOCOL_VERSION } from '../../protocol/rev-2026-07-28/meta-key.ts'
import type { IsOlder } from '../message.ts'

export interface EraOptions {
  /** Versions of the new era. */
  readonly modern: readonly string[]
  /** Versions of the earlier ones. */
  readonly older: readonly string[]
  /** A message that names no version and no session is served as one of an earlier era. */
  readonly unnamed: boolean
}

export function createOlderTest({ modern, older, unnamed }: EraOptions): IsOlder {
  return (message, headers) => {
    const header = headers && versionHeader(headers)
    if (header !== undefined && modern.includes(header)) return false
    const claim = claimOf(message)
    if (claim !== undefined) return claim === DRAFT_VERSION && older.includes(claim)
    if (header !== undefined) return older.includes(header)
    return unnamed || headers?.('mcp-session-id') !== undefined || isInitialize(message)
  }
}

/** The version that a message claims for itself. */
export function claimOf(message: unknown): unknown {
  if (!isRecord(message) || !isRecord(message.params)) return undefined
  const { _meta } = message.params
  return isRecord(_meta) ? _meta[PROTOCOL_VERSION] : undefined
}

export function isInitialize(message: unknown): boolean {
  return isRecord(message) && message.method === 'initialize'
}
