import { RondoError } from '../errors.ts'
import { isThenable } from '../lib/is-thenable.ts'
import type { Call, Line, ListenCall, Principal } from '../protocol/call.ts'
import type { Reply } from '../protocol/reply.ts'
import type { Service } from './service.ts'

/**
 * Asks the service and calls `finish` once, at once where the service answers at once. A fault of the service is an
 * internal error to the client and goes to `onError`.
 */
export function settle(
  service: Service,
  call: Exclude<Call, ListenCall>,
  principal: Principal | undefined,
  line: Line,
  onError: (error: unknown) => void,
  finish: (reply: Reply) => void,
): void {
  const fault = (error: unknown): Reply => {
    onError(error)
    return { kind: 'error', error: new RondoError('SERVER_INTERNAL', undefined, { cause: error }) }
  }
  let reply: Reply | Promise<Reply>
  try {
    reply = service.answer(call, principal, line)
  } catch (error) {
    reply = fault(error)
  }
  if (isThenable(reply)) reply.then(finish, (error) => finish(fault(error)))
  else finish(reply)
}
