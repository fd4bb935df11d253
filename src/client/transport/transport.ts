/**
 * The port through which our client's messages leave and answers come back. A transport moves messages; what they mean
 * is the dialect's business, how long they may take and whether they are tried again is the peer's.
 */

import type { TurnBuffer } from '../../drafts/turns/client.ts'
import type { RequestId } from '../../protocol/call.ts'

type Message = Readonly<Record<string, unknown>>

/** What an HTTP answer says before its body. */
export interface AnswerHead {
  readonly status: number
  readonly contentType: string | null | undefined
  /** `WWW-Authenticate`, for whoever knows how to log in. */
  readonly challenge?: string | null
  /** `Retry-After`: with status 503 it says that nothing was done and when to come back. */
  readonly retryAfter?: string | null
  /** `Mcp-Session-Id`. */
  readonly session?: string | null
}

/** Where a stream stands: the id of its last event, and how long the server wants us to wait before we come back. */
export interface StreamMark {
  readonly id?: string
  readonly retryMs?: number
}

export interface Outgoing {
  readonly id: RequestId
  /** One JSON-RPC message; nothing where the verb has no body. */
  readonly body: string
  /** How it is sent over HTTP. Default POST. */
  readonly verb?: 'POST' | 'GET' | 'DELETE'
  /** No answer is expected, only a sign that it arrived: a notification, an answer of ours. */
  readonly oneWay?: boolean
  /** Sent over HTTP; other transports do not look at them. */
  readonly headers: Readonly<Record<string, string>>
  /** Aborting it cancels the request: HTTP hangs up, stdio says so. `exchange` then rejects with its reason. */
  readonly signal: AbortSignal
  /** Bytes of the whole answer; of each message, if the answer is `endless`. */
  readonly maxBytes: number
  /** A subscription: the answer is a stream that lives as long as anyone listens. */
  readonly endless?: boolean
  /** Nothing changes on the server if it gets this twice. */
  readonly repeatable?: boolean
  /** The message that cancels this request, for transports that cannot hang up. */
  readonly cancel?: string
  /** Gets the notifications that belong to this request, before the answer. */
  readonly onNotification?: (message: Message) => void
  /** Takes the server's requests, in revisions where it may send any. Without it they make the answer invalid. */
  readonly onRequest?: (message: Message) => void
  /** The stream may end with questions that are to be answered in a request of their own; they are put by here. */
  readonly turns?: TurnBuffer
  readonly onHead?: (head: AnswerHead) => void
  readonly onMark?: (mark: StreamMark) => void
}

export interface Transport {
  readonly kind: 'http' | 'stdio' | 'memory'
  /** Where the messages go, fit to show and to store: no credentials. */
  readonly target: string
  /** Gives the JSON-RPC response as it came, not yet checked beyond its id. */
  exchange(outgoing: Outgoing): Promise<unknown>
  /** Where all requests share one line: hands over the server's requests and notifications. */
  listen?(onMessage: (message: Message) => void): void
  close(): Promise<void>
}

/** Runs a function of somebody else: what it throws, or what the promise it returns rejects with, goes to `report`. */
export async function guard(run: () => unknown, report: (error: unknown) => void = () => {}): Promise<void> {
  try {
    await run()
  } catch (error) {
    report(error)
  }
}
