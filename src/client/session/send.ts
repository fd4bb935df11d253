/** Sends one request in a session, with everything the server may send before its response. */

import { RondoError } from '../../errors.ts'
import { isRecord } from '../../lib/is-record.ts'
import type { RequestId } from '../../protocol/call.ts'
import { decodeOutcome } from '../../protocol/rev-2025-11-25/decode-response.ts'
import { encodeMessage, headersOf } from '../../protocol/rev-2025-11-25/encode-request.ts'
import { openLeg } from '../leg.ts'
import { PeerError } from '../peer-error.ts'
import type { Outgoing } from '../transport/transport.ts'
import { followAnswer } from './follow-answer.ts'
import type { Flight, Inbox } from './inbox.ts'
import type { Link } from './link.ts'

type Fields = Readonly<Record<string, unknown>>

/** Instead of a response: the server does not know the session and has not looked at the request. */
export const FORGOTTEN: unique symbol = Symbol('forgotten')

/** Sends a request of ours. Gives the response as it came. */
export async function sendOnce(
  link: Link,
  inbox: Inbox,
  outgoing: Outgoing,
  flight: Flight,
): Promise<unknown> {
  const leave = inbox.enter(flight)
  const had = link.id
  let status = 0
  // Hanging up does not cancel here; the transport of a process says so by itself.
  const cancel = () => {
    if (outgoing.cancel !== undefined && !link.signal.aborted) link.tell(outgoing.cancel).catch(() => {})
  }
  if (link.transport.kind !== 'stdio') outgoing.signal.addEventListener('abort', cancel, { once: true })
  try {
    const message = await followAnswer(link, {
      ...outgoing,
      headers: await link.headersFor(outgoing.headers),
      onHead(head) {
        status = head.status
      },
      onNotification: link.transport.listen
        ? flight.onNotification
        : (notification) => inbox.takeNotification(notification, [flight]),
      onRequest: (question) => inbox.takeRequest(question, flight),
    })
    return had !== undefined && status === 404 && !isUnknownMethod(message) ? FORGOTTEN : message
  } catch (error) {
    const refused = error instanceof RondoError && error.code === 'PEER_HTTP' && isRecord(error.data)
    if (refused && had !== undefined && status === 404) return FORGOTTEN
    throw error
  } finally {
    outgoing.signal.removeEventListener('abort', cancel)
    leave()
  }
}

/** The other reason for a 404. */
function isUnknownMethod(message: unknown): boolean {
  return isRecord(message) && isRecord(message.error) && message.error.code === -32601
}

/** A request of the session itself: gives the result. */
export async function request(
  link: Link,
  inbox: Inbox,
  id: RequestId,
  method: string,
  params: Fields,
): Promise<Fields> {
  const leg = openLeg(link.clock, { timeout: link.limits.timeout }, link.signal)
  try {
    const message = await sendOnce(
      link,
      inbox,
      {
        id,
        body: encodeMessage(id, method, params),
        headers: headersOf(link.version),
        signal: leg.signal,
        maxBytes: link.limits.maxResponseBytes,
        repeatable: true,
      },
      { leg },
    )
    const outcome = decodeOutcome(message)
    if (outcome.kind === 'error') throw new PeerError(outcome.error)
    if (outcome.kind === 'complete') return outcome.result
    throw new RondoError('PEER_ANSWER', `The answer to ${method} is not valid`)
  } finally {
    leg.end()
  }
}
