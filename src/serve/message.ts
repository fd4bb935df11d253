/**
 * From the text of a body or a line to a decoded message, the same for every entrance: one guarded parse, then the
 * codec of the revision. Nothing here throws.
 */

import { RondoError } from '../errors.ts'
import { isRecord, parseGuarded } from '../lib/json.ts'
import type { RequestMessage } from '../protocol/codec.ts'
import { type RequestHeaders, versionHeader } from '../protocol/common/headers.ts'
import { PROTOCOL_VERSION } from '../protocol/common/meta-key.ts'
import type { Service } from './service.ts'

/** A message of an earlier era, parsed and not yet decoded. */
export interface OlderMessage {
  readonly kind: 'older'
  readonly message: unknown
}

export type IsOlder = (message: unknown, headers: RequestHeaders | undefined) => boolean

export function readMessage(
  text: string,
  headers: RequestHeaders | undefined,
  service: Service,
  isOlder?: IsOlder,
): RequestMessage | OlderMessage {
  const parsed = parseGuarded(text)
  if (parsed.kind === 'ok') {
    const { value } = parsed
    if (isOlder?.(value, headers)) return { kind: 'older', message: value }
    const { requests, newest } = service.codecs
    return (requests.get(claimOf(value)) ?? newest).decode(value, headers, service)
  }
  return { kind: 'refused', id: null, error: new RondoError(codeOf(parsed.reason), parsed.detail) }
}

/**
 * A body that somebody else has parsed already. It goes through the guard like any other; only keys that were there
 * twice cannot be seen any more.
 */
export function readParsed(
  body: unknown,
  headers: RequestHeaders | undefined,
  service: Service,
  isOlder?: IsOlder,
): RequestMessage | OlderMessage {
  let text: string | undefined
  try {
    text = JSON.stringify(body)
  } catch (error) {
    const cause = new RondoError('LIMIT_JSON', undefined, { cause: error })
    return { kind: 'refused', id: null, error: cause }
  }
  return readMessage(text ?? '', headers, service, isOlder)
}

function codeOf(reason: string): 'PEER_PARSE' | 'PEER_REQUEST' | 'LIMIT_JSON' {
  if (reason === 'syntax') return 'PEER_PARSE'
  return reason === 'duplicate' || reason === 'forbidden-key' ? 'PEER_REQUEST' : 'LIMIT_JSON'
}

/*
 * Whether a message is of an earlier era, found from the message itself.
 *
 * The body decides: a request that claims a version in its `_meta` is of 2026-07-28 or later, whatever else it carries;
 * only the draft's label is ours. Without a claim it is of an earlier era if it begins a session, belongs to one, or
 * names such a version in its header. A header that names a version of the new era without a claim in the body stays
 * there and is refused there.
 */

export interface EraOptions {
  /** Versions of the new era. */
  readonly modern: readonly string[]
  /** Versions of the earlier ones. */
  readonly older: readonly string[]
  /** Those of `older` that a request may claim for itself. */
  readonly drafts: readonly string[]
  /** A message that names no version and no session is served as one of an earlier era. */
  readonly unnamed: boolean
}

export function createOlderTest({ modern, older, drafts, unnamed }: EraOptions): IsOlder {
  return (message, headers) => {
    const header = headers && versionHeader(headers)
    if (header !== undefined && modern.includes(header)) return false
    const claim = claimOf(message)
    if (claim !== undefined) return drafts.some((version) => version === claim)
    if (header !== undefined) return older.includes(header)
    return unnamed || headers?.['mcp-session-id'] !== undefined || isInitialize(message)
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
