/** A request as an entrance brings it, and the room that its body takes while it arrives: types only. */

import type { Body, BodyBounds } from '../../lib/body.ts'
import type { RequestHeaders } from '../../protocol/common/headers.ts'
import type { HttpHeaders, Outlet } from '../port.ts'

/** One request over HTTP, whatever the runtime. */
export interface HttpArrival {
  readonly method: string
  /** As in the request line, or the whole URL. */
  readonly url: string
  readonly headers: RequestHeaders
  /** The headers as they came, names and values in turn, if the runtime has them. */
  readonly raw?: readonly string[]
  readonly outlet: Outlet
  /** The path of the endpoint; any other gets 404. Absent if the runtime has routed the request. */
  readonly endpoint?: string
  /** Bytes of the longest body that is read. */
  readonly maxBodyBytes: number
  /** Bytes up to which the rest of a body that is too large is discarded, so that its sender reads the refusal. */
  readonly patience?: number
  /** Reads the body. */
  readonly read: (bounds: BodyBounds) => Promise<Body>
  /** The body, if a middleware has read it. */
  readonly given?: unknown
  /** The scheme of a URL that has none. */
  readonly scheme?: 'http' | 'https'
  /** Adds headers to whatever response follows. */
  share(headers: HttpHeaders | undefined): void
  /** The body is not read to its end. */
  abandon(): void
  /** Sends the response of a route. Resolves when it was passed on; rejects if its body fails. */
  respond(response: Response): Promise<void>
}

/** Counts a body while it arrives, once it is more than light. */
export interface Room {
  hasRoom(size: number): boolean
  release(): void
}
