/**
 * HTTP by a web-standard `fetch`: for runtimes without `node:http`, for a caller's own `fetch`, and for a server object
 * in memory, which has a `fetch` of its own and needs no socket.
 */

import { RondoError } from '../../errors.ts'
import { orAbort } from '../../lib/or-abort.ts'
import { type AnswerReader, createAnswerReader } from './answer-reader.ts'
import type { Outgoing, Transport } from './transport.ts'

/** Anything that answers a request: the platform's `fetch`, or a server object's. */
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
  const reader = createAnswerReader(
    {
      status: response.status,
      contentType: response.headers.get('content-type'),
      challenge: response.headers.get('www-authenticate'),
      retryAfter: response.headers.get('retry-after'),
      session: response.headers.get('mcp-session-id'),
    },
    outgoing,
  )
  if (response.body === null) reader.end()
  else await readAll(response.body, reader, signal)
  return reader.answer
}

async function readAll(
  body: ReadableStream<Uint8Array>,
  reader: AnswerReader,
  signal: AbortSignal,
): Promise<void> {
  const chunks = body.getReader()
  try {
    while (reader.answer === undefined) {
      const { done, value } = await inTime(chunks.read(), signal)
      if (done) reader.end()
      else reader.push(value)
    }
  } finally {
    // What is left is not wanted; on an aborted or failed stream there is nothing to cancel any more.
    chunks.cancel().catch(() => {})
  }
}

/** A server in memory may not watch the signal, so it is watched here. */
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
