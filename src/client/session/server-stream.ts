/**
 * The stream on which an older server sends what belongs to no call. Many servers have none (405); then there is nothing to
 * do. One that breaks is taken up again, not for ever.
 */

import { RondoError } from '../../errors.ts'
import { isRecord } from '../../lib/is-record.ts'
import { sleep } from '../clock.ts'
import type { StreamMark } from '../transport/transport.ts'
import { streamHeaders, waitBefore } from './follow-answer.ts'
import type { Inbox } from './inbox.ts'
import type { Link } from './link.ts'

const MAX_FAILURES = 5
/** A stream that held this long was a good one. */
const GOOD_MS = 5_000

/** Ends when there is no stream, when it fails too often, or when `signal` is aborted. `onGap`: something may be lost. */
export async function keepServerStream(
  link: Link,
  inbox: Inbox,
  signal: AbortSignal,
  onGap: () => void,
): Promise<void> {
  let mark: StreamMark = {}
  for (let failures = 0; failures <= MAX_FAILURES; failures++) {
    const begunAt = link.clock.now()
    try {
      await link.transport.exchange({
        id: 'stream',
        verb: 'GET',
        body: '',
        headers: await streamHeaders(link, mark),
        signal,
        maxBytes: link.limits.maxResponseBytes,
        endless: true,
        onMark(one) {
          mark = { ...mark, ...one }
        },
        onRequest: (message) => inbox.takeRequest(message),
        onNotification: (message) => inbox.takeNotification(message),
      })
      return
    } catch (error) {
      if (signal.aborted) return
      if (!(error instanceof RondoError) || error.code !== 'PEER_GONE') return explain(link, error)
    }
    if (link.clock.now() - begunAt >= GOOD_MS) failures = 0
    await sleep(link.clock, waitBefore(mark, failures + 1), signal).catch(() => {})
    if (signal.aborted) return
    if (mark.id === undefined) onGap()
  }
  link.onWarning('The stream of the server breaks again and again and is given up')
}

function explain(link: Link, error: unknown): void {
  const status = error instanceof RondoError && isRecord(error.data) ? error.data.status : undefined
  if (status === 405 || status === 404 || status === 400) return
  link.onWarning(`The server has no usable stream: ${String(error)}`)
}
