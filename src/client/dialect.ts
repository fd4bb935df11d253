/**
 * The revisions our client speaks, best first. A revision is a folder of `protocol/` and one entry here; nothing else in
 * the client knows a wire field.
 */

import type { Call, Listing } from '../protocol/call.ts'
import type { ParamHeader } from '../protocol/param-header.ts'
import type { Notice, Received } from '../protocol/received.ts'
import type { Completion, Discovery, Page } from '../protocol/result.ts'
import { decodeNotification, subscriptionOf } from '../protocol/rev-2026-07-28/decode-notification.ts'
import { decodeResponse } from '../protocol/rev-2026-07-28/decode-response.ts'
import { decodeCompletion, decodeDiscovery, decodePage } from '../protocol/rev-2026-07-28/decode-result.ts'
import { encodeCancel, encodeRequest, methodOf } from '../protocol/rev-2026-07-28/encode-request.ts'

type Fields = Readonly<Record<string, unknown>>

export interface Dialect {
  readonly version: string
  methodOf(call: Call): string
  encodeRequest(
    call: Call,
    mirrored?: readonly ParamHeader[],
  ): { body: string; headers: Readonly<Record<string, string>> }
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
