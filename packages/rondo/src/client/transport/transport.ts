/**
 * The port that carries the client's messages to a server. A transport moves messages; the dialect interprets them, and the
 * peer decides how long they may take and whether they are retried. The transport that works everywhere is here: HTTP over
 * `fetch`.
 */

import { RondoError } from '../../errors.ts'
import { orAbort } from '../../lib/clock.ts'
import type { RequestId } from '../../protocol/call.ts'
import { createResponseReader } from './response-reader.ts'

type Message = Readonly<Record<string, unknown>>

/** Status and headers of an HTTP response. */
export interface ResponseHead {
  readonly status: number
  readonly contentType: string | null | undefined
  /** `WWW-Authenticate`. */
  readonly challenge?: string | null
  /** `Retry-After`: with status 503 or 429 nothing was done, and this is when to retry. */
  readonly retryAfter?: string | null
  /** `DPoP-Nonce`: the nonce that the next proof has to contain. */
  readonly nonce?: string | null
  /** `Mcp-Session-Id`. */
  readonly session?: string | null
}

/** The position in a stream: the id of its last event, and how long to wait before resuming. */
export interface StreamMark {
  readonly id?: string
  readonly retryMs?: number
}

/**
 * Collects the requests of a stream that may end with them instead of its response. One buffer serves one request, also
 * over a stream that broke and was resumed.
 */
export interface RequestBuffer {
  /** Returns a filter for the text of one stream, in which every line ends with LF. */
  createFilter(): (text: string) => string
  /** Looks at an event. Returns what takes the place of the response, if this event ends the stream. */
  look(event: { readonly event?: string; readonly id?: string; readonly data: string }): object | undefined
  /** True if the request was buffered. */
  take(request: Message): boolean
}

export interface Outgoing {
  readonly id: RequestId
  /** One JSON-RPC message; empty for verbs without a body. */
  readonly body: string
  /** The HTTP method. Default POST. */
  readonly verb?: 'POST' | 'GET' | 'DELETE'
  /** No response is expected, only an acknowledgement: for notifications and our own responses. */
  readonly oneWay?: boolean
  /** An acknowledgement (202) may come in the place of the response. */
  readonly mayAcknowledge?: boolean
  /** Sent over HTTP; other transports ignore them. */
  readonly headers: Readonly<Record<string, string>>
  /** Cancels the request: HTTP hangs up, stdio sends `cancel`. `exchange` then rejects with the signal's reason. */
  readonly signal: AbortSignal
  /** The limit for the whole response; for each message, if the response is `endless`. */
  readonly maxBytes: number
  /** A subscription: the response is a stream without an end. */
  readonly endless?: boolean
  /** The request is idempotent. */
  readonly repeatable?: boolean
  /** One of many requests that ask for the state of something, and get a response at once. */
  readonly poll?: boolean
  /** The message that cancels this request, for transports that cannot hang up. */
  readonly cancel?: string
  /** Receives the notifications of this request, before its response. */
  readonly onNotification?: (message: Message) => void
  /** Receives the server's requests, in revisions that allow them. Without it they make the response invalid. */
  readonly onRequest?: (message: Message) => void
  readonly buffer?: RequestBuffer
  readonly onHead?: (head: ResponseHead) => void
  /** Stops the clock of the request while somebody logs in. Returns the function that starts it again. */
  readonly pause?: () => () => void
  readonly onMark?: (mark: StreamMark) => void
}

export interface Transport {
  readonly kind: 'http' | 'stdio' | 'memory'
  /** The address of the server, for display and storage: without credentials. */
  readonly target: string
  /** Sends a message and returns the JSON-RPC response, of which only the id was checked. */
  exchange(outgoing: Outgoing): Promise<unknown>
  /** Passes on the server's requests and notifications, if all requests share one stream. */
  listen?(onMessage: (message: Message) => void): void
  close(): Promise<void>
}

/** Runs a caller's function. What it throws or rejects with goes to `report`. */
export async function guard(run: () => unknown, report: (error: unknown) => void = () => {}): Promise<void> {
  try {
    await run()
  } catch (error) {
    report(error)
  }
}

// HTTP over a web-standard `fetch`: for runtimes without `node:http`, for a caller's own `fetch`, and for a server object in
// memory, which has a `fetch` of its own.

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
    nonce: headers.get('dpop-nonce'),
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
  return new RondoError('PEER_UNREACHABLE', 'The request failed', { cause: error })
}
