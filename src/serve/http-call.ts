/**
 * One call over HTTP: ask the service, send what it says. A fault of the service is an internal error to the client
 * and goes to `onError`.
 */

import { RondoError } from '../errors.ts'
import { isThenable } from '../lib/is-thenable.ts'
import type { Call, ListenCall, Principal } from '../protocol/call.ts'
import type { Reply } from '../protocol/reply.ts'
import { encodeReply, statusOf } from '../protocol/rev-2026-07-28/encode.ts'
import type { HeaderReader } from '../protocol/rev-2026-07-28/headers.ts'
import { HttpLine, type StreamOptions } from './http-line.ts'
import type { InFlight } from './in-flight.ts'
import type { Outlet } from './outlet.ts'
import type { Service } from './service.ts'

export interface CallContext {
  readonly service: Service
  readonly inFlight: InFlight
  readonly stream: StreamOptions
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
  const line = new HttpLine(outlet, headers, context.stream)
  const fault = (error: unknown): Reply => {
    onError(error)
    return { kind: 'error', error: new RondoError('SERVER_INTERNAL', undefined, { cause: error }) }
  }
  const finish = (reply: Reply): void => {
    inFlight.leave()
    try {
      line.finish(statusOf(reply), encodeReply(call.id, reply, service))
    } catch (error) {
      onError(error)
    }
  }
  let reply: Reply | Promise<Reply>
  inFlight.enter()
  try {
    reply = service.answer(call, principal, line)
  } catch (error) {
    reply = fault(error)
  }
  if (isThenable(reply)) reply.then(finish, (error) => finish(fault(error)))
  else finish(reply)
}
