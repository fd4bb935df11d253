/** `initialize` and `notifications/initialized`: agrees on a version and opens a session where the server has any. */

import { RondoError } from '../../errors.ts'
import type { RequestId } from '../../protocol/call.ts'
import type { Discovery } from '../../protocol/result.ts'
import { decodeOutcome } from '../../protocol/rev-2025-11-25/decode-response.ts'
import { decodeInitialize } from '../../protocol/rev-2025-11-25/decode-result.ts'
import {
  encodeInitialize,
  encodeMessage,
  headersOf,
  type Introduction,
} from '../../protocol/rev-2025-11-25/encode-request.ts'
import { openLeg } from '../leg.ts'
import { PeerError } from '../peer-error.ts'
import { requestHeaders } from '../request-headers.ts'
import type { Inbox } from './inbox.ts'
import { type Link, sessionIn } from './link.ts'

export interface Handshake extends Introduction {
  /** The versions that are taken. */
  readonly accepts: readonly string[]
  readonly timeout?: number
  readonly signal?: AbortSignal
  nextId(): RequestId
}

/** Leaves version and session in the link. */
export async function shakeHands(link: Link, inbox: Inbox, hand: Handshake): Promise<Discovery> {
  const { message, session } = await introduce(link, inbox, hand)
  const outcome = decodeOutcome(message)
  if (outcome.kind === 'error') throw new PeerError(outcome.error)
  const discovery = outcome.kind === 'complete' ? decodeInitialize(outcome.result) : undefined
  if (discovery === undefined) throw new RondoError('PEER_ANSWER', 'The answer to initialize is not valid')
  const [version = ''] = discovery.supportedVersions
  if (!hand.accepts.includes(version)) {
    const ours = hand.accepts.join(', ')
    throw new RondoError('PEER_ERA', `The server wants to speak ${version}; this client was to speak ${ours}`)
  }
  link.version = version
  link.id = session
  link.epoch += 1
  await link.tell(encodeMessage(undefined, 'notifications/initialized'))
  return discovery
}

async function introduce(
  link: Link,
  inbox: Inbox,
  hand: Handshake,
): Promise<{ message: unknown; session: string | undefined }> {
  const { 'MCP-Protocol-Version': _, ...own } = headersOf(hand.version)
  const leg = openLeg(link.clock, { timeout: hand.timeout ?? link.limits.timeout }, hand.signal)
  let session: string | undefined
  const id = hand.nextId()
  try {
    const message = await link.transport.exchange({
      id,
      body: encodeInitialize(id, hand),
      headers: await requestHeaders(own, link.headers),
      signal: leg.signal,
      maxBytes: link.limits.maxResponseBytes,
      repeatable: true,
      onHead(head) {
        session = sessionIn(head)
      },
      onRequest: (request) => inbox.takeRequest(request),
      onNotification: (notification) => inbox.takeNotification(notification),
    })
    return { message, session }
  } finally {
    leg.end()
  }
}
