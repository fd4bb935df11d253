/**
 * Sends a request and follows its answer to the end. A stream that breaks, or that the server closes before the response,
 * is taken up again where it stood if its events have ids: the call goes on at the server meanwhile.
 *
 * Bounded: a few attempts in a row that bring nothing, some in all, and the time of the request.
 */

import { RondoError } from '../../errors.ts'
import { sleep } from '../clock.ts'
import type { Outgoing, StreamMark } from '../transport/transport.ts'
import type { Link } from './link.ts'

const MAX_FAILURES = 5
const MAX_ATTEMPTS = 100
const FIRST_WAIT_MS = 250
const LONGEST_WAIT_MS = 30_000

export async function followAnswer(link: Link, outgoing: Outgoing): Promise<unknown> {
  let mark: StreamMark = {}
  let failures = 0
  const watched: Outgoing = {
    ...outgoing,
    onMark(one) {
      mark = { ...mark, ...one }
      failures = 0
    },
  }
  let next = watched
  for (let attempt = 0; ; attempt++) {
    try {
      return await link.transport.exchange(next)
    } catch (error) {
      failures += 1
      const broken = error instanceof RondoError && error.code === 'PEER_GONE' && !outgoing.signal.aborted
      if (!broken || mark.id === undefined || failures > MAX_FAILURES || attempt >= MAX_ATTEMPTS) throw error
    }
    await sleep(link.clock, waitBefore(mark, failures), outgoing.signal)
    next = { ...watched, verb: 'GET', body: '', headers: await streamHeaders(link, mark), onHead: resumed }
  }
}

/** As long as the server asks for; otherwise longer each time. */
export function waitBefore({ retryMs }: StreamMark, failures: number): number {
  return Math.min(LONGEST_WAIT_MS, retryMs ?? FIRST_WAIT_MS * 2 ** Math.max(0, failures - 1))
}

export async function streamHeaders(
  link: Link,
  { id }: StreamMark,
): Promise<Readonly<Record<string, string>>> {
  const { 'Content-Type': _, ...headers } = await link.headersFor()
  return { ...headers, Accept: 'text/event-stream', ...(id !== undefined && { 'Last-Event-ID': id }) }
}

function resumed({ status }: { readonly status: number }): void {
  if (status === 200) return
  throw new RondoError('PEER_HTTP', `The stream cannot be taken up again (HTTP status ${status})`, {
    data: { status },
  })
}
