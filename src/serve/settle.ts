import { RondoError } from '../errors.ts'
import { isThenable } from '../lib/is-thenable.ts'
import type { Call, Line, ListenCall, Principal } from '../protocol/call.ts'
import type { Reply } from '../protocol/reply.ts'
import type { Service } from './service.ts'

/**
 * Asks the service and calls `finish` once, at once where the service answers at once. A fault of the service is an
 * internal error to the client and goes to `onError`; so is a reply that cannot be sent, and `finish` is then called with
 * that error instead.
 */
export function settle(
  service: Service,
  call: Exclude<Call, ListenCall>,
  principal: Principal | undefined,
  line: Line,
  onError: (error: unknown) => void,
  finish: (reply: Reply) => void,
): void {
  let reply: Reply | Promise<Reply>
  try {
    reply = service.answer(call, principal, line)
  } catch (error) {
    reply = internalError(error, onError)
  }
  const done = (settled: Reply): void => finishOnce<Reply>(settled, finish, onError)
  if (isThenable(reply)) reply.then(done, (error) => done(internalError(error, onError)))
  else done(reply)
}

/** Finishes with `reply`, or with an internal error where that throws: a result that cannot be encoded, for example. */
export function finishOnce<R>(
  reply: R | ErrorReply,
  finish: (reply: R | ErrorReply) => void,
  onError: (error: unknown) => void,
): void {
  try {
    finish(reply)
  } catch (error) {
    try {
      finish(internalError(error, onError))
    } catch (again) {
      onError(again)
    }
  }
}

export type ErrorReply = Extract<Reply, { kind: 'error' }>

export function internalError(error: unknown, onError: (error: unknown) => void): ErrorReply {
  onError(error)
  return { kind: 'error', error: new RondoError('SERVER_INTERNAL', undefined, { cause: error }) }
}

/** A listener for faults that cannot add one of its own. */
export function quietly(listener: (error: unknown) => void = () => {}): (error: unknown) => void {
  return (error) => {
    try {
      listener(error)
    } catch {
      // Nobody is left to be told.
    }
  }
}
