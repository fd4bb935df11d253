/** One call over HTTP: ask the service, send what it says. */

import type { Call, ListenCall, Principal } from '../protocol/call.ts'
import { encodeReply, statusOf } from '../protocol/rev-2026-07-28/encode.ts'
import type { HeaderReader } from '../protocol/rev-2026-07-28/headers.ts'
import { HttpLine, type StreamOptions } from './http-line.ts'
import type { InFlight } from './in-flight.ts'
import type { Outlet } from './outlet.ts'
import type { Service } from './service.ts'
import { settle } from './settle.ts'
import type { ShareOf } from './share.ts'

export interface CallContext {
  readonly service: Service
  readonly inFlight: InFlight
  readonly stream: StreamOptions
  readonly shareOf: ShareOf
  readonly onError: (error: unknown) => void
}

export function serveCall(
  call: Exclude<Call, ListenCall>,
  principal: Principal | undefined,
  headers: HeaderReader,
  outlet: Outlet,
  context: CallContext,
): void {
  const { service, inFlight, onError } = context
  const line = new HttpLine(outlet, headers, context.stream, call.progressToken)
  inFlight.enter()
  settle(service, call, principal, line, onError, (reply) => {
    line.finish(statusOf(reply), encodeReply(call.id, reply, service))
    inFlight.leave()
  })
}
