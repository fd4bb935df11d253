/**
 * The revisions our client speaks, best first. A revision is a folder of `protocol/` and one entry here; beside it only
 * `session/`, which opens and keeps what older revisions need open, knows wire fields.
 */

import {
  decodeResponse as decodeDraft,
  encodeRequest as encodeDraft,
  methodOf as methodOfDraft,
} from '../drafts/draft-2026-v1/client.ts'
import { DRAFT_VERSION } from '../drafts/draft-2026-v1/decode.ts'
import { decodeResponse as decodeTurns, encodeRequest as encodeTurns, legId } from '../drafts/turns/client.ts'
import { isRecord } from '../lib/narrow.ts'
import type { Call, Listing, RequestId } from '../protocol/call.ts'
import { decodeNotification, subscriptionOf } from '../protocol/common/decode-notification.ts'
import { decodeCompletion, decodeDiscovery, decodePage } from '../protocol/common/decode-result.ts'
import { methodOf } from '../protocol/common/encode-call.ts'
import type { ParamHeader } from '../protocol/common/headers.ts'
import type { Notice, Received } from '../protocol/reply.ts'
import { hasTasks } from '../protocol/rev-2025-11-25/decode.ts'
import { decodeResponse as decodeOlder } from '../protocol/rev-2025-11-25/decode-response.ts'
import { VERSIONS } from '../protocol/rev-2025-11-25/encode.ts'
import { encodeRequest as encodeOlder } from '../protocol/rev-2025-11-25/encode-request.ts'
import { decodeResponse } from '../protocol/rev-2026-07-28/decode-response.ts'
import { encodeCancel, encodeRequest } from '../protocol/rev-2026-07-28/encode-request.ts'
import type { Completion, Discovery, Page } from '../protocol/wire.ts'

type Fields = Readonly<Record<string, unknown>>

export interface Dialect {
  readonly version: string
  /** Streams may end with questions instead of the response, as this client declared. */
  readonly turns?: true
  /**
   * Tasks are made by the server for those who declare that they follow them, or where the client asks for one: then their
   * questions are fetched (`asked`), or pushed while the result is waited for (`pushed`). Or there are none.
   */
  readonly tasks: 'declared' | 'asked' | 'pushed' | 'none'
  methodOf(call: Call): string
  encodeRequest(
    call: Call,
    mirrored?: readonly ParamHeader[],
  ): { body: string; headers: Readonly<Record<string, string>> }
  /** The id of a leg, where it is not a new one. */
  legId?(body: Parameters<typeof legId>[0]): RequestId | undefined
  encodeCancel(id: string | number): string
  decodeResponse(
    call: Call,
    message: unknown,
  ): Received | { readonly kind: 'invalid'; readonly problem: string }
  decodeNotification(message: unknown): Notice | undefined
  subscriptionOf(message: unknown): unknown
  decodePage(listing: Listing, result: Fields): Page | undefined
  decodeDiscovery(result: Fields): Discovery | undefined
  decodeCompletion(result: Fields): Completion | undefined
}

const REV_2026_07_28: Dialect = {
  version: '2026-07-28',
  tasks: 'declared',
  methodOf,
  encodeRequest,
  encodeCancel,
  decodeResponse,
  decodeNotification,
  subscriptionOf,
  decodePage,
  decodeDiscovery,
  decodeCompletion,
}

export const DIALECTS: readonly [Dialect, ...Dialect[]] = [REV_2026_07_28]

/** The best dialect both sides speak. */
export function chooseDialect(versions: readonly unknown[]): Dialect | undefined {
  return DIALECTS.find(({ version }) => versions.includes(version))
}

/** One of the revisions a client can be told to speak. */
export type Revision =
  | '2026-07-28'
  | 'DRAFT-2026-v1'
  | '2025-11-25'
  | '2025-06-18'
  | '2025-03-26'
  | '2024-11-05'

/** The revisions that begin with a handshake, best first. */
export const SESSION_VERSIONS = [DRAFT_VERSION, ...VERSIONS] as readonly [Revision, ...Revision[]]

/**
 * The dialect of a revision that begins with a handshake. The draft has rounds, the others push their questions. Where this
 * client declared that it takes them in turns, the events on the stream tell which of the two the server does: the draft
 * gives a server nothing to declare.
 */
export function sessionDialect(version: string, capabilities: Fields, turns: boolean): Dialect {
  if (version === DRAFT_VERSION) {
    const codec = { encodeRequest: encodeDraft, decodeResponse: decodeDraft, methodOf: methodOfDraft }
    return { ...REV_2026_07_28, version, tasks: offersTasks(capabilities) ? 'asked' : 'none', ...codec }
  }
  const codec = turns
    ? ({ encodeRequest: encodeTurns, decodeResponse: decodeTurns, legId, turns } as const)
    : { encodeRequest: encodeOlder, decodeResponse: decodeOlder }
  const tasks = hasTasks(version) && offersTasks(capabilities) ? 'pushed' : 'none'
  return { ...REV_2026_07_28, version, tasks, ...codec }
}

/** The server takes tool calls as tasks. */
function offersTasks({ tasks }: Fields): boolean {
  const requests = isRecord(tasks) ? tasks.requests : undefined
  const tools = isRecord(requests) ? requests.tools : undefined
  return isRecord(tools) && isRecord(tools.call)
}
