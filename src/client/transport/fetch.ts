/**
 * HTTP over a web-standard `fetch`: for runtimes without `node:http`, for a caller's own `fetch`, and for a server object in
 * memory, which has a `fetch` of its own.
 */

import { RondoError } from '../../errors.ts'
import { orAbort } from '../../lib/clock.ts'
import { createResponseReader } from './response-reader.ts'
import type { Outgoing, ResponseHead, Transport } from './transport.ts'

/** The platform's `fetch`, or one with the same contract. */
export type FetchLike = (request: Request) => Promise<Response>

export function createFetchTransport(
  fetch: FetchLike,
  url: URL,
  kind: 'http' | 'memory' = 'http',
): Transport {
  return {
    kind,
    target: kind === 'memory' ? 'memory:' : `${url.origin}${url.pathname}`,
    exchange: (outgoing) => exchange(fetch, url, outgoing),
    async close() {},
  }
}

async function exchange(fetch: FetchLike, url: URL, outgoing: Outgoing): Promise<unknown> {
  const { verb = 'POST', headers, signal } = outgoing
  signal.throwIfAborted()
  const body = verb === 'POST' ? outgoing.body : undefined
  const response = await inTime(
    fetch(new Request(url, { method: verb, redirect: 'manual', body, headers: { ...headers }, signal })),
    signal,
  )
  const chunks = response.body?.getReader()
  try {
    const reader = createResponseReader(headOf(response), outgoing)
    while (reader.response === undefined) {
      const read = chunks && (await inTime(chunks.read(), signal))
      if (read === undefined || read.done) reader.end()
      else reader.push(read.value)
    }
    return reader.response
  } finally {
    // Drops the rest. An aborted or failed stream cannot be cancelled.
    chunks?.cancel().catch(() => {})
  }
}

function headOf({ status, headers }: Response): ResponseHead {
  return {
    status,
    contentType: headers.get('content-type'),
    challenge: headers.get('www-authenticate'),
    retryAfter: headers.get('retry-after'),
    session: headers.get('mcp-session-id'),
  }
}

/** Rejects when the signal is aborted, which a server in memory may ignore. */
async function inTime<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  try {
    return await orAbort(work, signal)
  } catch (error) {
    throw signal.aborted ? signal.reason : toRondoError(error)
  }
}

function toRondoError(error: unknown): RondoError {
  if (error instanceof RondoError) return error
  return new RondoError('PEER_GONE', 'The request failed', { cause: error })
}
