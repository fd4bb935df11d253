/**
 * The port through which our client's messages leave and answers come back. A transport moves messages; what they mean
 * is the dialect's business, how long they may take and whether they are tried again is the peer's.
 */

import type { RequestId } from '../../protocol/call.ts'

export interface Outgoing {
  readonly id: RequestId
  /** One JSON-RPC request. */
  readonly body: string
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
  readonly onNotification?: (message: Readonly<Record<string, unknown>>) => void
}

export interface Transport {
  readonly kind: 'http' | 'stdio' | 'memory'
  /** Where the messages go, fit to show and to store: no credentials. */
  readonly target: string
  /** Gives the JSON-RPC response as it came, not yet checked beyond its id. */
  exchange(outgoing: Outgoing): Promise<unknown>
  close(): Promise<void>
}
