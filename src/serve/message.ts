/**
 * From the text of a body or a line to a decoded message, the same for every entrance: one guarded parse, then the
 * codec of the revision. Nothing here throws.
 */

import { RondoError } from '../errors.ts'
import { parseGuarded } from '../lib/json-guard.ts'
import { type Decoded, decode } from '../protocol/rev-2026-07-28/decode.ts'
import type { HeaderReader } from '../protocol/rev-2026-07-28/headers.ts'
import type { Service } from './service.ts'

/** A message of an earlier era, parsed and not yet decoded. */
export interface OlderMessage {
  readonly kind: 'older'
  readonly message: unknown
}

export type IsOlder = (message: unknown, headers: HeaderReader | undefined) => boolean

export function readMessage(
  text: string,
  headers: HeaderReader | undefined,
  service: Service,
  isOlder?: IsOlder,
): Decoded | OlderMessage {
  const parsed = parseGuarded(text)
  if (parsed.kind === 'ok') {
    const { value } = parsed
    return isOlder?.(value, headers) ? { kind: 'older', message: value } : decode(value, headers, service)
  }
  return { kind: 'refused', id: null, error: new RondoError(codeOf(parsed.reason), parsed.detail) }
}

/**
 * A body that somebody else has parsed already. It goes through the guard like any other; only keys that were there
 * twice cannot be seen any more.
 */
export function readParsed(
  body: unknown,
  headers: HeaderReader | undefined,
  service: Service,
  isOlder?: IsOlder,
): Decoded | OlderMessage {
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
