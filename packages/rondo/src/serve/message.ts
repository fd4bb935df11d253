/**
 * Reads one message, over HTTP and stdio alike: text through the JSON guard, then through the codec of the revision that it
 * claims. Messages of earlier eras are recognized here and decoded by their session.
 */

import { RondoError } from '../errors.ts'
import { parseGuarded } from '../lib/json.ts'
import type { RequestMessage } from '../protocol/codec.ts'
import { type RequestHeaders, versionHeader } from '../protocol/common/headers.ts'
import { claimedVersion, idOf } from '../protocol/common/request.ts'
import { readRequestId } from '../protocol/common/request-id.ts'
import type { IsOlder, Service } from './port.ts'

/** A message of an earlier era, parsed and not yet decoded. */
export interface OlderMessage {
  readonly kind: 'older'
  readonly message: unknown
}

/** Takes the weight of a message into account. Returns why it cannot be served now, if so. */
export type Weigh = (weight: number) => RondoError | undefined

/** Parses the text of a body or of a line, behind the guard, and has its revision decode it. Never throws. */
export function readMessage(
  text: string,
  headers: RequestHeaders | undefined,
  service: Service,
  isOlder?: IsOlder,
  weigh?: Weigh,
): RequestMessage | OlderMessage {
  const parsed = parseGuarded(text, service.loads?.json)
  if (parsed.kind === 'ok') {
    const { value } = parsed
    const error = weigh?.(parsed.weight)
    if (error !== undefined) return { kind: 'refused', id: idOf(value), error }
    // A header that names a version of the new era settles it, as it does for most requests.
    const version = headers && versionHeader(headers)
    const isNew = version !== undefined && service.supportedVersions.includes(version)
    if (!isNew && isOlder?.(value, headers)) return { kind: 'older', message: value }
    const { requests, newest } = service.codecs
    return (requests.get(claimedVersion(value)) ?? newest).decode(value, headers, service)
  }
  return {
    kind: 'refused',
    id: readRequestId(text),
    error: new RondoError(CODES[parsed.reason], parsed.detail),
  }
}

/** Reads a body that is parsed already. It passes the guard like any other, except that duplicate keys are lost by then. */
export function readParsed(body: unknown, ...rest: Rest<typeof readMessage>): RequestMessage | OlderMessage {
  let text: string | undefined
  try {
    text = JSON.stringify(body)
  } catch (cause) {
    return { kind: 'refused', id: idOf(body), error: new RondoError('LIMIT_JSON', undefined, { cause }) }
  }
  return readMessage(text ?? '', ...rest)
}

type Rest<F> = F extends (first: never, ...rest: infer R) => unknown ? R : never

const CODES = {
  syntax: 'PEER_PARSE',
  duplicate: 'PEER_REQUEST',
  'forbidden-key': 'PEER_REQUEST',
  number: 'PEER_PARAMS',
  depth: 'LIMIT_JSON',
  weight: 'LIMIT_JSON',
} as const
